"""Random programs on more ranks: some recorded and the others foretold, against all recorded; all ranks proved at once, against each by itself and against numbers."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.trust.world.generate import program
from benchmarks.trust.world.program import Program
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.confirm.check import confirm
from graphguard.ir import Capture, capture_from_json
from graphguard.ir.fuel import Fuel
from graphguard.refine.proving.at_once import by_digits
from graphguard.refine.proving.prove import prove
from graphguard.rules import parse_traits

#: Ranks along two axes, the second along which data is cut.
_MESHES: Final = ((6, 1), (8, 1), (9, 1), (4, 3), (3, 4))
_SLICE: Final = 50
_NEVER: Final = 10**9
_CHECK: Final = """

import functools

import graphguard as gg


@gg.check(mesh=MESH)
def check(mesh):
    return gg.Refinement(
        spec,
        functools.partial(impl, mesh) if len(MESH) > 1 else impl,
        tuple(gg.tensor(*shape, dtype=D) for shape in SHAPES),
        in_relations=tuple(relation or {} for relation in IN),
        out_relations=OUT,
        grads=False,
    )
"""


@dataclass(slots=True)
class Tally:
    """Programs by what was seen of them; and what must not be, each with the program."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """A report."""
        yield from self.wrong
        yield from (f"{count:6}  {text}" for text, count in sorted(self.counts.items()))
        yield f"{len(self.wrong)} wrong"


def run(programs: int, seed: int, jobs: int) -> Tally:
    """Try programs ``seed``, ``seed + 1``, ..."""
    slices = [range(at, min(at + _SLICE, seed + programs)) for at in range(seed, seed + programs, _SLICE)]
    total = Tally()
    with ProcessPoolExecutor(jobs) as pool:
        for done in pool.map(_tried, slices):
            total.counts += done.counts
            total.wrong += done.wrong
            print(f"{sum(total.counts.values())} seen, {len(total.wrong)} wrong", file=sys.stderr, flush=True)
    return total


def _tried(numbers: range) -> Tally:
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="graphguard-classes-") as place:
        folder = Path(place)
        with closing(WorkerClient(Configuration(folder, timeout=300.0), lambda _: None)) as worker:
            for number in numbers:
                one = program(number, _MESHES)
                for text, is_wrong in _seen(one, folder, worker):
                    tally.counts[text] += 1
                    if is_wrong:
                        tally.wrong.append(f"# {text}: {one.name}\n{one.text}")
    return tally


def _seen(one: Program, folder: Path, worker: WorkerClient) -> Iterator[tuple[str, bool]]:
    """What is seen of a program, and whether it must not be."""
    path = folder / f"{one.name}.py"
    path.write_text(one.text + _CHECK)
    some, every = (_captured(path, dict(one.mesh), worker, ranks) for ranks in (1, None))
    if some.troubles or every.troubles:
        same = bool(some.troubles) == bool(every.troubles)
        yield ("cannot be recorded", False) if same else ("recorded one way alone", True)
        return
    if _recorded(some) == _recorded(every):
        foretold = any("ranks recorded" in line for line in some.assumed)
        yield "foretold" if foretold else "all recorded", False
    elif _recorded(_captured(path, dict(one.mesh), worker, None)) != _recorded(every):
        yield "recorded otherwise each time", False  # a number of the process, or of the moment
    else:
        yield "foretold otherwise than recorded", True
    yield from _proved(every)


def _recorded(capture: Capture) -> tuple[object, ...]:
    return capture.spec, capture.ranks, capture.leaves, capture.promises


def _captured(path: Path, mesh: dict[str, int], worker: WorkerClient, ranks: int | None) -> Capture:
    asked: dict[str, Any] = {"file": str(path), "name": "check", "mesh": mesh, "root": str(path.parent), "ranks": ranks}
    return capture_from_json(
        worker.call("capture", {**asked, "overlay": {}, "cache": False, "timeout": 300.0})["capture"]
    )


def _proved(capture: Capture) -> Iterator[tuple[str, bool]]:
    at_once = by_digits(capture, parse_traits(capture.traits), Fuel("a proof by digits", 1e7), 0.0)
    if isinstance(at_once, str):
        yield "not proved at once", False
    elif prove(capture, digits_above=_NEVER).outcome.proved:
        yield "proved both ways", False
    else:
        differs = confirm(capture).status == "differs"
        yield "proved at once, and numbers differ" if differs else "proved at once alone", differs
