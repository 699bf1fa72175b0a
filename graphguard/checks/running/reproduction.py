"""A counterexample on real processes: the user's code itself, on gloo, with the values that refuted it.

What the generated test calls.  Specification and ranks are run through the same steps as when they are recorded (inputs, parameters, loader,
cotangents, gradients), only on real tensors and real process groups.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import pickle
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from graphguard.checks.project.configuration import Configuration, load_configuration
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.ir import Capture, Graph, capture_from_json
from graphguard.ir.fuel import Fuel
from graphguard.trace.claims.api import Same
from graphguard.trace.process.children import Child, Ending, Family, Link
from graphguard.trace.process.limits import Limits, default_memory
from graphguard.trace.programs.importing import Target, find
from graphguard.trace.source.sources import ProjectFiles

T = TypeVar("T")
# The process that runs a check's one program on one rank, beside those of the ranks.
ALONE = -1
SECONDS = 120.0
# Single precision, over sums of many terms: far above rounding, far below any bug.
_TOLERANCE = 1e-3
_BEYOND_CPU = ("CUDA", "cuda", "NVIDIA", "nccl", "NCCL")
_UNBOUND = "the parameters cannot be given their values once the program is built"


class CannotRunHereError(Exception):
    """The program needs a device that this machine does not have, or moves its parameters while it is built, which only a recording follows."""


def assert_agrees(file: str, check: str, mesh: Mapping[str, int], inputs: Mapping[str, str]) -> None:
    """Run a check's programs for real and compare every promise; raises ``AssertionError`` naming the first element that differs.

    ``inputs`` describes the leaves' values in the words of a report.  Where the code needs a GPU, or parameters that have their values before the program is
    built, the recorded programs are run instead, and the test's output says so.
    """
    path = os.path.abspath(file)
    configuration = load_configuration(Path(path))
    capture = _captured(path, check, dict(mesh), configuration)
    values = _values(capture, inputs)
    try:
        outputs = _run_all(_Job(path, check, str(configuration.root), capture, values, _labelled(capture, values)))
    except CannotRunHereError as error:
        print(f"{error}: the recorded programs are compared instead")  # noqa: T201 - pytest shows it beside a failure
        replayed = _replayed(capture, values)
        outputs = [{name: result[var] for name, var in graph.outputs.items()} for graph, result in replayed]
    _compare(capture, outputs)


def _captured(path: str, check: str, mesh: dict[str, int], configuration: Configuration) -> Capture:
    with WorkerClient(configuration) as client:
        params = {"file": path, "root": str(configuration.root), "name": check, "mesh": mesh, "overlay": {}}
        capture = capture_from_json(client.call("capture", params)["capture"])
    if capture.troubles:
        trouble = capture.troubles[0]
        raise AssertionError(f"{trouble.span}: {trouble.message}")
    return capture


def _values(capture: Capture, inputs: Mapping[str, str]) -> dict[str, Any]:
    """Every leaf's value, from the words of a counterexample: style, scale and seed."""
    from graphguard.confirm.run.draws import Draw, leaf_value
    from graphguard.confirm.run.ranges import IndexRange, index_ranges

    spans = index_ranges(capture)
    values = {}
    for index, leaf in enumerate(capture.leaves):
        words = inputs.get(leaf.name, "all ones")
        seed = re.search(r"seed (\d+)", words)
        scale = re.search(r"scale ([\d.e+-]+)", words)
        draw = Draw(int(seed[1]) if seed else 1, float(scale[1]) if scale else 1.0, _style(words))
        values[leaf.name] = leaf_value(leaf, draw, spans.get(leaf.name, IndexRange()), index)
    return values


def _style(words: str) -> Any:
    if words in ("all ones", "all zeros"):
        return words.removeprefix("all ")
    if words.startswith("integers of both signs"):
        return "signs"
    if words.startswith("integers to the ends"):
        return "wide"
    if words.startswith(("integers", "in range")):
        return "integers"
    if " but the last" in words:
        return "sparse"
    if "one element" in words:
        return "infinite" if "one element infinite" in words else "undefined"
    if words.startswith("all as small"):
        return "zeros"
    return words.partition(",")[0] if words.startswith(("normal", "positive")) else "normal"


class NoOrigins:
    """Parameters are related by their names, then hold what they held when they were recorded."""

    def of(self, tensor: Any) -> frozenset[int]:  # noqa: ARG002
        """Nothing."""
        return frozenset()

    def bind(self, values: Mapping[int, Any]) -> None:
        """Nothing is bound before."""


