"""The prover as a process: what it answers while it works, and what it gives up."""

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphguard.checks.proving import prover as module
from graphguard.checks.proving.prover import Prover
from graphguard.checks.running.worker_client import ProverClient, WorkerError
from graphguard.ir import Capture, CheckRef, Leaf, Promise, Span, Var, capture_to_json
from graphguard.relations.interruption import INTERRUPTION, InterruptedProofError
from graphguard.trace.process import wire
from tests.graph_text import graph_from_text

EMPTY = capture_to_json(Capture(CheckRef("c.py::a", "a", Span("c.py", 1)), {"tp": 2}, (), None, (), (), ()))


@pytest.fixture(autouse=True)
def uninterrupted() -> Iterator[None]:
    yield
    INTERRUPTION.wanted = False


ROWS = """input %0: float64[5, 2] = "x"
%1: float64[{rows}, 2] = aten.slice.Tensor(%0, 0, {first}, {last}) prelude
%2: float64[{rows}, 2] = aten.neg.default(%1) forward
output "out" = %2"""


@pytest.mark.parametrize(("cuts", "uneven"), [((0, 2, 4), False), ((0, 3, 5), True)])
def test_parts_of_several_sizes_are_seen(cuts: tuple[int, int, int], uneven: bool) -> None:
    texts = [ROWS.format(rows=last - first, first=first, last=last) for first, last in itertools.pairwise(cuts)]
    spec = graph_from_text(
        'input %0: float64[5, 2] = "x"\n%1: float64[5, 2] = aten.neg.default(%0) forward\noutput "out" = %1'
    )
    leaves = (Leaf("x", "input", spec.types[Var(0)]),)
    check = CheckRef("c.py::a", "a", Span("c.py", 1))
    capture = Capture(check, {"tp": 2}, leaves, spec, tuple(map(graph_from_text, texts)), (Promise("out", {}),))
    prover = Prover()
    assert prover.uneven(prover.prove(capture_to_json(capture))["proof"]) == uneven


class Pipe:
    """A prover's service in this process, with an engine that works until it is interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = threading.Event()
        self.proofs = 0
        monkeypatch.setattr(module, "prove", self.prove)
        self.child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.back = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.child.stdout
        assert self.back.stdin
        service = module.Service(Prover(), self.child.stdout, self.back.stdin)
        threading.Thread(target=service.serve, daemon=True).start()

    def prove(self, capture: Capture, memo: object, **ways: bool) -> object:
        self.proofs += 1
        self.began.set()
        end = time.monotonic() + 20
        while not INTERRUPTION.wanted and time.monotonic() < end:
            time.sleep(0.01)
        return None

    def send(self, **message: object) -> None:
        assert self.child.stdin
        wire.write(self.child.stdin, message)

    def receive(self) -> dict:
        assert self.back.stdout
        message = wire.read(self.back.stdout)
        assert message is not None
        return message


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    made = Pipe(monkeypatch)
    yield made
    for process in (made.child, made.back):
        process.kill()
        process.communicate()


def test_a_cancelled_proof_ends_at_once_and_leaves_nothing_behind(pipe: Pipe) -> None:
    pipe.send(id=1, method="prove", params={"capture": EMPTY})
    assert pipe.began.wait(10)
    pipe.send(id=2, method="ping", params={})
    assert pipe.receive() == {"id": 2, "result": "pong"}
    pipe.send(method="cancel", params={"id": 1})
    assert pipe.receive()["error"]["code"] == "cancelled"
    pipe.began.clear()
    pipe.send(id=3, method="prove", params={"capture": EMPTY})
    assert pipe.began.wait(10), "the interrupted proof was not kept"
    pipe.send(method="cancel", params={"id": 3})
    assert pipe.receive()["id"] == 3


def test_what_waits_may_be_cancelled_too(pipe: Pipe) -> None:
    pipe.send(id=1, method="prove", params={"capture": EMPTY})
    assert pipe.began.wait(10)
    pipe.send(id=2, method="prove", params={"capture": EMPTY})
    pipe.send(method="cancel", params={"id": 2})
    pipe.send(method="cancel", params={"id": 1})
    answers = [pipe.receive(), pipe.receive()]
    assert [(each["id"], each["error"]["code"]) for each in answers] == [(1, "cancelled"), (2, "cancelled")]
    assert pipe.proofs == 1


def test_a_proof_that_is_not_interrupted_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    prover = Prover()
    first = prover.prove(EMPTY)
    monkeypatch.setattr(module, "prove", lambda *_: pytest.fail("it is known"))
    assert prover.prove(EMPTY)["proof"] == first["proof"]


def test_an_interrupted_engine_stops_within_its_steps() -> None:
    from graphguard.relations.terms.kernels import Exhausted, Universe

    universe = Universe()
    INTERRUPTION.wanted = True
    universe.steps = 127
    with pytest.raises(Exhausted):
        universe.step()
    with pytest.raises(InterruptedProofError):
        INTERRUPTION.check()


def test_the_process_ends_with_its_input() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "graphguard.checks.proving.prover"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    wire.write(process.stdin, {"id": 1, "method": "prove", "params": {"capture": EMPTY}})
    wire.write(process.stdin, {"id": 2, "method": "nonsense", "params": {}})
    process.stdin.close()
    assert wire.read(process.stdout)["id"] == 1
    assert wire.read(process.stdout)["error"]["code"] == "KeyError"
    process.stdout.close()
    assert process.wait(10) == 0


@pytest.mark.parametrize("last", ["ping", "half a frame"])
def test_a_prover_whose_answers_nobody_hears_ends(last):
    child = subprocess.Popen(
        [sys.executable, "-m", "graphguard.checks.proving.prover"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin
    assert child.stdout
    wire.write(child.stdin, {"id": 1, "method": "ping"})
    assert wire.read(child.stdout) == {"id": 1, "result": "pong"}
    child.stdout.close()
    if last == "ping":
        wire.write(child.stdin, {"id": 2, "method": "ping"})
        child.wait(60)
        child.stdin.close()
    else:
        child.stdin.write(b"\0\0\0")
        child.stdin.close()
        child.wait(60)


def test_a_prover_of_its_own_takes_nothing_from_the_folder_it_runs_in(tmp_path, monkeypatch):
    """A project may have modules of any names."""
    for name in ("queue", "graphguard", "json"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(tmp_path)
    with ProverClient(cache=False) as client:
        client.prepare()
        assert client.call("ping", {}) == "pong"
        with pytest.raises(WorkerError, match=r"a defect of GraphGuard stopped this check: KeyError\nplease report it"):
            client.call("relations", {"proof": "none"})


KEEPING = """
import gc, io
from graphguard.checks.proving.prover import Service
from graphguard.trace.process import wire
from tests.graph_text import graph_from_text

