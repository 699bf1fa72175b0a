"""Nothing stale is shown as fresh, nothing is traced without need."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from lsp_editor import CHECK, MODEL, Editor, editing
from lsprotocol import types

FIXED = MODEL.replace("    return h\n", "    all_reduce(h)\n    return h\n")
SLOW = MODEL.replace("    return h\n", "    SLOW = 1\n    return h\n")


async def test_an_edit_marks_the_last_results_stale_before_it_is_checked(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    editor.change(uri, SLOW.replace("def forward(x):", "\n\ndef forward(x):"))
    await editor.until(lambda: editor.runs()[0]["stale"] and editor.diagnostics(uri)[0].data["stale"])
    await editor.until(lambda: editor.status()["counts"]["stale"] == 1)
    (found,) = editor.diagnostics(uri)
    assert "from before the last edit" in found.message
    assert found.range.start.line == 7, "the old finding moves with its line"
    await editor.settled()
    (found,) = editor.diagnostics(uri)
    assert found.data["stale"] is False
    assert "from before the last edit" not in found.message


async def test_a_comment_edit_traces_nothing_and_moves_the_finding(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    before = editor.traces()
    version = editor.change(uri, "# a comment\n\n" + MODEL.replace("h = partial(a)", "h = partial( a )  # why"))
    await editor.until(lambda: editor.published[uri][-1].version == version)
    await asyncio.sleep(0.6)
    (found,) = editor.diagnostics(uri)
    assert found.range == types.Range(types.Position(7, 8), types.Position(7, 20))
    assert found.data["stale"] is False
    assert editor.traces() == before


async def test_a_pragma_is_a_comment_with_a_meaning(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    before = editor.traces()
    editor.change(uri, MODEL.replace("partial(a)", "partial(a)  # graphguard: ignore[missing-reduction]"))
    await editor.until(lambda: editor.traces() > before)


async def test_going_back_to_the_checked_text_is_fresh_again(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    editor.change(uri, "def broken(:\n")
    await editor.until(lambda: editor.runs()[0]["stale"])
    before = editor.traces()
    editor.change(uri, MODEL)
    await editor.settled()
    assert editor.traces() == before


async def test_a_burst_of_fifty_keystrokes_costs_at_most_two_traces(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    before = editor.traces()
    for count in range(50):
        editor.change(uri, MODEL.replace("return h", f"return h + {'1' * (count + 1)}"))
        await asyncio.sleep(0.04)
    await editor.settled()
    assert editor.traces() - before <= 2
    assert editor.published[uri][-1].version == 51


async def test_a_syntax_error_keeps_the_last_results_and_adds_one_diagnostic(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    before = editor.traces()
    editor.change(uri, MODEL + "def unfinished(\n")
    await editor.until(lambda: len(editor.diagnostics(uri)) == 2)
    kept, syntax = editor.diagnostics(uri)
    assert kept.data["stale"] is True
    assert syntax.code == "trace-error"
    assert "was never closed" in syntax.message
    assert syntax.range.start.line == 7
    await asyncio.sleep(0.5)
    assert editor.traces() == before
    editor.change(uri, MODEL)
    await editor.until(lambda: len(editor.diagnostics(uri)) == 1)


async def test_an_unrelated_check_is_not_traced_again(editor: Editor) -> None:
    editor.write("other.py", FIXED)
    editor.write("check_other.py", CHECK.replace("model", "other").replace("def mlp", "def another"))
    uri = editor.open("model.py")
    editor.open("check_other.py")
    await editor.until(lambda: len(editor.runs()) == 2)
    await editor.settled()
    editor.log.write_text("")
    editor.change(uri, FIXED)
    await editor.until(lambda: not editor.diagnostics(uri))
    await editor.settled()
    assert "mlp" in editor.log.read_text()
    assert "another" not in editor.log.read_text()


async def test_a_result_that_an_edit_made_obsolete_is_never_published(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    editor.change(uri, SLOW)
    await editor.until(lambda: editor.runs()[0]["state"] == "tracing")
    version = editor.change(uri, FIXED)
    await editor.until(lambda: editor.runs()[0]["state"] == "proved")
    await asyncio.sleep(0.8)
    late = [each for each in editor.published[uri] if (each.version or 0) >= version]
    assert all(found.data["stale"] for each in late[:-1] for found in each.diagnostics)
    assert not late[-1].diagnostics


async def test_a_change_outside_the_editor_is_seen(editor: Editor) -> None:
    uri = editor.open("check_mlp.py")
    await editor.settled()
    assert editor.runs()[0]["state"] == "broken"
    editor.write("model.py", FIXED)
    await editor.until(lambda: editor.runs()[0]["state"] == "proved" and not editor.runs()[0]["stale"])
    assert editor.diagnostics(uri) == []


async def test_unsaved_text_of_an_import_counts_and_closing_goes_back_to_the_disk(editor: Editor) -> None:
    editor.open("check_mlp.py")
    model = editor.open("model.py")
    await editor.settled()
    editor.change(model, FIXED)
    await editor.until(lambda: editor.runs()[0]["state"] == "proved")
    editor.close(model)
    await editor.until(lambda: editor.runs()[0]["state"] == "broken")


async def test_on_save_waits_for_the_save_but_marks_stale_at_once(workspace: Path, log: Path) -> None:
    async with editing(workspace, log, options={"settings": {"mode": "save"}}) as editor:
        uri = editor.open("model.py")
        await editor.settled()
        before = editor.traces()
        editor.change(uri, FIXED)
        await editor.until(lambda: editor.runs()[0]["stale"])
        await asyncio.sleep(0.6)
        assert editor.traces() == before
        editor.save(uri)
        await editor.until(lambda: editor.runs()[0]["state"] == "proved")


async def test_manual_runs_only_on_request(workspace: Path, log: Path) -> None:
    async with editing(workspace, log, options={"settings": {"mode": "manual"}}) as editor:
        editor.open("model.py")
        await editor.until(editor.runs)
        await asyncio.sleep(0.5)
        assert editor.traces() == 0
        answer = await editor.client.protocol.send_request_async("graphguard/run", {})
        assert answer == {"queued": 1}
        await editor.settled()
        assert editor.traces() == 1


async def test_requests_are_answered_while_a_check_runs(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    editor.change(uri, SLOW)
    await editor.until(lambda: editor.runs()[0]["state"] == "tracing")
    started = time.monotonic()
    for _ in range(10):
        await editor.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(5, 8))
        )
    assert editor.runs()[0]["state"] == "tracing", "all were answered before the half second of the trace was over"
    assert time.monotonic() - started < 0.5