class RealRun:
    """Takes the place of a recording: what would be written down is simply done.

    ``labelled``: what parameters held when they were recorded, for those that the program made of the specification's before these had their values.
    """

    def __init__(self, values: Mapping[str, Any], labelled: Mapping[str, Any]) -> None:
        self._values = values
        self._labelled = labelled
        self.phase = "prelude"
        self.outputs: dict[str, Any] = {}

    def leaf(self, name: str, shape: tuple[int, ...], dtype: Any, value: Any = None, device: Any = None) -> Any:  # noqa: ARG002 - the form of a recording's
        """The value of a leaf."""
        return self._values[name].to(dtype).clone()

    def stand_in(self, shape: Any, dtype: Any, device: str, value: Any, *, requires_grad: bool) -> Any:  # noqa: ARG002 - the form of a recording's
        """A tensor like one that another process has."""
        import torch

        from graphguard.trace.record.exchange import tensor_of

        made = torch.empty(shape, dtype=dtype) if value is None else tensor_of(value)
        return made.requires_grad_(requires_grad)

    def bind(self, tensor: Any, value: Any) -> None:
        """Put a value into a parameter; raises ``TracingError`` where it was cut since it was made."""
        import torch

        from graphguard.trace.source.errors import TracingError

        held = getattr(tensor, "_local_tensor", tensor)
        if held.shape != value.shape:
            shapes = f"{list(held.shape)} where a value of shape {list(value.shape)} belongs"
            raise TracingError("ambiguous-parameter", f"a parameter has shape {shapes}")
        with torch.no_grad():
            held.copy_(value)

    def read_since_birth(self, tensor: Any) -> None:
        """What was copied or moved while the program was built is not known: parameters get their values where they are."""

    def known(self, tensor: Any, largest: int = 0) -> Any:  # noqa: ARG002 - the form of a recording's
        """Every value is known."""
        return tensor.detach().clone()

    def is_written(self, tensor: Any) -> bool:  # noqa: ARG002 - the form of a recording's
        """Every value was written."""
        return True

    def gradient(self, name: str, gradient: Any) -> None:
        """What lies in parameters is noted for graphs."""

    def written_among(self, tensors: Any) -> list[bool]:
        """What a program leaves behind is told with the verdict."""
        return [False] * len(tensors)

    def memory_of(self, tensor: Any) -> Any:
        """The place at which a tensor begins."""
        return tensor.data_ptr()

    def number(self, name: str, number: Any) -> None:
        """A number that was read is a tensor without dims."""
        import torch

        self.outputs[name] = torch.tensor(number)

    def bind_before_reads(self, values: Iterable[tuple[Any, Any]]) -> None:
        """Nothing: see :meth:`read_since_birth`."""

    def origins(self, tensors: Any) -> NoOrigins:  # noqa: ARG002 - the form of a recording's
        """Nothing is known to be made of anything."""
        return NoOrigins()

    def label(self, tensor: Any, name: str) -> None:
        """Put what was recorded under this name where it belongs."""
        if name in self._labelled:
            self.bind(tensor, self._labelled[name])

    def same_memory(self, one: Any, other: Any) -> bool:
        """Whether two tensors begin at the same place."""
        return bool(one.data_ptr() == other.data_ptr())

    def assume(self, text: str) -> None:
        """What a verdict rests on is told with the verdict."""

    def made(self, owners: Any, name: str) -> tuple[()]:  # noqa: ARG002 - the form of a recording's
        """Where parameters are made is told by findings alone."""
        return ()

    def root(self, module: Any) -> None:
        """Module paths are for graphs."""

    def output(self, name: str, tensor: Any) -> None:
        """Keep a result as it is now."""
        self.outputs[name] = getattr(tensor, "_local_tensor", tensor).detach().clone()

    @contextlib.contextmanager
    def on_real_tensors(self) -> Iterator[None]:
        """They all are."""
        yield


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be run: the check, as it was recorded, with every leaf's value and what each rank's parameters held when they were recorded."""

    path: str
    check: str
    root: str
    capture: Capture
    values: Mapping[str, Any]
    labelled: Sequence[Mapping[str, Any]]


def _run_all(job: _Job) -> list[dict[str, Any]]:
    """The outputs of the specification, then of every rank, each rank in a process of its own."""
    from graphguard.trace.programs import ranks

    size = job.capture.world_size
    endings: dict[int, Ending] = {}
    finished: list[Child] = []
    family = Family()

    asking: list[Child] = []

    def hear(child: Child, message: dict[str, Any]) -> None:
        if "alone" in message:
            asking.append(child)
            if len(asking) == size:  # each of them is one program with what runs alone
                start(ALONE)
            return
        finished.append(child)  # nobody leaves before all have finished: others may still be talking to it
        if len(finished) == size:
            for one in finished:
                one.send({"leave": True})

    def note_end(rank: int, ending: Ending) -> None:
        if rank != ALONE:
            endings[rank] = ending
            return
        answer = (
            ending.answer if ending.kind == "answered" else pickle.dumps(f"on one rank: {ending.kind}{_at(ending)}")
        )
        for one in asking:
            one.send({"alone": answer})

    with tempfile.TemporaryDirectory() as folder:

        def start(rank: int) -> None:
            def run(link: Link) -> bytes:
                ranks.settle()
                if rank == ALONE:
                    return pickle.dumps(_run_alone(job, folder))
                outputs = _run_rank(job, rank, folder, lambda: pickle.loads(link.ask({"alone": rank})["alone"]))  # noqa: S301 - from our parent
                link.ask({"finished": rank})
                return pickle.dumps(outputs)

            limits = Limits(SECONDS, default_memory())
            family.start(
                run,
                limits,
                on_message=hear,
                on_output=lambda text: print(text, end=""),  # noqa: T201 - pytest shows it beside a failure
                on_end=lambda ending: note_end(rank, ending),
                leader=True,
            )

        for rank in range(size):
            start(rank)
        while len(endings) < size and all(ending.kind == "answered" for ending in endings.values()):
            family.step()
        family.stop_all()
    return _collected(endings)


def _collected(endings: Mapping[int, Ending]) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    for rank, ending in sorted(endings.items()):
        if ending.kind == "cancelled":
            continue
        if ending.kind != "answered":
            raise AssertionError(f"rank {rank} did not finish: {ending.kind}{_at(ending)}")
        answer = pickle.loads(ending.answer)  # noqa: S301 - from our own child, through a socket nobody else has
        if isinstance(answer, str):
            if answer.startswith(_UNBOUND):
                raise CannotRunHereError(f"rank {rank}: {answer}")
            if any(word in answer for word in _BEYOND_CPU):
                raise CannotRunHereError(f"rank {rank} needs a device that is not here ({answer})")
            raise AssertionError(f"rank {rank} failed: {answer}")  # noqa: TRY004 - the text of what was raised there
        answers += answer if rank == 0 else answer[1:]
    return answers


def _at(ending: Ending) -> str:
    return f" at {ending.stack[0][0]}" if ending.stack else ""


@dataclass(frozen=True, slots=True)
class _Alone:
    """What the program is on one rank, its outputs, and what it returned: told to the ranks."""

    outputs: dict[str, Any]
    original: Any
    returned: Any


def _run_alone(job: _Job, folder: str) -> _Alone | str:
    """The program of a check that has only one, on one rank; the error's text where it raised."""
    return _answered(lambda: _run_original(job, folder))


