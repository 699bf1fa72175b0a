"""The tracing worker as a real process: what it answers, and what it survives."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient, WorkerError, worker_command
from graphguard.trace.process import wire
from tests.unit.checks.projects import CHECK, MODEL

BODY = 8  # the line on which the body of Project.check's function begins


def test_list(running):
    file = running.write("checks.py", CHECK)
    answer = running.client.call("list", {"file": file, "root": str(running.root)})
    (row,) = answer["checks"]
    assert (row["name"], row["meshes"]) == ("check", [{"tp": 2}, {"tp": 3}])
    assert (row["span"]["line"], row["span"]["column"]) == (6, 5)


def test_mesh_of_the_request(running):
    assert len(running.capture("checks.py", CHECK, mesh={"dp": 2, "tp": 2}).ranks) == 4
    assert len(running.capture("checks.py", CHECK).ranks) == 2


def test_a_file_knows_where_it_lies(running):
    """As for an import: people read what lies beside a file by ``__file__``."""
    (running.root / "width.txt").write_text("7")
    lines = CHECK.replace("(2, 4)", "(2, WIDTH)").splitlines(keepends=True)
    text = "".join(
        [
            *lines[:3],
            "from pathlib import Path\n",
            "WIDTH = int(Path(__file__).with_name('width.txt').read_text())\n",
            *lines[3:],
        ]
    )
    capture = running.capture(
        "beside.py", text.replace("Model()", "torch.tanh").replace("from model import Model", "import torch")
    )
    assert not capture.troubles
    assert next(leaf for leaf in capture.leaves if leaf.kind == "input").type.shape == (2, 7)


def test_unsaved_text_counts(running):
    file = running.write("checks.py", CHECK)
    model = str(running.root / "model.py")
    overlay = {file: CHECK.replace("gg.tensor(2, 4)", "gg.tensor(5, 4)"), model: MODEL.replace("tanh", "relu")}
    capture = running.capture("checks.py", CHECK, overlay=overlay)
    assert next(leaf for leaf in capture.leaves if leaf.name == "x").type.shape == (5, 4)
    assert "aten.relu.default" in {node.op for node in capture.spec.nodes}
    assert set(capture.sources) == {file, model}


def test_printing_goes_to_the_log(running):
    running.logs.clear()
    capture = running.check('print("loud and clear")\nreturn gg.Refinement(Model(), Model(), (gg.tensor(2, 4),))')
    assert not capture.troubles
    assert "loud and clear" in "".join(running.logs)


BAD = {
    "raises": ("raise ValueError('three heads')", "ValueError: three heads", 0),
    "a model that raises": (
        "class Bad(Model):\n    def forward(self, x):\n        return x.view(7)\nreturn gg.Refinement(Model(), Bad(), (gg.tensor(2, 4),))",
        "while running rank 0 of the implementation",
        2,
    ),
    "calls sys.exit": ("sys.exit(3)", "the check called sys.exit(3)", 0),
    "calls os._exit": ("os._exit(3)", "ended by itself (exit status 3)", None),
    "crashes": ("import ctypes\nctypes.string_at(0)", "crashed (SIGSEGV)", None),
    "kills itself": ("os.kill(os.getpid(), 9)", "was killed (SIGKILL)", None),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt", 0),
    "exhausts memory": ("return bytearray(10**13)", "ran out of memory", 0),
    "forks without end": ("while True:\n    os.fork()", "may start at most", 1),
    "prints without end": ('while True:\n    print("x" * 10000)', "printed more than", None),
    "returns nothing": (
        "pass",
        "returns gg.Refinement(spec, impl, inputs) or gg.Same(program, inputs); this one returned None",
        None,
    ),
    "has one model": ("m = Model()\nreturn gg.Refinement(m, m, (gg.tensor(2, 4),))", "same object", None),
    "declares no inputs": ("return gg.Refinement(Model(), Model(), ())", "declares no inputs", None),
    "declares too many inputs": (
        "return gg.Refinement(Model(), Model(), (gg.tensor(2, 4),) * 3)",
        "takes 2 positional arguments but 4 were given",
        None,
    ),
    "specifies with collectives": (
        "def spec(x):\n    dist.all_reduce(x)\n    return x\nreturn gg.Refinement(spec, lambda x: x, (gg.tensor(2, 4),))",
        "the specification calls all_reduce",
        1,
    ),
}


@pytest.mark.parametrize(("body", "message", "line"), BAD.values(), ids=BAD)
def test_bad_checks(project, body, message, line):
    (trouble, *_) = project.check(body).troubles
    assert message in trouble.message
    assert Path(trouble.span.file).name == "bad.py"
    if line is not None:
        assert trouble.span.line == BODY + line


def test_a_hang_is_stopped_where_it_is(project):
    began = time.monotonic()
    (trouble,) = project.check("x = 1\nwhile True:\n    time.sleep(0.01)", timeout=3.0).troubles
    assert time.monotonic() - began < 15
    assert "did not finish in 3 s" in trouble.message
    assert trouble.span.line in (BODY + 1, BODY + 2)


def test_a_hanging_import(project):
    (trouble,) = project.capture("slow.py", "import time\nimport graphguard\n\ntime.sleep(100)\n", timeout=2.0).troubles
    assert "while importing slow.py" in trouble.message
    assert trouble.span.line == 4


def test_syntax_error(project):
    (trouble,) = project.capture("syntax.py", "import graphguard as gg\nx = (1 +\n").troubles
    assert (trouble.span.line, trouble.span.column) == (2, 5)
    assert "SyntaxError: '(' was never closed" in trouble.message


def test_syntax_error_in_an_imported_file(project):
    broken = project.write("broken.py", "def f(:\n")
    (trouble,) = project.capture("uses_broken.py", "import graphguard\nimport broken\n").troubles
    assert (trouble.span.file, trouble.span.line) == (broken, 1)


def test_import_error(project):
    (trouble,) = project.capture("imports.py", "import graphguard as gg\nimport no_such_module\n").troubles
    assert trouble.span.line == 2
    assert "No module named 'no_such_module'" in trouble.message


NO_DEVICE = """
import torch
if not torch.cuda.is_available():
    raise NotImplementedError("no accelerator")