MANY = 300_000

class Keeping:
    # In place of a prover: it keeps what a proof of a large program does, until it is told to forget it.
    kept = []

    def call(self, method, _):
        self.kept = [[] for _ in range(MANY)] if method == "prove" else []

def served(*methods):
    requests = io.BytesIO()
    for number, method in enumerate(methods):
        wire.write(requests, {"id": number, "method": method})
    requests.seek(0)
    Service(prover, requests, io.BytesIO()).serve()
    return gc.get_freeze_count()

prover = Keeping()
assert served("prove", "ping") >= MANY
assert served("prove", "ping", "clear") == 0
print("kept, and taken back")
"""


def test_what_an_answer_leaves_behind_is_not_looked_through_before_the_next() -> None:
    """In a process of its own: in this one it would take back what was set aside for other tests."""
    done = subprocess.run([sys.executable, "-c", KEEPING], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "kept, and taken back\n"


ANSWERING = """
import gc, sys
sys.path.insert(0, sys.argv[1])
from graphguard.checks.proving.prover import Prover
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import capture_to_json
from graphguard.ir.plain import to_plain
from tests.unit.refine.stacks import instead, stack

data = capture_to_json(stack(3, spoil={1: instead("aten.clone.default", None)}))
prover = Prover()

def ask():
    answer = prover.prove(data, effort="hasty")
    failing = tuple(one["name"] for one in answer["outcome"]["promises"] if not one["holds"])
    assert prover.diagnose(answer["proof"], to_plain(Confirmation("differs", differing=failing)), {})
    prover.candidates(answer["proof"], 0, {})
    prover.picture(answer["proof"])
    prover.clear()

ask()
gc.collect()
gc.disable()
ask()
print(gc.collect())
"""


def test_an_answer_is_gone_when_nobody_asks_about_it_any_more() -> None:
    """Without a cycle in it, as a proof is: the collector never sees what was set aside."""
    command = [sys.executable, "-c", ANSWERING, str(Path(__file__).parents[3])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "0\n"
