"""Opening, changing, hovering, fixing: the story of one defect."""

from __future__ import annotations

from lsp_editor import CHECK, MODEL, Editor, position_of
from lsprotocol import types

FIXED = MODEL.replace("    return h\n", "    all_reduce(h)\n    return h\n")


async def test_opening_a_file_publishes_the_finding_with_its_version(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    (found,) = editor.diagnostics(uri)
    assert found.code == "missing-reduction"
    assert found.range == types.Range(types.Position(5, 8), types.Position(5, 18))
    assert found.source == "graphguard"
    assert found.code_description is not None
    assert found.code_description.href.endswith("/missing-reduction.md")
    assert editor.published[uri][-1].version == 1


async def test_an_unsaved_edit_clears_the_finding_and_another_brings_it_back(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    version = editor.change(uri, FIXED)
    await editor.until(lambda: not editor.diagnostics(uri))
    await editor.settled()
    assert editor.published[uri][-1].version == version
    assert editor.runs()[0]["state"] == "proved"
    editor.change(uri, MODEL)
    await editor.until(lambda: editor.diagnostics(uri))


async def test_the_proved_fix_is_offered_applied_and_proved_again(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    (found,) = editor.diagnostics(uri)
    context = types.CodeActionContext(diagnostics=[found])
    actions = await editor.client.text_document_code_action_async(
        types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, context)
    )
    assert actions is not None
    fix = actions[0]
    assert isinstance(fix, types.CodeAction)
    assert fix.title == "insert all_reduce(h) (proved, tp=2)"
    assert fix.is_preferred
    fix = await editor.client.code_action_resolve_async(fix)
    assert fix.edit is not None
    assert fix.edit.document_changes is not None
    document = fix.edit.document_changes[0]
    assert isinstance(document, types.TextDocumentEdit)
    assert document.text_document.version == 1
    (edit,) = document.edits
    assert isinstance(edit, types.TextEdit)
    editor.edit(uri, types.TextDocumentContentChangePartial(edit.range, edit.new_text), FIXED)
    await editor.until(lambda: not editor.diagnostics(uri))
    await editor.settled()
    assert editor.runs()[0]["state"] == "proved"


async def test_hover_shows_the_relation_of_the_tensor_under_the_cursor(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    for needle, relation in (
        ("h = partial", "sum(h@0, h@1)"),
        ("a = shard", "concat(a@0, a@1; dim=1)"),
        ("return h", "sum(h@0, h@1)"),
    ):
        offset = len("return ") if needle.startswith("return") else 0
        hover = await editor.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), position_of(MODEL, needle, offset))
        )
        assert hover is not None
        assert isinstance(hover.contents, types.MarkupContent)
        assert relation in hover.contents.value
        assert "tp=2" in hover.contents.value
        assert "0.25 s" in hover.contents.value


async def test_hover_on_a_check_shows_its_verdict(editor: Editor) -> None:
    uri = editor.open("check_mlp.py")
    await editor.settled()
    hover = await editor.client.text_document_hover_async(
        types.HoverParams(types.TextDocumentIdentifier(uri), position_of(CHECK, "mlp(mesh)"))
    )
    assert hover is not None
    assert isinstance(hover.contents, types.MarkupContent)
    assert "✗ broken" in hover.contents.value
    assert "inputs: x 2×8" in hover.contents.value
    assert "gradients: not compared" in hover.contents.value
