"""The same capture has the same verdict on every machine: no clock decides."""

import itertools
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from graphguard.checks.proving.prover import Prover
from graphguard.confirm.check import confirm
from graphguard.ir import Capture, CheckRef, Placement, Promise, Span, capture_to_json
from graphguard.ir.building import Builder
from graphguard.ir.capture import Leaf
from graphguard.ir.graph import Graph, TensorType
from graphguard.ir.plain import to_plain
from graphguard.refine.proving.prove import prove

ROOT = Path(__file__).parents[2] / "graphguard"
DECIDING = ("ir", "ops", "relations", "rules", "refine", "confirm", "repair")
CLOCKS = re.compile(r"^\s*(?:import|from)\s+(?:time|timeit|datetime|signal|sched)\b", re.MULTILINE)
# What a process may take before it is ended as one that hangs, and what a report says that it took: neither decides anything else.
ASKED = {
    "checks/running/cluster.py": "no clock: which processes hear an interrupt",
    "checks/proving/prover.py": "how long a proof took, for the report",
    "checks/judging/bounded.py": "whether a recording was one that hangs, of which few are waited for",
    "checks/judging/timed.py": "where the time went, for the report",
    "checks/running/verify.py": "when a recording began, which ends where it hangs",
}


def asks_a_clock(path: Path) -> bool:
    return CLOCKS.search(path.read_text(encoding="utf-8")) is not None


@pytest.mark.parametrize("folder", DECIDING)
def test_what_decides_asks_no_clock(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    assert [str(path) for path in files if asks_a_clock(path)] == []


def test_checks_ask_a_clock_where_something_hangs_only() -> None:
    asking = {path.relative_to(ROOT).as_posix() for path in (ROOT / "checks").rglob("*.py") if asks_a_clock(path)}
    assert asking == set(ASKED)


F32 = "float32"


def linear(factor: float | None, reduced: bool, columns: int = 4) -> Graph:
    """A product of a rank's columns and rows, reduced or not; of all of them where the rank is None."""
    b = Builder()
    x, w = b.input("x", (3, columns)), b.input("w", (columns, 5))
    h = b.call("aten.relu.default", x, out=((3, columns), F32))
    y = b.call("aten.mm.default", h, w, out=((3, 5), F32))
    if factor is not None:
        y = b.call("aten.mul.Scalar", y, factor, out=((3, 5), F32))
    if reduced:
        y = b.call("gg.all_reduce", y, "sum", (0, 1), out=((3, 5), F32))
    b.outputs["out"] = y
    return b.graph()


def captured(*ranks: Graph) -> Capture:
    leaves = (Leaf("x", "input", TensorType((3, 4), F32)), Leaf("w", "parameter", TensorType((4, 5), F32)))
    promise = Promise("out", {"tp": Placement("replicate")})
    return Capture(CheckRef("c.py::c", "c", Span("c.py", 1)), {"tp": 2}, leaves, linear(None, False), ranks, (promise,))


CASES = {
    "refines": captured(linear(0.5, True), linear(0.5, True)),
    "twice too much": captured(linear(None, True), linear(None, True)),
    "a half": captured(linear(0.5, False), linear(0.5, False)),
}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that run ten times as fast, as they do on a machine that is a tenth as fast; whoever asks one again is a minute older."""
    asked = itertools.count(1)
    for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time"):
        own = getattr(time, name)
        monkeypatch.setattr(time, name, lambda own=own: 10 * own() + 60 * next(asked))


def told(capture: Capture, steps: float) -> object:
    """All that is said of a capture: the outcome, numbers, findings and relations; what is left of the proof where it may take a few steps only."""
    prover, data = Prover(), capture_to_json(capture)
    answer = prover.prove(data)
    finished = prover.finish(answer["proof"])
    numbers = to_plain(replace(confirm(capture), seconds=0.0))
    findings = prover.diagnose(answer["proof"], numbers, {})
    short, few = prove(capture, steps=steps).outcome, confirm(capture, steps=steps)
    return answer["outcome"], finished["outcome"], numbers, findings, prover.relations(answer["proof"]), short, few


@pytest.mark.parametrize("steps", [3, 20, 100])
@pytest.mark.parametrize("name", CASES)
def test_a_machine_that_is_a_tenth_as_fast_says_the_same(
    name: str, steps: float, request: pytest.FixtureRequest
) -> None:
    before = told(CASES[name], steps)
    request.getfixturevalue("fast")
    assert told(CASES[name], steps) == before
