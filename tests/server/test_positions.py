"""Positions in every encoding, with characters outside the basic plane, form feeds and CRLF."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphguard_server.texts.positions import Ruler, column_of_units, split_lines, units
from lsp_editor import CHECK, Editor, editing
from lsprotocol import types

from graphguard.ir.spans import Span

WIDE = 'from toy import partial\n\n\ndef forward(x):\n    𝛼 = "🙂é"; h = partial(x)\n    return h\n'
COLUMNS = {"utf-8": (25, 35), "utf-16": (20, 30), "utf-32": (18, 28)}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_ranges_are_in_the_negotiated_units(workspace: Path, log: Path, encoding: str) -> None:
    kind = types.PositionEncodingKind(encoding)
    (workspace / "model.py").write_text(WIDE)
    async with editing(workspace, log, encodings=[kind]) as editor:
        assert editor.client.protocol._server is not None
        uri = editor.open("model.py")
        await editor.settled()
        (found,) = editor.diagnostics(uri)
        start, end = COLUMNS[encoding]
        assert found.range == types.Range(types.Position(4, start), types.Position(4, end))
        hover = await editor.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(4, start + 1))
        )
        assert hover is not None
        insertion = types.TextDocumentContentChangePartial(
            types.Range(types.Position(4, end), types.Position(4, end)), "; all_reduce(h)"
        )
        editor.edit(uri, insertion)
        await editor.until(lambda: not editor.diagnostics(uri))


async def test_a_file_with_crlf_gets_fixes_with_crlf(workspace: Path, log: Path) -> None:
    text = "from toy import partial\r\n\r\n\r\ndef forward(x):\r\n    h = partial(x)\r\n    return h\r\n"
    (workspace / "model.py").write_bytes(text.encode())
    async with editing(workspace, log) as editor:
        uri = editor.open("model.py")
        await editor.settled()
        (found,) = editor.diagnostics(uri)
        assert found.range == types.Range(types.Position(4, 8), types.Position(4, 18))
        actions = await editor.client.text_document_code_action_async(
            types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, types.CodeActionContext([found]))
        )
        assert actions is not None
        assert isinstance(actions[0], types.CodeAction)
        chosen = await editor.client.code_action_resolve_async(actions[0])
        assert chosen.edit is not None
        assert chosen.edit.document_changes is not None
        edits = getattr(chosen.edit.document_changes[0], "edits", [])
        assert edits[0].new_text == "    all_reduce(h)\r\n"
        editor.edit(uri, types.TextDocumentContentChangePartial(edits[0].range, edits[0].new_text))
        await editor.until(lambda: not editor.diagnostics(uri))


async def test_a_form_feed_is_no_line_end(editor: Editor) -> None:
    text = 'X = "\x0c\u2028"\n' + CHECK
    uri = editor.open("check_mlp.py", text)
    await editor.settled()
    editor.edit(
        uri,
        types.TextDocumentContentChangePartial(types.Range(types.Position(6, 4), types.Position(6, 7)), "renamed"),
    )
    await editor.until(lambda: editor.checks[-1]["checks"][0]["name"] == "renamed")
    assert editor.checks[-1]["checks"][0]["range"]["start"] == {"line": 6, "character": 4}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ("",)),
        ("a", ("a",)),
        ("a\n", ("a\n", "")),
        ("a\r\nb\rc\n", ("a\r\n", "b\r", "c\n", "")),
        ("a\x0cb\u2028c\x85d\n", ("a\x0cb\u2028c\x85d\n", "")),
        ("\r\n\n", ("\r\n", "\n", "")),
    ],
)
def test_lines_are_the_protocols(text: str, lines: tuple[str, ...]) -> None:
    assert split_lines(text) == lines


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_columns_survive_the_round_trip(encoding: str) -> None:
    line = "aé𝛼🙂b\r\n"
    for column in range(6):
        count = units(line[:column], encoding)  # type: ignore[arg-type]
        assert column_of_units(line, count, encoding) == column  # type: ignore[arg-type]


def test_a_column_inside_a_character_is_its_start_and_beyond_the_line_its_end() -> None:
    assert column_of_units("🙂b", 1, "utf-16") == 0
    assert column_of_units("ab\r\n", 99, "utf-16") == 2


def test_a_span_without_an_end_covers_the_rest_of_its_line() -> None:
    ruler = Ruler(split_lines("abc\ndef\n"), "utf-16")
    assert ruler.range(Span("f", 2, 2)) == types.Range(types.Position(1, 1), types.Position(1, 3))
    assert ruler.range(Span("f", 99, 1)).start.line == 2
