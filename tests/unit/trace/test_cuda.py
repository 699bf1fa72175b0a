"""Code that hardcodes CUDA is recorded without a GPU, as the same graph as on the CPU."""

import json
import multiprocessing
import os
import sysconfig
import traceback
from dataclasses import replace
from typing import Any

import pytest
import torch
from cuda_snippets import ONLY_CUDA, SNIPPETS
from programs import record

from graphguard.ir import Graph
from graphguard.ir.codec import graph_to_plain
from graphguard.trace.gpu import cuda
from graphguard.trace.source.sources import is_torch


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


def in_a_child(results: Any, rewriting: bool) -> None:
    """Believing in CUDA is for good, so it happens here: every snippet's graph, or what went wrong.

    ``rewriting``: as where PyTorch's own device guard cannot be had, so that everything on ``cuda`` is recorded on ``cpu``.
    """
    found: dict[str, str] = {}
    if rewriting:
        cuda._install_guard = unknown_platform
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
    found["how"] = cuda.install()
    results.put(found)


def unknown_platform() -> None:
    raise OSError("layouts are known for Linux on x86-64 only")


pytestmark = pytest.mark.filterwarnings("ignore")


def recorded_in_a_child(rewriting: bool) -> dict[str, str]:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=in_a_child, args=(results, rewriting))
    child.start()
    found: dict[str, str] = results.get(timeout=300)
    child.join()
    return found


@pytest.fixture(scope="module")
def with_cuda() -> dict[str, str]:
    return recorded_in_a_child(rewriting=False)


@pytest.fixture(scope="module")
def with_rewriting() -> dict[str, str]:
    return recorded_in_a_child(rewriting=True)


@pytest.mark.parametrize("name", list(SNIPPETS))
def test_same_graph_as_on_the_cpu(name: str, with_cuda: dict[str, str]) -> None:
    assert with_cuda[name] == graph_on("cpu", name)


@pytest.mark.parametrize("name", list(ONLY_CUDA))
def test_runs(name: str, with_cuda: dict[str, str]) -> None:
    assert with_cuda[name] == "ok"


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="a build with CUDA is not rewritten")
def test_how_cuda_is_had(with_cuda: dict[str, str], with_rewriting: dict[str, str]) -> None:
    assert with_cuda["how"] != "rewrite"
    assert with_rewriting["how"] == "rewrite"


@pytest.mark.parametrize("name", list(SNIPPETS))
def test_rewriting_gives_the_graph_of_the_cpu(name: str, with_rewriting: dict[str, str]) -> None:
    assert with_rewriting[name] == graph_on("cpu", name)


# What rewriting cannot do, as its documentation says: the tensors lie on the CPU, and autocast casts what it casts there.
@pytest.mark.parametrize("name", [name for name in ONLY_CUDA if name != "is_cuda"])
def test_rewriting_runs(name: str, with_rewriting: dict[str, str]) -> None:
    assert with_rewriting[name] == "ok"


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="a build with CUDA is not rewritten")
def test_rewriting_is_seen_by_who_asks_for_the_device(with_rewriting: dict[str, str]) -> None:
    assert with_rewriting["is_cuda"] == "answered False"


@pytest.mark.parametrize("name", ["method_cuda", "current_device", "streams_and_events", "module_cuda", "backward"])
def test_a_world_of_cpus_says_that_cuda_is_wanted(name: str) -> None:
    trace = record(lambda: SNIPPETS[name]("cuda"), [], 0, {"tp": 2})
    assert trace.wants_cuda
    assert trace.graph is None


@pytest.mark.parametrize(
    "name",
    [
        "set_device",
        "synchronize",
        "properties",
        "rng_state",
        "old_autocast",
        "rank_modulo_devices",
        "accelerator_modulo_devices",
        "generator",
        "memory_summary",
    ],
)
def test_a_world_of_cpus_never_fails_for_want_of_cuda(name: str) -> None:
    assert record(lambda: (ONLY_CUDA[name](), torch.ones(1))[1], [], 0, {"tp": 2}).wants_cuda


def test_autocast_for_cuda_is_never_silently_off() -> None:
    assert record(ONLY_CUDA["autocast"], [], 0, {"tp": 2}).wants_cuda


def test_installed_packages_are_not_the_standard_library() -> None:
    """They lie below its folder; what they ask of CUDA, or of the rank, the program asks."""
    assert is_torch(json.__file__)
    for name in ("stdlib", "platstdlib"):  # in a virtual environment, the interpreter's and its own
        folder = sysconfig.get_path(name)
        assert is_torch(os.path.join(folder, "site-packages", "torch", "nn", "init.py"))
        assert not is_torch(os.path.join(folder, "site-packages", "accelerate", "state.py"))
