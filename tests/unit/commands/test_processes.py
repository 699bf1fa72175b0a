"""The command line as a process: interrupts, readers that go away, watching."""

import os
import signal
import subprocess
import sys
import time

import pytest

from .project import CHECKS, WRONG, write_project

pytestmark = pytest.mark.slow  # processes are started, and waited for

COMMAND = [sys.executable, "-m", "graphguard"]


@pytest.fixture
def project(tmp_path):
    write_project(tmp_path)
    return tmp_path


def start(folder, *arguments):
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )


def heed_interrupts():
    """A shell starts what runs in the background, and so these tests, deaf to interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen")


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_an_interrupt_ends_the_run_and_the_users_code(project, jobs):
    mark = project / "running"
    (project / "checks" / "model.py").write_text(
        f"import pathlib, time\npathlib.Path({str(mark)!r}).write_text('')\ntime.sleep(60)\n{CHECKS}"
    )
    process = start(project, "check", "-j", jobs)
    wait_for(mark.exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "interrupted\n"
    assert out == ""
    wait_for(lambda: not _session(process.pid))


def _session(leader):
    found = subprocess.run(["ps", "-s", str(leader), "-o", "pid="], capture_output=True, text=True, check=False)
    return found.stdout.split()


def test_a_reader_that_goes_away(project):
    process = start(project, "check", "-v")
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141


def test_nothing_but_results_in_a_pipe(project):
    done = subprocess.run([*COMMAND, "check"], cwd=project, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout


def test_an_output_without_unicode(project):
    write_project(
        project, WRONG.replace("def wrong", "def größe").replace("y = F", "日 = F").replace("return y", "return 日")
    )
    done = subprocess.run(
        [*COMMAND, "check"],
        cwd=project,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 1
    assert b"::gr\\xf6\\xdfe" in done.stdout


def test_a_full_disk(project):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "check"], cwd=project, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "graphguard: [Errno 28] No space left on device\n"


def test_watching(project):
    process = start(project, "check", "--watch")
    try:
        wait_for(lambda: "refine" in (process.stdout.readline() or ""))
        assert "watching" in process.stderr.readline()
        write_project(project, WRONG)
        wait_for(lambda: "1 broken" in (process.stdout.readline() or ""))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 1
    finally:
        process.kill()