"""


def test_an_import_that_fails_without_a_device(project):
    """Every rank imports the file in a world that has one."""
    project.write("accelerated.py", NO_DEVICE)
    capture = project.capture("checks.py", "import accelerated\n" + CHECK)
    assert not capture.troubles
    assert len(capture.ranks) == 2


def test_an_import_that_fails_whether_there_is_a_device_or_not(project):
    project.write("accelerated.py", NO_DEVICE + "raise ValueError('never')\n")
    (trouble, *_) = project.capture("checks.py", "import accelerated\n" + CHECK).troubles
    assert trouble.message.startswith("ValueError: never")
    assert trouble.span.file.endswith("accelerated.py")


def test_no_such_check(project):
    (trouble,) = project.capture("checks.py", CHECK, name="absent").troubles
    assert "checks.py has no check named 'absent'; it has check" in trouble.message


def test_orphans_end_with_their_check(project):
    project.write("sleeper.py", "import os, sys, time\nopen(sys.argv[1], 'w').close()\ntime.sleep(60)\n")
    project.check(
        """
        import subprocess
        # The function runs once for the specification and once a rank, so each run waits for its own process.
        started = f"{os.path.dirname(__file__)}/{os.getpid()}.started"
        orphan = subprocess.Popen([sys.executable, "-S", "sleeper.py", started], start_new_session=True)
        while not os.path.exists(started):
            time.sleep(0.01)
        os.rename(started, f"{os.path.dirname(__file__)}/{orphan.pid}.ran")
        """
    )
    assert all(map(_gone, _those_that_ran(project)))


def test_a_thread_without_end_ends_with_its_check(project):
    capture = project.check(
        """
        import threading
        ran = threading.Event()
        def run():
            open(f"{os.path.dirname(__file__)}/{os.getpid()}.ran", "w").close()
            ran.set()
            while True:
                time.sleep(0.01)
        threading.Thread(target=run).start()
        ran.wait()
        return gg.Refinement(Model(), Model(), (gg.tensor(2, 4),))
        """
    )
    assert not capture.troubles
    assert all(map(_gone, _those_that_ran(project)))


def _those_that_ran(project) -> list[int]:
    """The processes that left a file of their number."""
    processes = [int(file.stem) for file in project.root.glob("*.ran")]
    assert processes
    return processes


def test_a_thread_that_raises_does_not_end_its_check(project):
    capture = project.check(
        """
        import threading
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        return gg.Refinement(Model(), Model(), (gg.tensor(2, 4),))
        """
    )
    assert not capture.troubles
    assert "ZeroDivisionError" in "".join(project.logs)


def test_collective_mismatch(project):
    (trouble,) = project.check(
        """
        def impl(x):
            if dist.get_rank() == 0:
                dist.all_reduce(x)
            return x
        return gg.Refinement(lambda x: x, impl, (gg.tensor(2, 4),))
        """
    ).troubles
    assert trouble.rule == "collective-mismatch"
    assert trouble.span.line == BODY + 2


def test_concurrent_calls(running):
    file = running.write("checks.py", CHECK)
    params = {"file": file, "root": str(running.root), "name": "check", "mesh": None, "cache": False}
    futures = [running.client.start_call("capture", params) for _ in range(5)]
    assert all(not future.result()["summary"]["troubles"] for future in futures)


def test_unknown_method_and_parameters(running):
    with pytest.raises(WorkerError, match="no method 'dance'"):
        running.client.call("dance", {})
    with pytest.raises(WorkerError, match="capture: KeyError"):
        running.client.call("capture", {})


def _frames(process):
    while (message := wire.read(process.stdout)) is not None:
        yield message


@pytest.fixture
def bare():
    argv, environment = worker_command(())
    process = subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        yield process
        process.kill()


def _hanging(tmp_path):
    file = tmp_path / "hangs.py"
    file.write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)\n")
    return {"file": str(file), "root": str(tmp_path), "name": "check", "mesh": None, "cache": False}


def _wait_for(path):
    for _ in range(1000):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


def _gone(pid):
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if "Z" in state:
            return True
        time.sleep(0.02)
    return False


def test_cancel(bare, tmp_path):
    wire.write(bare.stdin, {"id": 1, "method": "capture", "params": _hanging(tmp_path)})
    pid = _wait_for(tmp_path / "pid")
    wire.write(bare.stdin, {"id": 2, "method": "ping", "params": {}})
    wire.write(bare.stdin, {"method": "cancel", "params": {"id": 1}})
    answers = {}
    for message in _frames(bare):
        if "id" in message:
            answers[message["id"]] = message
        if len(answers) == 2:
            break
    assert answers[2]["result"] == {"running": 1, "waiting": 0, "spare": False}, "it answers while a child runs"
    assert answers[1]["error"]["code"] == "cancelled"
    assert _gone(pid)


@pytest.mark.parametrize("how", ["input ends", "killed"])
def test_children_die_with_the_worker(bare, tmp_path, how):
    wire.write(bare.stdin, {"id": 1, "method": "capture", "params": _hanging(tmp_path)})
    pid = _wait_for(tmp_path / "pid")
    if how == "killed":
        bare.send_signal(signal.SIGKILL)
    else:
        bare.stdin.close()
    bare.wait(10)
    assert _gone(pid)


def test_interpreter_that_cannot_be_started(tmp_path):
    configuration = Configuration(tmp_path, python=("/no/such/python",))
    with WorkerClient(configuration) as client, pytest.raises(WorkerError, match="/no/such/python"):
        client.call("hello", {})


def test_interpreter_that_is_something_else(tmp_path):
    configuration = Configuration(tmp_path, python=(sys.executable, "-c", "print('hello world, not a frame')"))
    with WorkerClient(configuration) as client, pytest.raises(WorkerError, match="the tracing worker ended"):
        client.call("hello", {})


def test_interpreter_without_torch(tmp_path):
    """A bare environment: the worker needs nothing installed, and says that torch is missing."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (tmp_path / "check.py").write_text(CHECK)
    with WorkerClient(Configuration(tmp_path, python=(str(tmp_path / "env/bin/python"),))) as client:
        assert client.call("hello", {})["torch"] is None
        with pytest.raises(WorkerError, match="torch is not installed"):
            client.call("list", {"file": str(tmp_path / "check.py"), "root": str(tmp_path)})


