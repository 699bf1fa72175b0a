"""How long it takes to record a model, and next to what: ``python -m benchmarks.tracing``.

Ratios compare medians of alternating repetitions in this one process, in CPU seconds; from an edit to graphs, which several processes share, the best of
several, on the wall and in CPU seconds of all of them (Linux).  Absolute times depend on the machine.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from benchmarks.llama_tp import Block, Config, Llama
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.ir import Graph
from graphguard.ir.collection import without_collection
from graphguard.trace.process.limits import Limits
from graphguard.trace.programs.importing import Target, find
from graphguard.trace.programs.job import SPECIFICATION, Job
from graphguard.trace.programs.ranks import record_alone
from graphguard.trace.record.capture import Recording
from graphguard.trace.record.operators import new_fake_mode
from graphguard.trace.source import provenance
from graphguard.trace.source.sources import ProjectFiles
from graphguard.trace.worlds.world import World, warm

REPETITIONS = 3
EDITS = 9
SETTLES = 1.5


@without_collection()
def record(config: Config, ways: int, rank: int = 0) -> tuple[Graph, float, float]:
    """Forward and backward of one program, as in a process of the worker's: its graph, seconds of recording, seconds of functionalisation."""
    with World(rank, {"tp": ways}) as world:
        recording = Recording(world, copies=True)
        with recording:
            torch.set_default_dtype(torch.bfloat16)
            model = Llama(config, None if ways == 1 else world.mesh.get_group("tp"))
            tokens = recording.leaf("tokens", (1, 128), torch.int64)
            labels = recording.leaf("labels", (1, 128), torch.int64)
            for name, parameter in model.named_parameters():
                recording.bind(parameter, recording.leaf(name, tuple(parameter.shape), parameter.dtype))
            recording.root(model)
            recording.phase = "forward"
            start = time.process_time()
            loss = model(tokens, labels)
            recording.output("out", loss)
            loss.backward()
            for name, parameter in model.named_parameters():
                recording.output(f"grad({name})", parameter.grad)
            recorded = time.process_time()
        trace = recording.finish()
        done = time.process_time()
    assert trace.graph is not None, trace.troubles
    return trace.graph, recorded - start, done - recorded


@without_collection()
def with_make_fx(config: Config, ways: int) -> float:
    """Seconds that ``make_fx`` takes on the same model, forward and backward, on fake tensors."""
    with World(0, {"tp": ways}) as world, new_fake_mode():
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = Llama(config, None if ways == 1 else world.mesh.get_group("tp"))
            tokens = torch.zeros(1, 128, dtype=torch.int64)
            names, parameters = zip(*model.named_parameters(), strict=True)

            def step(tokens: torch.Tensor, *values: torch.Tensor) -> Any:
                loss = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (tokens, tokens))
                return loss, *torch.autograd.grad(loss, values)

            start = time.process_time()
            make_fx(step)(tokens, *parameters)
            return time.process_time() - start
        finally:
            torch.set_default_dtype(before)


def without_provenance(run: Callable[[], float]) -> float:
    """The same recording with no stack walked."""
    walk = provenance.walk
    provenance.walk = lambda *_: ()
    try:
        return run()
    finally:
        provenance.walk = walk


def alternating(*runs: Callable[[], float]) -> list[float]:
    """The median of each, taken in turns so that the machine's mood is shared."""
    for run in runs:
        run()
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(REPETITIONS):
        for run, found in zip(runs, seconds, strict=True):
            found.append(run())
    return [statistics.median(found) for found in seconds]


def total(config: Config, ways: int) -> float:
    """Recording and functionalisation of rank 0."""
    _, recording, functional = record(config, ways)
    return recording + functional


CHECK = """
import torch

import graphguard as gg
from llama_tp import Block, Config

CONFIG = Config(layers=1)


class Layer(torch.nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.block = Block(CONFIG, group)

    def forward(self, x, cos, sin):
        return self.block(x, cos, sin)


@gg.check(mesh={"tp": 2})
def layer(mesh):
    table = gg.tensor(128, CONFIG.head_dim, dtype=torch.float32)
    x = gg.tensor(1, 128, CONFIG.dim, dtype=torch.bfloat16)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return gg.Refinement(spec=Layer(), impl=Layer(mesh.get_group("tp")), inputs=(x, table, table))
    finally:
        torch.set_default_dtype(before)
"""


