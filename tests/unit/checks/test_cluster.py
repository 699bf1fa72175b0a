"""Checks on the workers of dask.distributed: real schedulers and workers on this machine, of which one is killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec

import pytest

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.project.discovery import discover
from graphguard.checks.running.cluster import ClusterError, cluster
from graphguard.checks.running.driver import Listener, Options, run_checks
from graphguard.cli import main
from graphguard.report.diagnostics import Verdict
from graphguard.report.json_document import document
from graphguard.report.sources import Sources
from tests.unit.commands.project import CHECKS, WRONG, write_project

pytestmark = pytest.mark.slow  # processes are started, and waited for
needs_dask = pytest.mark.skipif(
    find_spec("distributed") is None, reason="dask.distributed is not installed: pip install 'graphguard[dask]'"
)
HELD = f"""\
import pathlib, time
HERE = pathlib.Path(__file__).parent

def hold():
    with open(HERE / "held", "a") as mark:
        mark.write("held\\n")
    while not (HERE / "go").exists():
        time.sleep(0.05)

hold()
{CHECKS.replace('mesh={"tp": 2}', 'mesh=[{"tp": 2}, {"tp": 2, "dp": 1}]')}"""


class Noted(Listener):
    def __init__(self):
        self.names, self.lines, self.reports = [], [], []

    def started(self, unit):
        self.names.append(unit.check.id)

    def printed(self, line):
        self.lines.append(line)

    def finished(self, report):
        self.reports.append(report)


@pytest.fixture(scope="module")
def three():
    with cluster("", 3) as workers:
        yield workers


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHGUARD_CACHE_DIR", str(tmp_path / "cache"))
    write_project(tmp_path, WRONG)
    return tmp_path


def run(project, executor=None, names=("checks",), **options):
    configuration, noted = Configuration(project), Noted()
    found = discover([project / name for name in names], configuration)
    reports = run_checks(found, configuration, Options(**options), noted, executor=executor)
    assert reports == noted.reports
    return reports, noted


def told(project, reports):
    return document([replace(report, seconds={}) for report in reports], Sources(project))


def wait_for(condition):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


@needs_dask
def test_a_lost_worker_costs_a_retry(project, three):
    (project / "checks" / "a_held.py").write_text(HELD)
    client = three.client
    pids = client.run(os.getpid)

    def kill():
        wait_for((project / "checks" / "held").exists)
        # The two checks that wait are left, on two workers or one.
        busy = wait_for(lambda: [worker for worker, keys in client.processing().items() if keys])
        os.kill(pids[busy[0]], signal.SIGKILL)
        wait_for(lambda: busy[0] not in client.scheduler_info()["workers"])
        (project / "checks" / "go").write_text("")
        return busy[0]

    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(kill)
        reports, noted = run(project, three)
        assert killed.result() in pids
    verdicts = [(report.check.id, report.mesh, report.verdict) for report in reports]
    assert verdicts == [
        ("checks/a_held.py::right", {"tp": 2}, Verdict.REFINES),
        ("checks/a_held.py::right", {"tp": 2, "dp": 1}, Verdict.REFINES),
        ("checks/model.py::right", {"tp": 2}, Verdict.REFINES),
        ("checks/model.py::wrong", {"tp": 2}, Verdict.BROKEN),
    ]
    assert len(noted.names) > len(reports), "what ran on the lost worker began again on another"
    assert told(project, reports) == told(project, run(project, cache=False)[0])


@needs_dask
def test_what_workers_found_is_kept_here(project, three):
    first, _ = run(project, three)
    assert [report.cached for report in first] == [False, False]
    assert [report.cached for report in run(project)[0]] == [True, True]
    assert [report.cached for report in run(project, three)[0]] == [True, True]


@needs_dask
def test_what_programs_print_is_heard(project, three):
    (project / "checks" / "model.py").write_text(CHECKS + "print('hello')")
    _, noted = run(project, three, cache=False)
    wait_for(lambda: any("hello" in line for line in noted.lines))


@needs_dask
def test_a_check_that_ends_all_its_workers(project, three):
    (project / "checks" / "model.py").write_text(
        "import os, signal\n" + CHECKS + "\nos.kill(int(open('/proc/%d/stat' % os.getppid()).read().split()[3]), 9)\n"
    )
    (report,), _ = run(project, three, cache=False)
    assert report.verdict is None
    (found,) = report.diagnostics
    assert "every worker that ran this check was lost, the last of them tcp://127.0.0.1:" in found.message
    wait_for(lambda: len(three.client.scheduler_info()["workers"]) == 3)


OTHER = "import graphguard.checks.running.cluster as c; c.{0}"
OTHER_TORCH = OTHER.format("_release_of_torch = lambda python: '2.10.0'; c.installation.cache_clear()")
OTHER_TEXT = OTHER.format("text_digest = lambda text: 'other'; c.installation.cache_clear()")
OTHER_VERSION = "import importlib.metadata as m; m.version = lambda name: '0.0.9'"
NONE = "import importlib.metadata as m\ndef version(name): raise m.PackageNotFoundError(name)\nm.version = version"
AS_BEFORE = "import importlib, importlib.metadata as m, graphguard.checks.running.cluster as c; [importlib.reload(each) for each in (m, c)]"
NO_FILES = OTHER.format("digests = lambda files: dict.fromkeys(files, '')")
OLD_FILES = OTHER.format("digests = lambda files: dict.fromkeys(files, 'old')")


@needs_dask
@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (OTHER_TORCH, "has torch 2.10.0, this machine "),
        (OTHER_TEXT, r"has GraphGuard \S+ \(\w+\), this machine "),
        (OTHER_VERSION, r"has GraphGuard 0.0.9: pip install graphguard==\S+ there, as here"),
        (NONE, r"has no GraphGuard: pip install graphguard==\S+ there, as here"),
        (NO_FILES, "has no .*/checks/model.py: all machines must see the same files under the same paths"),
        (OLD_FILES, "has another text of .*/checks/model.py"),
    ],
    ids=["torch", "other-text", "other-version", "no-graphguard", "no-files", "old-files"],
)
def test_a_worker_that_differs_is_named(project, three, difference, sentence):
    try:
        three.client.run(exec, difference, {})
        with pytest.raises(ClusterError, match=rf"^worker tcp://127.0.0.1:\d+ {sentence}"):
            run(project, three, cache=False)
    finally:
        three.client.run(exec, AS_BEFORE, {})


def refused(address):
    with pytest.raises(ClusterError) as error, cluster(address, 0):
        pass
    return str(error.value)


@needs_dask
def test_an_address_where_nobody_answers():
    assert refused("tcp://127.0.0.1:1") == "there is no dask scheduler at tcp://127.0.0.1:1: Connection refused"
    assert refused("here") == "there is no dask scheduler at here: missing port number in address 'here'"


@needs_dask
def test_an_address_where_something_else_answers(three, monkeypatch):
    worker = next(iter(three.client.scheduler_info()["workers"]))
    assert refused(worker) == f"there is no dask scheduler at {worker}: it is a worker"
    monkeypatch.setattr("graphguard.checks.running.cluster.ANSWERS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        assert refused(address) == f"there is no dask scheduler at {address}: no answer within 1 s"


def test_dask_that_is_not_installed(project, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.chdir(project)
    assert main(["check", "--executor", "dask"]) == 2
    assert "pip install 'graphguard[dask]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--executor", "dusk"], "'dusk' is no executor: give dask or dask:ADDRESS"),
        (["--executor", "dask:"], "'dask:' is no executor: give dask or dask:ADDRESS"),
        (["--executor", "dask:tcp://10.0.0.5:8786", "-j", "2"], "-j is for this machine"),
    ],
)
def test_arguments_that_do_not_fit(project, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(project)
    try:
        status = main(["check", *arguments])
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert sentence in capsys.readouterr().err


@needs_dask
def test_an_interrupt_ends_the_users_code_on_the_workers(project, tmp_path):
    mark = tmp_path / "pid"
    (project / "checks" / "model.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(f'{{os.getpid()}} ')\ntime.sleep(200)\n{CHECKS}"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "graphguard", "check", "--executor", "dask", "-j", "1"],
        cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    wait_for(lambda: mark.exists() and mark.read_text().endswith(" "))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
    wait_for(lambda: not os.path.exists(f"/proc/{mark.read_text().strip()}"))
