"""Checks recorded by processes that waited for them: what comes of it is what comes of a check whose process imports once and forks."""

import contextlib
import os
import signal
import textwrap
import time
from pathlib import Path

import pytest

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.trace.process.children import Family, wait_for_work
from graphguard.trace.process.limits import Limits
from graphguard.trace.programs import reserve, spares
from graphguard.trace.programs.importing import Target

pytestmark = pytest.mark.slow  # processes are started, and waited for

HEAD = """
import ctypes
import os
import sys
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
import graphguard as gg
from model import Model, WIDTH
"""

MODEL = """
import torch
from torch import nn

WIDTH = 4

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.linear(x))
"""


def check(body: str, mesh: str = "{'tp': 2}", before: str = "") -> str:
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return HEAD + textwrap.dedent(before) + f"\n@gg.check(mesh={mesh})\ndef check(mesh):\n{lines}\n"


SAME = "return gg.Refinement(Model(), Model(), (gg.tensor(2, 4),))"

PROGRAMS = {
    "two models": check(SAME),
    "a column and a row": check(
        """
        class Parallel(nn.Module):
            def __init__(self, group):
                super().__init__()
                self.group = group
                self.up = nn.Linear(4, 8 // mesh.size(), bias=False)
                self.down = nn.Linear(8 // mesh.size(), 4, bias=False)
            def forward(self, x):
                y = self.down(F.gelu(self.up(x)))
                dist.all_reduce(y, group=self.group)
                return y
        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = nn.Linear(4, 8, bias=False), nn.Linear(8, 4, bias=False)
            def forward(self, x):
                return self.down(F.gelu(self.up(x)))
        return gg.Refinement(Whole(), Parallel(mesh.get_group("tp")), (gg.tensor(2, 4),), grads=False)
        """
    ),
    "more ranks than waiting processes": check(SAME, "{'dp': 2, 'tp': 3}"),
    "one program": check(
        """
        model = nn.Linear(4, 8 // mesh.size())
        def impl(x):
            y = model(x)
            parts = [torch.empty_like(y) for _ in range(mesh.size())]
            dist.all_gather(parts, y)
            return torch.cat(parts, -1)
        return gg.Same(impl, (gg.tensor(2, 4),))
        """
    ),
    "one rank": check(SAME, "{'tp': 1}"),
    "a model and a table of the file, drawn at random": check(
        """
        def impl(x):
            return MODEL(x) * TABLE
        return gg.Refinement(lambda x: MODEL(x) * TABLE, impl, (gg.tensor(2, 4),))
        """,
        before="torch.manual_seed(7)\nMODEL = Model()\nTABLE = torch.randn(4)\n",
    ),
    "numbers that the ranks exchange": check(
        """
        def impl(x):
            rows = torch.tensor(dist.get_rank() + 1)
            dist.all_reduce(rows)
            return x[: rows.item() - 1]
        return gg.Refinement(lambda x: x, impl, (gg.tensor(2, 4),))
        """
    ),
    "numbers that more ranks exchange": check(
        """
        def impl(x):
            held = [None] * dist.get_world_size()
            dist.all_gather_object(held, {"rank": dist.get_rank()})
            return x * len(held)
        return gg.Refinement(lambda x: x * 4, impl, (gg.tensor(2, 4),))
        """,
        "{'tp': 4}",
    ),
    "CUDA": check("return gg.Refinement(Model().cuda(), Model().cuda(), (gg.tensor(2, 4, device='cuda'),))"),
    "a model and a table of the file, and more ranks": check(
        """
        def impl(x):
            return MODEL(x) * TABLE
        return gg.Refinement(lambda x: MODEL(x) * TABLE, impl, (gg.tensor(2, 4),))
        """,
        "{'tp': 5}",
        before="MODEL = Model()\nTABLE = torch.randn(4)\n",
    ),
    "the environment": check(
        SAME, before="SHAPE = os.environ.get('SPARES_SHAPE', '3')\nos.environ['SPARES_SET'] = SHAPE\n"
    ),
    "the rank, at import": check(SAME, before="RANK = os.environ.get('RANK')\n"),
    "a process group, at import": check(SAME, before="SIZE = dist.get_world_size()\n"),
    "a device, at import": check(
        SAME, before="if not torch.cuda.is_available():\n    raise RuntimeError('no accelerator')\n"
    ),
    "a file read when the check runs": check(
        "rows = len(open(os.path.join(os.path.dirname(__file__), 'rows.txt')).read())\n"
        "return gg.Refinement(Model(), Model(), (gg.tensor(rows, 4),))"
    ),
    "a file read at import": check(
        "return gg.Refinement(Model(), Model(), (gg.tensor(ROWS, 4),))",
        before="ROWS = len(open(os.path.join(os.path.dirname(__file__), 'rows.txt')).read())\n",
    ),
    "state of the module": check(
        """
        SEEN.append(dist.get_rank())
        return gg.Refinement(lambda x: x * len(SEEN), lambda x: x * len(SEEN) + SEEN[-1], (gg.tensor(2, 4),))
        """,
        before="SEEN = []\n",
    ),
    "state of an imported module": check(
        "torch.seen = getattr(torch, 'seen', 0) + 1\n"
        "return gg.Refinement(lambda x: x * torch.seen, lambda x: x * torch.seen, (gg.tensor(2, 4),))"
    ),
    "draws": check(
        """
        def program(x):
            return F.dropout(x, 0.5) + torch.rand(4)
        return gg.Refinement(program, program, (gg.tensor(2, 4),))
        """
    ),
    "an exception": check("raise ValueError('three heads')"),
    "an exception of a model": check("return gg.Refinement(Model(), lambda x: x.view(7), (gg.tensor(2, 4),))"),
    "no check": HEAD,
    "a syntax error": HEAD + "x = (1 +\n",
    "an import error": HEAD + "import no_such_module\n",
    "ranks that differ": check(
        """
        def impl(x):
            if dist.get_rank() == 0:
                dist.all_reduce(x)
            return x
        return gg.Refinement(lambda x: x, impl, (gg.tensor(2, 4),))
        """
    ),
    "an exit": check("os._exit(3)"),
    "an exit at import": check(SAME, before="os._exit(3)\n"),
    "an exit of one rank": check(f"if dist.get_rank() == 1:\n    sys.exit(3)\n{SAME}"),
    "a crash": check("ctypes.string_at(0)"),
    "a crash at import": check(SAME, before="ctypes.string_at(0)\n"),
    "too much memory": check("return bytearray(10**13)"),
    "too much memory, piece by piece": check("held = []\nwhile True:\n    held.append(bytearray(2**26))"),
    "forks without end": check("while True:\n    os.fork()"),
    "forks at import": check(SAME, before="if os.fork() == 0:\n    os._exit(0)\nos.wait()\n"),
    "a process of another program": check(
        SAME, before="import subprocess\nsubprocess.run(['true'])\n"
    ),
    "printing without end": check("while True:\n    print('x' * 10000)"),
    "printing at import": check(SAME, before="print('loud and clear')\n"),
    "chance at import": check(SAME, before="import random\nrandom.seed(3)\nWIDE = random.random()\n"),
    "a long import": check(SAME, before="for _ in range(3 * 10**7):\n    pass\n"),
}  # fmt: skip