def test_close_releases_callers(tmp_path):
    client = WorkerClient(Configuration(tmp_path))
    future = client.start_call("list", _hanging(tmp_path))
    _wait_for(tmp_path / "pid")
    threading.Timer(0.1, client.close).start()
    with pytest.raises(WorkerError, match="closed"):
        future.result(10)


def test_frames_survive_any_cut():
    message = {"id": 1, "result": {"data": b"\x00\x01" * 50, "text": "é"}}
    data = wire.encode(message) * 3
    decoder = wire.Decoder()
    heard = [one for index in range(0, len(data), 7) for one in decoder.feed(data[index : index + 7])]
    assert heard == [message] * 3
    with pytest.raises(wire.WireError):
        wire.encode({"a": b"1", "b": b"2"})
    with pytest.raises(wire.WireError):
        wire.Decoder().feed(b"hello world, this is not a frame")


HEADS = """
import torch.distributed as dist
from torch import nn
import graphguard as gg

class Attention(nn.Module):
    def __init__(self, dim, n_heads, group=None):
        super().__init__()
        self.n_heads = n_heads
        self.local_heads = n_heads // (1 if group is None else dist.get_world_size(group))
        self.q = nn.Linear(dim, self.local_heads * (dim // n_heads), bias=False)

    def forward(self, x):
        return self.q(x).unflatten(-1, (self.local_heads, -1))

@gg.check(mesh={"tp": 4})
def check(mesh):
    return gg.Refinement(Attention(48, 3), Attention(48, 3, mesh.get_group("tp")), (gg.tensor(2, 5, 48),))

@gg.check(mesh={"tp": 4})
def asserts(mesh):
    n_heads = 3
    assert n_heads % mesh.size() == 0
"""