def edit_to_graphs() -> tuple[tuple[float, float], tuple[float, float], float, float]:
    """From a saved edit to the three graphs of one decoder layer through the worker, and recording the same three in a warm process: each (wall, CPU) seconds.

    The third is recording them as programs of that check, in CPU seconds; the last what the worker uses between two edits.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        model = (Path(__file__).parent / "llama_tp.py").read_text()
        (root / "llama_tp.py").write_text(model)
        (root / "check.py").write_text(CHECK)
        client = WorkerClient(Configuration(root=root))
        request = {
            "file": str(root / "check.py"),
            "name": "layer",
            "mesh": None,
            "root": str(root),
            "overlay": {},
            "cache": False,
        }
        try:
            worker = client.call("hello", {})["pid"]
            edited, between = [], []
            for edit in range(EDITS):
                (root / "llama_tp.py").write_text(model.replace("1e-5", f"{edit + 1}e-5"))
                start, used = time.perf_counter(), cpu_seconds(worker)
                answer = client.call("capture", request)
                wall = time.perf_counter() - start
                wait_for_children(worker)
                after = cpu_seconds(worker)
                edited.append((wall, after - used))
                assert not answer["summary"]["troubles"], answer["summary"]["troubles"]
                time.sleep(SETTLES)  # the worker works out in advance what was new, and forks processes that wait
                between.append(cpu_seconds(worker) - after)
        finally:
            client.close()
        with contextlib.chdir(root):
            programs = record_programs(root)
    warm_seconds = [record_layers() for _ in range(EDITS)]
    return best(edited), best(warm_seconds), programs, statistics.median(between)


def record_programs(root: Path) -> float:
    """CPU seconds of recording the check's three programs in a warm process, from the model's construction to the graph."""
    found = find(Target(str(root / "check.py"), str(root)), ProjectFiles({}), "layer", None)

    class Outputs:
        """What the specification tells, for the ranks that ask."""

        told: dict[str, Any] = {}  # noqa: RUF012 - one for all

        def tell(self, message: dict[str, Any]) -> None:
            self.told.update(message)

        def ask(self, _: dict[str, Any]) -> dict[str, Any]:
            return self.told

    def run() -> float:
        used = time.process_time()
        with without_collection():
            for program in (SPECIFICATION, 0, 1):
                job = Job(found.function, found.mesh, found.check, str(root), Limits(), time.monotonic())
                recorded = record_alone(job, program, {}, Outputs())
                assert not recorded.troubles, recorded.troubles
        return time.process_time() - used

    return min(run() for _ in range(EDITS))


def best(seconds: list[tuple[float, float]]) -> tuple[float, float]:
    """The least of each."""
    wall, cpu = zip(*seconds, strict=True)
    return min(wall), min(cpu)


def wait_for_children(process: int) -> None:
    """Wait until a process has no children: until then their time is not counted."""
    while Path(f"/proc/{process}/task/{process}/children").read_text():
        time.sleep(0.001)


def cpu_seconds(process: int) -> float:
    """What a process of one thread and all its descendants have used, those included that have ended and were waited for."""
    place = Path(f"/proc/{process}")
    try:
        nanoseconds = int((place / "schedstat").read_text().split()[0])
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        children = (place / "task" / str(process) / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    ended = sum(int(field) for field in fields[13:15]) / os.sysconf("SC_CLK_TCK")
    return nanoseconds / 1e9 + ended + sum(cpu_seconds(int(child)) for child in children)


def record_layers() -> tuple[float, float]:
    """Seconds of recording one decoder layer, forward and backward, as specification and as two ranks."""
    wall = cpu = 0.0
    for rank, ways in ((0, 1), (0, 2), (1, 2)):
        config = Config(layers=1)
        with World(rank, {"tp": ways}) as world, Recording(world) as recording:
            torch.set_default_dtype(torch.bfloat16)
            block = Block(config, None if ways == 1 else world.mesh.get_group("tp"))
            x = recording.leaf("x", (1, 128, config.dim), torch.bfloat16, requires_grad=True)
            table = recording.leaf("table", (128, config.head_dim), torch.float32)
            recording.phase = "forward"
            start, used = time.perf_counter(), time.process_time()
            block(x, table, table).sum().backward()
            wall, cpu = wall + time.perf_counter() - start, cpu + time.process_time() - used
    return wall, cpu


def main() -> None:
    """Print the table."""
    warm()
    two = Config(layers=2)
    for ways, name in ((1, "sequential"), (2, "TP 2, rank 0")):
        whole, recording, bare, fx = alternating(
            lambda w=ways: total(two, w),
            lambda w=ways: record(two, w)[1],
            lambda w=ways: without_provenance(lambda: record(two, w)[1]),
            lambda w=ways: with_make_fx(two, w),
        )
        nodes = len(record(two, ways)[0].nodes)
        print(f"2 layers, {name}: {nodes} nodes, {whole * 1e3:.0f} ms, of which recording {recording * 1e3:.0f} ms")
        print(f"  make_fx {fx * 1e3:.0f} ms: {fx / whole:.2f} times as long")
        print(f"  provenance: {(recording - bare) / recording:.1%} of recording")
    one, deep = alternating(lambda: total(Config(layers=1), 2), lambda: total(Config(layers=32), 2))
    *sums, programs, between = edit_to_graphs()
    for name, edited, recorded in zip(("on the wall", "of CPU"), *sums, strict=True):
        ratio = f"{edited / recorded:.1f} times recording them"
        print(f"one decoder layer, from an edit to three graphs: {edited * 1e3:.0f} ms {name}, {ratio}")
    print(
        f"  the three as programs of a check, from the model's construction to the graph: {programs * 1e3:.0f} ms of CPU"
    )
    print(f"  between two edits: {between * 1e3:.0f} ms of CPU")
    print(f"32 layers over 1 layer, TP 2: {deep * 1e3:.0f} ms / {one * 1e3:.0f} ms = {deep / one:.1f}")


if __name__ == "__main__":
    main()