class Workers:
    """A worker on which every check is the first, and one with processes that wait."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs: list[str] = []
        configuration = Configuration(root, timeout=20.0, memory=2**30)
        self.plain, self.quick = WorkerClient(configuration), WorkerClient(configuration, self.logs.append)
        self.number = 0
        self.known = ""
        root.joinpath("model.py").write_text(MODEL)
        root.joinpath("rows.txt").write_text("abc")

    def file(self, text: str) -> str:
        """A new file, which no worker has seen."""
        self.number += 1
        path = self.root / f"check_{self.number}.py"
        path.write_text(text)
        return str(path)

    def capture(self, client: WorkerClient, file: str, **params) -> dict:
        request = {"file": file, "root": str(self.root), "name": "check", "mesh": None, "cache": False, **params}
        answer = client.call("capture", request)
        del answer["summary"]["seconds"]
        return answer

    def prepare(self) -> int:
        """Have spare processes wait in the quick worker; gives the process that they were forked from."""
        if not self.waits():
            if not self.known:
                self.known = self.file(check(SAME))
                self.capture(self.quick, self.known)
            self.capture(self.quick, self.known)
        until = time.monotonic() + 60
        while not self.waits():
            assert time.monotonic() < until, "no process waits"
            time.sleep(0.05)
        return next(child for child in children(self.worker) if children(child))

    def waits(self) -> bool:
        return self.quick.call("ping", {})["spare"]

    @property
    def worker(self) -> int:
        return self.quick.call("hello", {})["pid"]


def children(process: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []


def gone(process: int) -> bool:
    for _ in range(500):
        try:
            if "Z" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]:
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    workers = Workers(tmp_path_factory.mktemp("project"))
    with workers.plain, workers.quick:
        yield workers


# What importing these does, or fails to do, must happen in one process.
REFUSED = frozenset(
    (
        "the rank, at import",
        "a process group, at import",
        "a device, at import",
        "a file read at import",
        "no check",
        "a syntax error",
        "an import error",
        "an exit at import",
        "a crash at import",
        "forks at import",
        "a process of another program",
        "printing at import",
        "chance at import",
        "a long import",
    )
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_comes_of_it(workers, name):
    text = PROGRAMS[name]
    file = workers.file(text)
    expected = workers.capture(workers.plain, file)
    coordinator = workers.prepare()
    spares = children(coordinator)
    workers.logs.clear()
    assert workers.capture(workers.quick, file) == expected
    assert all(map(gone, (coordinator, *spares))), "a waiting process is used once"
    assert "".join(workers.logs).count("loud and clear") == text.count("loud and clear")
    workers.prepare()
    assert workers.capture(workers.quick, file) == expected
    assert workers.waits() == (name in REFUSED)


def test_what_a_check_depends_on_is_the_same(tmp_path, monkeypatch):
    """Equal entries of the cache, which say when they hold."""
    root = tmp_path / "project"
    root.mkdir()
    workers = Workers(root)
    entries = []
    for client in (workers.plain, workers.quick):
        place = tmp_path / f"cache {len(entries)}"
        monkeypatch.setenv("GRAPHGUARD_CACHE_DIR", str(place))
        with client:
            for name in ("two models", "the environment", "a file read when the check runs", "draws"):
                if client is workers.quick:
                    workers.prepare()
                root.joinpath("subject.py").write_text(PROGRAMS[name])
                workers.capture(client, str(root / "subject.py"), cache=True)
        entries.append({file.name: file.read_bytes().splitlines()[0] for file in place.rglob("*.json")})
    assert len(entries[0]) == 4
    assert entries[0] == entries[1]


def test_waiting_processes_record_it(workers):
    """That what is compared here is not the usual way twice: the processes that record are those that waited."""
    spares = set(children(workers.prepare()))
    file = workers.file(
        check(
            """
            open(os.path.join(os.path.dirname(__file__), f"{mesh.get_rank()}.{getattr(os, 'get' + 'pid')()}.ran"), "w").close()
            return gg.Refinement(Model(), Model(), (gg.tensor(2, 4),))
            """
        )
    )
    assert not workers.capture(workers.quick, file)["summary"]["troubles"]
    assert {int(path.suffixes[0][1:]) for path in workers.root.glob("*.ran")} == spares


def test_an_edit_is_seen(workers):
    file = workers.file(check(SAME))
    for rows in (3, 5):
        workers.prepare()
        Path(file).write_text(check(SAME.replace("(2, 4)", f"({rows}, 4)")))
        assert workers.capture(workers.quick, file) == workers.capture(workers.plain, file)
    workers.prepare()
    overlay = {str(workers.root / "model.py"): MODEL.replace("tanh", "relu")}
    assert workers.capture(workers.quick, file, overlay=overlay) == workers.capture(
        workers.plain, file, overlay=overlay
    )


def test_a_hang_is_stopped_where_it_is(workers):
    file = workers.file(check("x = 1\nwhile True:\n    x += 1"))
    workers.prepare()
    began = time.monotonic()
    (trouble,) = workers.capture(workers.quick, file, timeout=3.0)["summary"]["troubles"]
    assert 3.0 <= time.monotonic() - began < 15
    assert "did not finish in 3 s" in trouble["message"]
    assert Path(file).read_text().splitlines()[trouble["span"]["line"] - 1] in ("    while True:", "        x += 1")


def test_two_checks_at_once(workers):
    files = [workers.file(PROGRAMS[name]) for name in ("two models", "draws", "one rank")]
    expected = [workers.capture(workers.plain, file) for file in files]
    workers.prepare()
    request = {"root": str(workers.root), "name": "check", "mesh": None, "cache": False}
    futures = [workers.quick.start_call("capture", {**request, "file": file}) for file in files]
    assert [future.result()["capture"] for future in futures] == [answer["capture"] for answer in expected]


@pytest.mark.parametrize("who", ["the coordinator", "one that waits"])
def test_a_check_does_without_those_that_are_gone(workers, who):
    coordinator = workers.prepare()
    victim = coordinator if who == "the coordinator" else children(coordinator)[0]
    os.kill(victim, signal.SIGKILL)
    assert gone(victim)
    file = workers.file(check(SAME))
    assert workers.capture(workers.quick, file) == workers.capture(workers.plain, file)


@pytest.mark.parametrize("how", ["killed", "its input ends"])
def test_they_end_with_the_worker(tmp_path, how):
    workers = Workers(tmp_path)
    with workers.quick:
        coordinator = workers.prepare()
        spares, worker = children(coordinator), workers.worker
        assert len(spares) == min(3, reserve.MOST, (os.cpu_count() or 2) + 1)
        if how == "killed":
            os.kill(worker, signal.SIGKILL)
        else:
            workers.quick.close()
        assert all(map(gone, (worker, coordinator, *spares)))


def test_one_check_alone_is_not_waited_for(tmp_path):
    workers = Workers(tmp_path)
    with workers.quick:
        for text in (check(SAME), check(SAME, "{'tp': 1}")):
            workers.capture(workers.quick, workers.file(text))
        time.sleep(3 * reserve.QUIET)
        assert not children(workers.worker)


class Waiting(reserve.Reserve):
    """A reserve whose child only waits."""

    def _live(self, link):
        return wait_for_work(link)


def held(reserved, seconds: float) -> bool:
    """Whether there is a child after so long."""
    family, until = reserved._family, time.monotonic() + seconds
    while time.monotonic() < until:
        patience = reserved.patience()
        family.step(0.02 if patience is None else min(patience, 0.02))
        reserved.tend()
    return reserved.ready


def test_they_go_when_nobody_asks(monkeypatch):
    monkeypatch.setattr(reserve, "QUIET", 0.05)
    monkeypatch.setattr(reserve, "KEPT", 1.0)
    family = Family()
    reserved = Waiting(family, lambda *_: None)
    for _ in range(2):
        reserved.note("file", "check", {"tp": 2})
    assert held(reserved, 0.6)
    assert len(family) == 0, "who waits is no check"
    assert not held(reserved, 0.8)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert not held(reserved, 0.2), "and come only after another check"
    family.stop_all()


def test_none_where_memory_is_short(monkeypatch):
    monkeypatch.setattr(reserve, "QUIET", 0.05)
    monkeypatch.setattr(reserve, "free_memory", lambda: reserve.LEAST_MEMORY - 1)
    reserved = Waiting(Family(), lambda *_: None)
    for _ in range(2):
        reserved.note("file", "check", {"tp": 2})
    assert not held(reserved, 0.3)


def test_a_file_that_is_refused_is_imported_once_for_a_while(monkeypatch):
    monkeypatch.setattr(reserve, "QUIET", 0.05)
    family = Family()
    reserved = Waiting(family, lambda *_: None)
    reserved.refuse("file")
    for _ in range(2):
        reserved.note("other", "check", {"tp": 2})
    assert held(reserved, 0.5)
    assert [reserved.take("file") for _ in range(reserve.PAUSE)] == [None] * reserve.PAUSE
    assert reserved.take("file") is not None
    family.stop_all()


def test_a_long_import_is_done_once(monkeypatch):
    monkeypatch.setattr(reserve, "QUIET", 0.05)
    reserved = Waiting(Family(), lambda *_: None)
    for seconds in (0.01, 2 * reserve.LONGEST):
        reserved.note_import("file", seconds)
        reserved.note("file", "check", {"tp": 2})
    assert not held(reserved, 0.3)
    reserved.note_import("file", 0.01)
    reserved.note("file", "check", {"tp": 2})
    assert held(reserved, 0.5)
    reserved.note_import("file", 2 * reserve.LONGEST)
    assert reserved.take("file") is None
    reserved._family.stop_all()


def test_bounds_hold_for_work_that_comes_late():
    family, answers = Family(), []

    def live(link):
        wait_for_work(link, forks=0)
        try:
            os.fork()
        except BlockingIOError as error:
            return str(error)

    child = family.start_idle(live, on_end=lambda _: None, leader=True)
    while not child.ready:
        family.step()
    assert (len(family), family.at_work) == (0, 0)
    family.begin(
        child,
        {},
        Limits(30.0),
        on_message=lambda *_: None,
        on_output=lambda _: None,
        on_end=lambda ending: answers.append(ending.answer),
    )
    while not answers:
        family.step()
    family.stop_all()
    assert "may start at most" in answers[0]


@pytest.mark.parametrize("stays", [True, False])
def test_a_process_that_has_answered_is_taken_apart_when_nobody_waits_for_others(stays):
    """Until its parent ends where it stays, or once its answer has been passed on."""

    def live(link):
        wait_for_work(link)
        return "done"

    family, answers = Family(), []
    child = family.start_idle(live, on_end=lambda _: None, stays=stays)
    while not child.ready:
        family.step()
    hear = {"on_message": lambda *_: None, "on_output": lambda _: None, "on_end": answers.append}
    family.begin(child, {}, Limits(30.0), **hear)
    while not answers:
        family.step()
    assert answers[0].answer == "done"
    assert (len(family), family.at_work) == (1, 0)
    until = time.monotonic() + (0.3 if stays else 30.0)
    while len(family) and time.monotonic() < until:
        family.step(0.05)
    assert len(family) == stays
    family.stop_all()
    assert len(family) == 0
    assert len(answers) == 1


def test_what_the_last_check_imported_is_compiled_before_the_next(tmp_path):
    workers = Workers(tmp_path)
    body = """
    open(os.path.join(os.path.dirname(__file__), f"{mesh.get_rank()}.compiled"), "w").write(repr(sorted(COMPILED)))
    return gg.Refinement(Model(), Model(), (gg.tensor(2, 4),))
    """
    before = "COMPILED = [os.path.basename(path) for path in __import__('graphguard.trace.source.sources').trace.source.sources._compiled]\n"
    with workers.quick:
        workers.prepare()
        file = workers.file(check(body, before=before))
        assert not workers.capture(workers.quick, file)["summary"]["troubles"]
    compiled = {path.read_text() for path in workers.root.glob("*.compiled")}
    assert compiled == {repr(sorted([os.path.basename(workers.known), "model.py"]))}


def test_what_was_edited_since_is_compiled_once_for_all_programs(tmp_path):
    workers = Workers(tmp_path)
    body = """
    known = {os.path.basename(path): text for path, (text, _) in COMPILED.items()}
    open(os.path.join(os.path.dirname(__file__), f"{mesh.get_rank()}.compiled"), "w").write(known["model.py"].decode())
    return gg.Refinement(Model(), Model(), (gg.tensor(2, 4),))
    """
    before = "COMPILED = dict(__import__('graphguard.trace.source.sources').trace.source.sources._compiled)\n"
    edited = MODEL.replace("WIDTH = 4", "WIDTH = 2 + 2")
    with workers.quick:
        workers.prepare()
        (workers.root / "model.py").write_text(edited)
        assert not workers.capture(workers.quick, workers.file(check(body, before=before)))["summary"]["troubles"]
    assert {path.read_text() for path in workers.root.glob("*.compiled")} == {edited}


def test_a_check_that_changes_while_its_file_is_read_is_not_recorded_by_spare_processes(tmp_path, monkeypatch):
    file = tmp_path / "check.py"
    (tmp_path / "model.py").write_text(MODEL)
    file.write_text(check(SAME))
    read = spares.reference

    def slow(target, name):
        found = read(target, name)
        file.write_text("\n" + check(SAME))
        return found

    monkeypatch.setattr(spares, "reference", slow)
    waiting = spares.Spares(3)
    try:
        order = spares.Order(Target(str(file), str(tmp_path)), "check", None, Limits(), time.monotonic())
        with pytest.raises(spares.UnlikeError, match="changed meanwhile"):
            waiting.begin(order)
    finally:
        waiting.family.stop_all()
