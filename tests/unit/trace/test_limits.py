"""What bounds a check's processes does not bound the number of its ranks."""

import subprocess
import sys
import textwrap


def run(program: str) -> str:
    text = "import os\nfrom graphguard.trace.process.limits import MAX_FORKS, Limits, confine, fork_child\n"
    done = subprocess.run(
        [sys.executable, "-c", text + textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_ranks_do_not_count():
    program = """
        confine(Limits())
        for _ in range(MAX_FORKS + 8):
            pid = fork_child()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        print("all")
    """
    assert run(program) == "all\n"


def test_the_code_of_a_check_is_bounded_and_ranks_start_nothing():
    program = """
        confine(Limits())
        started = 0
        try:
            while True:
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
                started += 1
        except BlockingIOError:
            print(started == MAX_FORKS, flush=True)
        if fork_child() == 0:
            confine(Limits())
            try:
                os.fork()
            except BlockingIOError:
                os.write(1, b"none\\n")
            os._exit(0)
        os.wait()
    """
    assert run(program) == "True\nnone\n"