def _run_rank(
    job: _Job, rank: int, folder: str, ask: Callable[[], _Alone | str] | None = None
) -> list[dict[str, Any]] | str:
    """The outputs of the specification and of this rank, which meets the others in ``folder``; the error's text where the program raised.

    ``ask`` gets the specification where that is the program on one rank.
    """
    return _answered(lambda: _run_programs(job, rank, folder, ask))


def _answered(run: Callable[[], T]) -> T | str:
    from graphguard.trace.source.errors import TracingError

    try:
        return run()
    except TracingError as error:  # the same program was recorded: there parameters have their values from the start
        return f"{_UNBOUND}: {error}"
    except Exception as error:  # noqa: BLE001 - whatever user code raises is what the test reports
        import traceback

        traceback.print_exc()
        return f"{type(error).__name__}: {error}"


def _built(job: _Job, rank: int, axes: Mapping[str, int], folder: str) -> tuple[Any, Any]:
    """What the check gives on a rank of this mesh, whose processes meet in a folder; and the device mesh."""
    dist = importlib.import_module("torch.distributed")
    size = math.prod(axes.values())
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1"
    )
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(os.path.join(folder, f"rendezvous-{size}"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    device_mesh = dist.init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
    files = ProjectFiles({})
    found = find(Target(job.path, job.root), files, job.check, job.capture.mesh)
    return found.function(device_mesh), device_mesh


def _run_original(job: _Job, folder: str) -> _Alone:
    program = importlib.import_module("graphguard.trace.claims.program")
    placements = importlib.import_module("graphguard.trace.claims.placements")
    axes = job.capture.mesh
    built, _ = _built(job, 0, dict.fromkeys(axes, 1), folder)
    run, told = RealRun(job.values, {}), dict[str, Any]()
    program.record_specification(
        run,
        program.as_refinement(built),
        placements.Mesh.of_rank(axes, 0),
        lambda returned: told.__setitem__("returned", returned),
        lambda original: told.__setitem__("original", original),
    )
    return _Alone(run.outputs, told["original"], told["returned"])


def _run_programs(
    job: _Job, rank: int, folder: str, ask: Callable[[], _Alone | str] | None
) -> list[dict[str, Any]] | str:
    program = importlib.import_module("graphguard.trace.claims.program")
    placements = importlib.import_module("graphguard.trace.claims.placements")
    axes = job.capture.mesh
    built, device_mesh = _built(job, rank, axes, folder)
    refinement, mesh = program.as_refinement(built), placements.Mesh.of_rank(axes, rank)
    own = RealRun(job.values, job.labelled[rank])
    if isinstance(built, Same):
        assert ask is not None
        alone = ask()
        if isinstance(alone, str):
            return alone
        program.record_rank(own, refinement, mesh, device_mesh, lambda: alone.returned, lambda: alone.original)
        return [alone.outputs, own.outputs]
    specification = RealRun(job.values, {})
    told: list[Any] = []
    program.record_specification(specification, refinement, placements.Mesh.of_rank(axes, 0), told.append)
    program.record_rank(own, refinement, mesh, device_mesh, lambda: told[0])
    return [specification.outputs, own.outputs]


def _labelled(capture: Capture, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What every rank's parameters held when they were recorded; nothing where an operator has no meaning here."""
    from graphguard.confirm.run.elements import UnrunnableError

    try:
        replayed = _replayed(capture, values)[1:]
    except UnrunnableError:
        return [{} for _ in capture.ranks]
    return [{name: result[var] for var, name in graph.labels.items()} for graph, result in replayed]


def _replayed(capture: Capture, values: Mapping[str, Any]) -> list[tuple[Graph, Any]]:
    """The recorded programs, the specification first, with the value of every variable."""
    from graphguard.confirm.run.replay import run_ranks
    from graphguard.ir.joining import join

    assert capture.spec is not None
    results = [
        *run_ranks(join((capture.spec,)), (capture.spec,), values),
        *run_ranks(join(capture.ranks), capture.ranks, values, keep=[graph.labels for graph in capture.ranks]),
    ]
    return list(zip((capture.spec, *capture.ranks), results, strict=True))


def _compare(capture: Capture, outputs: list[dict[str, Any]]) -> None:
    from graphguard.confirm.trial import Trial

    assert capture.spec is not None
    graphs = (capture.spec, *capture.ranks)
    spec, *ranks = (
        {graph.outputs[name]: _wide(value) for name, value in held.items() if name in graph.outputs}
        for graph, held in zip(graphs, outputs, strict=True)
    )
    trial = Trial(capture, capture.promises, Fuel("comparing", math.inf))
    for promise in capture.promises:
        alternatives = trial.alternatives(promise, spec, ranks)
        differences = [_difference(alternative) for alternative in alternatives]
        if differences and all(differences):
            raise AssertionError(f"{promise.name}{differences[0]}")


def _wide(value: Any) -> Any:
    import torch

    if value.dtype == torch.bool:
        return value.long()
    return value.double() if value.is_floating_point() else value


def _difference(alternative: Any) -> str:
    """The first element that differs where the specification has a number, in words; empty where none does."""
    for one in alternative:
        owner = "" if one.rank is None else f" on rank {one.rank}"
        if not one.shaped:
            return f"{owner} has shape {list(one.found.shape)}, needed {list(one.expected.shape)}"
        counts = one.expected.isfinite()
        largest = max(float(one.expected[counts].abs().max()), 1.0) if bool(counts.any()) else 1.0
        close = (one.expected - one.found).abs() <= _TOLERANCE * largest  # which not-a-number never is
        apart = (counts & ~close).nonzero()
        if len(apart):
            index = tuple(apart[0].tolist())
            return f"[{', '.join(map(str, index))}]{owner} is {float(one.found[index]):.6g}, the specification's {float(one.expected[index]):.6g}"
    return ""
