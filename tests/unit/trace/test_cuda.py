"""Code that hardcodes CUDA is recorded without a GPU, as the same graph as on the CPU."""

import json
import multiprocessing
import traceback
from dataclasses import replace
from typing import Any

import pytest
import torch
from cuda_snippets import ONLY_CUDA, SNIPPETS
from programs import record

from graphguard.ir import Graph
from graphguard.ir.codec import graph_to_plain


def shown(graph: Graph) -> str:
    nodes = tuple(replace(node, stack=-1, forward=-1) for node in graph.nodes)
    return json.dumps(graph_to_plain(replace(graph, nodes=nodes, frames=(), stacks=())), sort_keys=True)


def graph_on(device: str, name: str) -> str:
    trace = record(lambda: SNIPPETS[name](device), [], 0, {"tp": 2}, device=device)
    graph = trace.graph
    assert graph is not None
    if name.startswith("module_"):  # built on the host, so initial values are drawn by the host's generator
        graph = replace(graph, nodes=tuple(replace(node, draw=None) for node in graph.nodes))
    return shown(graph)


def in_a_child(results: Any) -> None:
    """Believing in CUDA is for good, so it happens here: every snippet's graph, or what went wrong."""
    found: dict[str, str] = {}
    for name in SNIPPETS:
        try:
            found[name] = graph_on("cuda", name)
        except BaseException:  # noqa: BLE001  # told to the parent
            found[name] = traceback.format_exc()
    for name, program in ONLY_CUDA.items():
        try:
            answers: list[Any] = []
            record(lambda p=program, a=answers: (a.append(p()), torch.ones(1))[1], [], 0, {"tp": 2}, device="cuda")
            found[name] = "ok" if answers[0] else f"answered {answers[0]!r}"
        except BaseException:  # noqa: BLE001  # told to the parent
            found[name] = traceback.format_exc()
    results.put(found)


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def with_cuda() -> dict[str, str]:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=in_a_child, args=(results,))
    child.start()
    found = results.get(timeout=120)
    child.join()
    return found


@pytest.mark.parametrize("name", list(SNIPPETS))
def test_same_graph_as_on_the_cpu(name: str, with_cuda: dict[str, str]) -> None:
    assert with_cuda[name] == graph_on("cpu", name)


@pytest.mark.parametrize("name", list(ONLY_CUDA))
def test_runs(name: str, with_cuda: dict[str, str]) -> None:
    assert with_cuda[name] == "ok"


@pytest.mark.parametrize("name", ["method_cuda", "current_device", "streams_and_events", "module_cuda", "backward"])
def test_a_world_of_cpus_says_that_cuda_is_wanted(name: str) -> None:
    trace = record(lambda: SNIPPETS[name]("cuda"), [], 0, {"tp": 2})
    assert trace.wants_cuda
    assert trace.graph is None


@pytest.mark.parametrize("name", ["set_device", "synchronize", "properties", "rng_state", "old_autocast"])
def test_a_world_of_cpus_never_fails_for_want_of_cuda(name: str) -> None:
    assert record(lambda: (ONLY_CUDA[name](), torch.ones(1))[1], [], 0, {"tp": 2}).wants_cuda


def test_autocast_for_cuda_is_never_silently_off() -> None:
    assert record(ONLY_CUDA["autocast"], [], 0, {"tp": 2}).wants_cuda
