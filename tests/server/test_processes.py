"""Worker and prover killed, stopped, hung, noisy or flooding: the server says so, starts them again, and ends with the same diagnostics."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from graphguard_server.processes.processes import Launch, Limits, Process
from lsp_editor import MODEL, Editor, editing
from lsprotocol import types
from process_tree import alive, children, hurt, one

FIXED = MODEL.replace("    return h\n", "    all_reduce(h)\n    return h\n")
SLOW = MODEL.replace("    return h\n", "    SLOW = 1\n    return h\n")


def server_pid(editor: Editor) -> int:
    assert editor.client._server is not None
    return editor.client._server.pid


@pytest.mark.parametrize("name", ["worker.py", "prover.py"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_an_ended_process_is_started_again_and_nothing_is_lost(
    editor: Editor, name: str, how: signal.Signals
) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    hurt(one(server_pid(editor), name), how)
    editor.change(uri, SLOW)
    await editor.until(lambda: editor.runs()[0]["stale"])
    await editor.settled()
    assert [found.code for found in editor.diagnostics(uri)] == ["missing-reduction"]
    assert editor.status()["health"] == "ok"
    assert max(process["restarts"] for process in editor.status()["processes"]) >= 1


async def test_a_worker_that_dies_underway_is_tried_again_and_the_status_says_so(editor: Editor) -> None:
    uri = editor.open("model.py", SLOW)
    await editor.until(lambda: editor.runs() and editor.runs()[0]["state"] == "tracing")
    await asyncio.sleep(0.2)
    hurt(one(server_pid(editor), "worker.py"), signal.SIGKILL)
    await editor.until(lambda: editor.status()["health"] == "warning")
    assert "SIGKILL" in editor.status()["detail"]
    await editor.settled()
    assert editor.diagnostics(uri)
    await editor.until(lambda: editor.status()["health"] == "ok")


async def test_a_prover_that_ends_before_it_told_what_the_tensors_are_is_asked_again(editor: Editor) -> None:
    uri = editor.open("model.py", MODEL + "# FORGET\n")
    place = types.Position(5, 8)

    async def told() -> bool:
        params = types.HoverParams(types.TextDocumentIdentifier(uri), place)
        return await editor.client.text_document_hover_async(params) is not None

    await editor.until(lambda: editor.runs() and editor.runs()[0]["state"] == "broken")
    async with asyncio.timeout(20):
        while not await told():
            await asyncio.sleep(0.05)
    assert (editor.folder / "model.py.forgotten").exists()


async def test_a_check_that_ends_the_worker_every_time_is_given_up_with_a_reason(editor: Editor) -> None:
    uri = editor.open("model.py", MODEL.replace("return h", "return CRASH"))
    check = editor.uri("check_mlp.py")
    await editor.until(lambda: editor.diagnostics(check))
    (found,) = editor.diagnostics(check)
    assert "could not be run" in found.message
    assert "ended with status 3" in found.message
    editor.change(uri, FIXED)
    await editor.until(lambda: editor.runs()[0]["state"] == "proved")
    assert not editor.diagnostics(check)


async def test_an_answer_that_nobody_expects_is_a_finding_and_not_silence(editor: Editor) -> None:
    uri = editor.open("model.py", MODEL.replace("return h", "return NONSENSE"))
    check = editor.uri("check_mlp.py")
    await editor.until(lambda: editor.diagnostics(check))
    assert "a defect of GraphGuard" in editor.diagnostics(check)[0].message
    editor.change(uri, FIXED)
    await editor.until(lambda: editor.runs()[0]["state"] == "proved")


async def test_a_hanging_trace_is_ended_when_an_edit_makes_it_obsolete(editor: Editor) -> None:
    uri = editor.open("model.py", MODEL.replace("return h", "return HANG"))
    await editor.until(lambda: editor.runs() and editor.runs()[0]["state"] == "tracing")
    editor.change(uri, FIXED)
    await editor.until(lambda: editor.runs()[0]["state"] == "proved")


@pytest.mark.parametrize("word", ["NOISE", "FLOOD"])
async def test_noise_and_floods_do_not_stop_the_server(editor: Editor, word: str) -> None:
    uri = editor.open("model.py", MODEL.replace("return h", f"return {word}"))
    await editor.until(lambda: editor.runs() and editor.runs()[0]["state"] != "idle")
    slowest = 0.0
    for _ in range(20):
        started = time.monotonic()
        await editor.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(5, 8))
        )
        slowest = max(slowest, time.monotonic() - started)
        await asyncio.sleep(0.02)
    assert slowest < 1.0
    editor.change(uri, FIXED)
    await editor.until(lambda: editor.runs()[0]["state"] == "proved")


async def test_shutdown_takes_less_than_a_second_with_a_hanging_check_and_leaves_no_process(
    workspace: Path, log: Path
) -> None:
    (workspace / "model.py").write_text(MODEL.replace("return h", "return HANG"))
    async with editing(workspace, log) as editor:
        editor.open("model.py")
        await editor.until(lambda: editor.runs() and editor.runs()[0]["state"] == "tracing")
        process = editor.client._server
        assert process is not None
        family = children(process.pid)
        assert family
        started = time.monotonic()
        await editor.client.shutdown_session()
        assert time.monotonic() - started < 1.0
        assert process.returncode == 0
        assert not [pid for pid in family if alive(pid)]
        editor.client.error = RuntimeError("already shut down")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_no_process_outlives_a_killed_server(workspace: Path, log: Path, how: signal.Signals) -> None:
    async with editing(workspace, log) as editor:
        editor.open("model.py")
        await editor.settled()
        process = editor.client._server
        assert process is not None
        family = children(process.pid)
        assert len(family) >= 2
        os.kill(process.pid, how)
        editor.client.error = RuntimeError("killed on purpose")
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(map(alive, family)):
            await asyncio.sleep(0.05)
        assert not [command for pid, command in family.items() if alive(pid)]


async def test_the_server_ends_when_its_input_does(workspace: Path, log: Path) -> None:
    async with editing(workspace, log) as editor:
        editor.open("model.py")
        await editor.settled()
        process = editor.client._server
        assert process is not None
        assert process.stdin is not None
        family = children(process.pid)
        process.stdin.close()
        async with asyncio.timeout(2):
            await process.wait()
        assert process.returncode == 1, "the client went away without shutdown"
        assert not [pid for pid in family if alive(pid)]
        editor.client.error = RuntimeError("already gone")


async def test_restart_stops_the_processes_and_results_stay(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    old = one(server_pid(editor), "worker.py")
    answer = await editor.client.protocol.send_request_async("graphguard/restart", {"process": "worker"})
    assert answer == {"message": "stopped: worker"}
    assert old is not None
    assert not alive(old)
    assert editor.diagnostics(uri)
    editor.change(uri, FIXED)
    await editor.until(lambda: editor.runs()[0]["state"] == "proved")


async def test_an_interpreter_that_does_not_exist_is_an_error_with_the_next_step(workspace: Path, log: Path) -> None:
    environment = {"STAND_IN_WORKER": "/nonexistent/python"}
    async with editing(workspace, log, environment=environment) as editor:
        editor.open("model.py")
        await editor.until(lambda: editor.status().get("health") == "error")
        assert "/nonexistent/python" in editor.status()["detail"]
        assert "graphguard.interpreter" in editor.status()["detail"]


async def test_no_process_outlives_a_killed_server_however_busy_it_is() -> None:
    """A parent that is killed cannot clean up; a child that computes does not see the end of its input."""
    if not sys.platform.startswith("linux"):
        pytest.skip("elsewhere a child ends when it next reads its input")
    busy = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    code = (
        "import asyncio, sys\n"
        "from graphguard_server.processes.processes import Launch, Process\n"
        f"launch = lambda: Launch([sys.executable, '-c', {('from graphguard.trace.process.parentage import die_with_starter; die_with_starter();' + busy)!r}], {{}})\n"
        "process = Process('worker', launch, lambda: None)\n"
        "async def main():\n"
        "    call = asyncio.ensure_future(process.call('ping', {}))\n"
        "    while process.pid is None: await asyncio.sleep(0.01)\n"
        "    print(process.pid, flush=True)\n"
        "    await call\n"
        "asyncio.run(main())\n"
    )
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    child = int(await server.stdout.readline())
    await asyncio.sleep(0.5)
    assert alive(child)
    server.kill()
    await server.wait()
    async with asyncio.timeout(2):
        while alive(child):
            await asyncio.sleep(0.02)


def test_patience_with_a_process_that_computes_is_longer_than_with_one_that_does_nothing() -> None:
    process = Process("worker", lambda: Launch([], {}), lambda: None, limits=Limits(start=180, silence=10))
    process.state = "ready"
    assert process._patience(silent=12, idle=0) == 180  # it loads torch on a busy machine
    assert process._patience(silent=12, idle=11) == 10  # it is stopped
    process.state = "starting"
    assert process._patience(silent=12, idle=11) == 180
    assert process._patience(silent=32, idle=31) == 30  # stopped before its first word