RAISED = """
import torch
from torch import nn
import graphguard as gg

class Block(nn.Module):
    def __init__(self, hidden_size, fail):
        super().__init__()
        self.hidden_size, self.fail = hidden_size, fail

    def forward(self, x):
        if self.fail == "activation":
            raise ValueError("unknown activation 'gleu'")
        if self.fail == "dtype":
            return torch.linalg.inv(x.half())
        if self.fail == "division" and self.hidden_size % 4:
            raise ValueError("this model cannot be run here")
        if self.fail == "words":
            raise ValueError("a head more than the ranks have is not divisible among them")
        return x.view(4, self.hidden_size // 4) if self.fail == "shape" else x

@gg.check(mesh={"tp": 4})
def check(mesh):
    return gg.Refinement(Block(6, ""), Block(6, "FAIL"), (gg.tensor(5, 5),))
"""


@pytest.mark.parametrize(
    ("fail", "noted"),
    [("activation", False), ("dtype", False), ("division", True), ("words", True), ("shape", True)],
)
def test_a_size_that_the_mesh_does_not_divide_is_told_where_the_error_is_about_it(project, fail, noted):
    (trouble,) = project.capture("raised.py", RAISED.replace("FAIL", fail)).troubles
    assert ("hidden_size = 6 is not divisible by tp=4" in trouble.message) == noted


def test_a_mesh_larger_than_the_dimensions_allow(project):
    (trouble,) = project.capture("heads.py", HEADS).troubles
    assert "'q.weight'" in trouble.message
    assert "Attention.n_heads = 3 is not divisible by tp=4" in trouble.message
    assert Path(trouble.span.file).name == "heads.py"
    (trouble,) = project.capture("heads.py", HEADS, name="asserts").troubles
    assert trouble.message.startswith("AssertionError: assert n_heads % mesh.size() == 0")
    assert "n_heads = 3 is not divisible by tp=4" in trouble.message
