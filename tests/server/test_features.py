"""Each language feature, as a client sees it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from graphguard_server.features.language.code_action import title_of
from graphguard_server.features.language.semantic_tokens import layout
from graphguard_server.serving import protocol
from lsp_editor import CHECK, MODEL, Editor, editing, position_of
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pytest_lsp import client_capabilities

from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Fix, TextEdit

FIXED = MODEL.replace("    return h\n", "    all_reduce(h)\n    return h\n")
TWO = CHECK.replace('{"tp": 2}', '[{"tp": 2}, {"tp": 4}]')


def document(uri: str) -> types.TextDocumentIdentifier:
    return types.TextDocumentIdentifier(uri)


async def test_initialize_tells_the_version_of_the_custom_protocol(workspace: Path, log: Path) -> None:
    async with editing(workspace, log) as editor:
        assert editor.initialized is not None
        assert editor.initialized.capabilities.experimental == {"graphguard": {"version": protocol.VERSION}}
        assert editor.initialized.server_info is not None
        assert editor.initialized.server_info.name == "graphguard"
        commands = editor.initialized.capabilities.execute_command_provider
        assert commands is not None
        assert "graphguard.run" in commands.commands


async def test_meshes_have_one_run_each_and_share_a_finding(workspace: Path, log: Path) -> None:
    (workspace / "check_mlp.py").write_text(TWO)
    async with editing(workspace, log) as editor:
        uri = editor.open("model.py")
        await editor.settled()
        assert [run["mesh"] for run in editor.runs()] == [{"tp": 2}, {"tp": 4}]
        (found,) = editor.diagnostics(uri)
        assert "checks: mlp (tp=2), mlp (tp=4)" in found.message
        assert [row["mesh"] for row in found.data["checks"]] == [{"tp": 2}, {"tp": 4}]


async def test_computed_meshes_are_learned_by_running_the_file(workspace: Path, log: Path) -> None:
    (workspace / "check_mlp.py").write_text(CHECK.replace('{"tp": 2}', "meshes()"))
    async with editing(workspace, log) as editor:
        editor.open("model.py")
        await editor.until(lambda: [run["mesh"] for run in editor.runs()] == [{"tp": 2}, {"tp": 8}])
        await editor.settled()
        assert editor.traces() == 2


async def test_code_lenses_show_the_verdict_of_each_mesh_and_run_it(workspace: Path, log: Path) -> None:
    (workspace / "check_mlp.py").write_text(TWO)
    async with editing(workspace, log) as editor:
        uri = editor.open("check_mlp.py")
        await editor.settled()
        lenses = await editor.client.text_document_code_lens_async(types.CodeLensParams(document(uri)))
        assert lenses is not None
        titles = [lens.command.title for lens in lenses if lens.command is not None]
        assert titles == ["tp=2: ✗ broken · 0.25 s", "tp=4: ✗ broken · 0.25 s"]
        command = lenses[1].command
        assert command is not None
        before = editor.traces()
        await editor.client.workspace_execute_command_async(
            types.ExecuteCommandParams(command=command.command, arguments=command.arguments)
        )
        await editor.until(lambda: editor.traces() == before + 1)
        await editor.settled()
        assert editor.log.read_text().splitlines()[-1] == "capture mlp {'tp': 4}"


async def test_a_forced_run_is_seen_running_before_its_result(editor: Editor) -> None:
    editor.open("model.py")
    await editor.settled()
    heard = len(editor.checks)
    await editor.client.protocol.send_request_async("graphguard/run", {"force": True})
    await editor.until(lambda: len(editor.checks) >= heard + 2)
    await editor.settled()
    states = [each["checks"][0]["runs"][0]["state"] for each in editor.checks[heard:]]
    assert states[0] in ("queued", "tracing", "proving")
    assert states[-1] == "broken"


async def test_document_symbols_are_the_checks(editor: Editor) -> None:
    uri = editor.open("check_mlp.py")
    await editor.settled()
    symbols = await editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document(uri)))
    assert symbols is not None
    assert [symbol.name for symbol in symbols] == ["mlp"]
    assert isinstance(symbols[0], types.DocumentSymbol)
    assert symbols[0].detail == "check: tp=2 broken"


async def test_workspace_symbols_find_checks_by_letters(editor: Editor) -> None:
    editor.open("check_mlp.py")
    await editor.settled()
    for query, names in (("mp", ["mlp"]), ("", ["mlp"]), ("xyz", [])):
        found = await editor.client.workspace_symbol_async(types.WorkspaceSymbolParams(query))
        assert [symbol.name for symbol in found or []] == names


async def test_definition_and_references_go_between_the_programs(editor: Editor) -> None:
    editor.write("spec.py", "def forward(x):\n    return x\n")
    uri = editor.open("model.py", MODEL.replace("from toy", "import spec\nfrom toy"))
    await editor.settled()
    text = editor.texts[uri]
    position = position_of(text, "h = partial")
    found = await editor.client.text_document_definition_async(types.DefinitionParams(document(uri), position))
    assert isinstance(found, list | tuple)
    (place,) = found
    assert isinstance(place, types.Location)
    assert place.uri == editor.uri("spec.py")
    assert place.range.start == types.Position(1, 4)
    same = await editor.client.text_document_type_definition_async(types.TypeDefinitionParams(document(uri), position))
    assert same == found
    back = await editor.client.text_document_references_async(
        types.ReferenceParams(types.ReferenceContext(include_declaration=True), document(place.uri), place.range.start)
    )
    assert back is not None
    assert uri in {each.uri for each in back}


async def test_inlay_hints_are_off_unless_asked_for(workspace: Path, log: Path) -> None:
    whole = types.Range(types.Position(0, 0), types.Position(99, 0))
    async with editing(workspace, log) as editor:
        uri = editor.open("model.py")
        await editor.settled()
        assert not await editor.client.text_document_inlay_hint_async(types.InlayHintParams(document(uri), whole))
    async with editing(workspace, log, options={"settings": {"inlayHints": True}}) as editor:
        uri = editor.open("model.py")
        await editor.settled()
        hints = await editor.client.text_document_inlay_hint_async(types.InlayHintParams(document(uri), whole))
        assert [(hint.position, hint.label) for hint in hints or []] == [
            (types.Position(4, 5), ": concat(a@0, a@1; dim=1)"),
            (types.Position(5, 5), ": sum(h@0, h@1)"),
        ]


async def test_hints_keep_still_while_a_text_is_checked_anew(workspace: Path, log: Path) -> None:
    """A line typed above moves them, an edited line keeps its own, and a name that is gone loses it; all say that they are from before."""
    whole = types.Range(types.Position(0, 0), types.Position(99, 0))
    options = {"settings": {"inlayHints": True, "semanticTokens": True}}
    async with editing(workspace, log, options=options) as editor:
        uri = editor.open("model.py")
        await editor.settled()
        fresh = await editor.client.text_document_inlay_hint_async(types.InlayHintParams(document(uri), whole))
        assert [hint.position.line for hint in fresh or []] == [4, 5]
        lines = MODEL.replace("return h", "return HANG").splitlines(keepends=True)
        lines[4] = lines[4].replace("a = ", "renamed = ", 1)
        lines[5] = lines[5].replace("(a)", "(renamed)")
        editor.change(uri, "# a line more\n" + "".join(lines))
        hints = await editor.client.text_document_inlay_hint_async(types.InlayHintParams(document(uri), whole))
        assert [(hint.position, hint.label) for hint in hints or []] == [(types.Position(6, 5), ": sum(h@0, h@1)")]
        assert "(from before the last edit)" in str((hints or [])[0].tooltip)
        assert [hint.data for hint in [*(fresh or []), *(hints or [])]] == [
            {"stale": stale} for stale in (False, False, True)
        ]
        tokens = await editor.client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(document(uri)))
        assert tokens is not None
        assert list(tokens.data) == [6, 4, 1, 0, 4]


async def test_semantic_tokens_mark_the_layout_of_names(workspace: Path, log: Path) -> None:
    async with editing(workspace, log, options={"settings": {"semanticTokens": True}}) as editor:
        uri = editor.open("model.py")
        await editor.settled()
        tokens = await editor.client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(document(uri)))
        assert tokens is not None
        assert list(tokens.data) == [4, 4, 1, 0, 2, 1, 4, 1, 0, 4]


@pytest.mark.parametrize(
    ("edits", "title"),
    [
        ([(2, 5, "h / 2")], "divide by 2: y = h / 2"),
        ([(1, 1, "import b\n"), (3, 1, "reduce(y)\n")], "divide by 2: reduce(y)"),
        ([(2, 5, "")], "divide by 2: y ="),
    ],
)
def test_the_title_of_a_fix_shows_what_it_writes(edits: list[tuple[int, int, str]], title: str) -> None:
    """The line as it is after the edit; imports are shown where there is nothing else."""
    ends = {5: 6, 1: 1}
    spans = [(Span("a.py", line, column, line, ends[column]), text) for line, column, text in edits]
    fix = Fix("divide by 2", tuple(TextEdit(span, text) for span, text in spans), proved=True)
    assert title_of({"a.py": "import a\ny = h\nreturn y\n"}, fix) == title


@pytest.mark.parametrize(
    ("relation", "name"),
    [
        ("concat(h@0, h@1; dim=2)", "sharded"),
        ("gelu[:, :, 0:8]", "sharded"),
        ("sum(h@0, h@1)", "partial"),
        ("partial sum of down.mm", "partial"),
        ("out@0 = out@1", "replicated"),
        ("out[0]", "replicated"),
        ("not on the relation to the specification", "unrelated"),
    ],
)
def test_the_layout_of_a_relation(relation: str, name: str) -> None:
    assert layout(relation) == name


@pytest.mark.parametrize(
    ("name", "text", "needle", "label"),
    [
        ("pyproject.toml", "[tool.graphguard]\n\n", "\n\n", "timeout"),
        ("pyproject.toml", "[tool.graphguard.rules]\nlower-precision = \n", "= ", "warning"),
        ("pyproject.toml", "[tool.graphguard.rules]\n\n", "\n\n", "missing-reduction"),
        (
            "check_mlp.py",
            CHECK.replace("model.forward)", "model.forward, out_relations=)"),
            "relations=",
            '"replicate"',
        ),
        ("check_mlp.py", CHECK.replace("model.forward)", 'f, in_relations=({"tp": )'), '({"tp": ', "Shard(0)"),
        ("model.py", MODEL.replace("return h", "return h  # graphguard: ignore["), "ignore[", "wrong-scale"),
    ],
)
async def test_completion(editor: Editor, name: str, text: str, needle: str, label: str) -> None:
    uri = editor.open(name, text, "toml" if name.endswith("toml") else "python")
    offset = 1 if needle == "\n\n" else len(needle)
    answer = await editor.client.text_document_completion_async(
        types.CompletionParams(document(uri), position_of(text, needle, offset))
    )
    assert isinstance(answer, types.CompletionList)
    assert label in [item.label for item in answer.items]


async def test_completion_is_silent_elsewhere(editor: Editor) -> None:
    uri = editor.open("model.py")
    answer = await editor.client.text_document_completion_async(
        types.CompletionParams(document(uri), types.Position(4, 6))
    )
    assert isinstance(answer, types.CompletionList)
    assert not answer.items


async def test_a_long_check_shows_progress_and_cancelling_it_stops_the_check(workspace: Path, log: Path) -> None:
    (workspace / "model.py").write_text(MODEL.replace("return h", "return HANG"))
    async with editing(workspace, log) as editor:
        editor.open("model.py")
        (token,) = await editor.until(lambda: list(editor.client.progress_reports))
        await editor.until(lambda: len(editor.client.progress_reports[token]) >= 2)
        editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
        await editor.until(lambda: editor.runs()[0]["state"] == "idle")
        await editor.until(lambda: not editor.status()["busy"])


async def test_cancel_stops_a_run(workspace: Path, log: Path) -> None:
    (workspace / "model.py").write_text(MODEL.replace("return h", "return HANG"))
    async with editing(workspace, log) as editor:
        editor.open("model.py")
        await editor.until(lambda: editor.runs() and editor.runs()[0]["state"] == "tracing")
        answer = await editor.client.protocol.send_request_async("graphguard/cancel", {})
        assert answer == {"cancelled": 1}
        await editor.until(lambda: editor.runs()[0]["state"] == "idle")


async def test_explain_gives_the_rules_page_and_names_the_nearest_rule(editor: Editor) -> None:
    answer = await editor.client.protocol.send_request_async("graphguard/explain", {"rule": "missing-reduction"})
    assert answer["markdown"].startswith("# missing-reduction")
    answer = await editor.client.protocol.send_request_async("graphguard/explain", {"rule": "missing-reducton"})
    assert "did you mean 'missing-reduction'" in answer["markdown"]


async def test_code_actions_explain_a_finding_and_offer_no_stale_fix(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    (found,) = editor.diagnostics(uri)
    params = types.CodeActionParams(document(uri), found.range, types.CodeActionContext([found]))
    titles = [action.title for action in await editor.client.text_document_code_action_async(params) or []]
    assert titles == [
        "insert all_reduce(h) (proved, tp=2)",
        "Explain missing-reduction",
        "Ignore missing-reduction on this line",
    ]
    editor.change(uri, MODEL.replace("return h", "return HANG"))
    titles = [action.title for action in await editor.client.text_document_code_action_async(params) or []]
    assert titles == ["Explain missing-reduction", "Ignore missing-reduction on this line"]


async def test_while_a_fix_is_proved_the_menu_says_so_and_can_wait_for_it(editor: Editor) -> None:
    uri = editor.open("model.py", MODEL.replace("    return h\n", "    LATE = SLOW = 1\n    return h\n"))
    await editor.until(lambda: [each.data["searching"] for each in editor.diagnostics(uri)] == [True])
    (found,) = editor.diagnostics(uri)
    params = types.CodeActionParams(document(uri), found.range, types.CodeActionContext([found]))
    titles = [action.title for action in await editor.client.text_document_code_action_async(params) or []]
    assert titles[0] == "Looking for a proved fix …"
    run = {"id": "check_mlp.py::mlp", "mesh": {"tp": 2}}
    answer = await editor.client.workspace_execute_command_async(
        types.ExecuteCommandParams("graphguard.awaitFix", [{"checks": [run]}])
    )
    assert answer == {"fixes": 1}
    await editor.until(lambda: [each.data["searching"] for each in editor.diagnostics(uri)] == [False])
    titles = [action.title for action in await editor.client.text_document_code_action_async(params) or []]
    assert titles[0] == "insert all_reduce(h) (proved, tp=2)"
    assert "Looking for a proved fix …" not in titles


async def test_the_edit_of_a_fix_comes_when_it_is_chosen(workspace: Path, log: Path) -> None:
    capabilities = client_capabilities("visual-studio-code")
    assert capabilities.text_document is not None
    actions = capabilities.text_document.code_action
    assert actions is not None
    actions.data_support = True
    actions.resolve_support = types.ClientCodeActionResolveOptions(properties=["edit"])
    async with editing(workspace, log, capabilities=capabilities) as editor:
        uri = editor.open("model.py")
        await editor.settled()
        (found,) = editor.diagnostics(uri)
        params = types.CodeActionParams(document(uri), found.range, types.CodeActionContext([found]))
        action = (await editor.client.text_document_code_action_async(params) or [])[0]
        assert isinstance(action, types.CodeAction)
        assert action.edit is None
        resolved = await editor.client.code_action_resolve_async(action)
        assert resolved.edit is not None
        (change,) = resolved.edit.document_changes or ()
        assert isinstance(change, types.TextDocumentEdit)
        assert [edit.new_text for edit in change.edits if isinstance(edit, types.TextEdit)] == ["    all_reduce(h)\n"]
        assert change.text_document.version == 1
        editor.change(uri, MODEL.replace("return h", "return h * 2"))
        with pytest.raises(JsonRpcException, match="has changed"):
            await editor.client.code_action_resolve_async(action)
        for damaged in (
            None,
            1,
            {},
            {"run": [1], "proof": 1},
            {**action.data, "fix": 99},
            {**action.data, "run": None},
        ):
            action.data = damaged
            if isinstance(damaged, dict):
                with pytest.raises(JsonRpcException):
                    await editor.client.code_action_resolve_async(action)
            else:
                assert (await editor.client.code_action_resolve_async(action)).edit is None


async def test_code_actions_respect_the_kinds_asked_for(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    (found,) = editor.diagnostics(uri)
    for kind, count in ((types.CodeActionKind.QuickFix, 3), (types.CodeActionKind.Refactor, 0)):
        context = types.CodeActionContext([found], only=[kind])
        params = types.CodeActionParams(document(uri), found.range, context)
        assert len(await editor.client.text_document_code_action_async(params) or []) == count


async def test_the_output_relation_of_a_proved_check_can_be_pinned(editor: Editor) -> None:
    editor.write("model.py", FIXED)
    uri = editor.open("check_mlp.py")
    await editor.settled()
    place = position_of(CHECK, "mlp(mesh)")
    params = types.CodeActionParams(document(uri), types.Range(place, place), types.CodeActionContext([]))

    async def offered() -> list[types.Command | types.CodeAction]:
        return list(await editor.client.text_document_code_action_async(params) or [])

    async with asyncio.timeout(10):
        while not (actions := await offered()):
            await asyncio.sleep(0.05)
    (action,) = actions
    assert isinstance(action, types.CodeAction)
    assert action.edit is not None
    (change,) = action.edit.document_changes or ()
    edit = getattr(change, "edits", [None])[0]
    assert isinstance(edit, types.TextEdit)
    assert edit.new_text == ', out_relations="replicate"'
    assert edit.range.start == position_of(CHECK, "model.forward)", len("model.forward"))
    pinned = CHECK.replace("model.forward)", 'model.forward, out_relations="replicate")')
    editor.edit(uri, types.TextDocumentContentChangePartial(edit.range, edit.new_text), pinned)
    await editor.settled()
    assert await offered() == []


async def test_hover_on_a_parameter_shows_how_it_is_laid_out(editor: Editor) -> None:
    text = MODEL.replace("    h = partial(a)\n", "    h = partial(a)\n    w = self.up.weight\n")
    uri = editor.open("model.py", text)
    await editor.settled()
    await asyncio.sleep(0.3)
    hover = await editor.client.text_document_hover_async(
        types.HoverParams(document(uri), position_of(text, "up.weight", 3))
    )
    assert hover is not None
    assert isinstance(hover.contents, types.MarkupContent)
    assert "concat(up.weight@0, up.weight@1; dim=0)" in hover.contents.value


async def test_every_folder_may_have_its_own_interpreter(workspace: Path, log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("pyproject.toml", "model.py", "check_mlp.py"):
        (other / name).write_bytes((workspace / name).read_bytes())
    options = {"interpreter": "/one/python", "interpreters": {other.as_uri(): ["/two/env", "python"]}}
    async with editing(workspace, log, options=options) as editor:
        editor.open("model.py")
        editor.open(str(other / "model.py"))
        await editor.until(lambda: len(editor.runs()) == 2)
        answer = await editor.client.protocol.send_request_async("graphguard/debugInformation", {})
        assert "interpreter ('/one/python',)" in answer["text"]
        assert "interpreter ('/two/env', 'python')" in answer["text"]


async def test_marks_say_which_lines_are_broken_and_which_proved(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    marks = next(each for each in reversed(editor.marks) if each["uri"] == uri)
    assert [(mark["line"], mark["state"]) for mark in marks["marks"]] == [(5, "broken")]
    version = editor.change(uri, FIXED)
    await editor.until(lambda: editor.marks[-1]["version"] == version and not editor.marks[-1]["stale"])
    await editor.until(lambda: [mark["line"] for mark in editor.marks[-1]["marks"]] == [4, 5, 6])
    assert {mark["state"] for mark in editor.marks[-1]["marks"]} == {"proved"}


async def test_the_relation_explorer_opens_at_the_break_and_says_what_is_needed(editor: Editor) -> None:
    editor.open("model.py")
    await editor.settled()
    named = {"check": "check_mlp.py::mlp", "mesh": {"tp": 2}}
    answer = await editor.client.protocol.send_request_async("graphguard/relations", named)
    assert "focus" not in answer
    assert answer["groups"] == [{"name": "mlp", "depth": 0, "from": 0, "to": 2, "proved": 1}]
    assert (answer["breaks"], answer["start"], answer["total"], answer["columns"]) == ([1], 1, 2, [0, 1])
    (finding,) = answer["findings"]
    assert (finding["rule"], finding["row"]) == ("missing-reduction", 1)
    assert finding["location"]["range"]["start"] == {"line": 5, "character": 8}
    shard, partial = answer["rows"]
    assert [cell["code"] for cell in shard["cells"]] == ["a = shard(x)"] * 3
    assert (shard["state"], shard["layout"]) == ("proved", "Shard(1) over tp")
    assert (partial["state"], partial["reads"]) == ("broken", [0])
    assert answer["files"] == [partial["cells"][1]["location"]["uri"]]


async def test_the_relation_explorer_follows_the_cursor(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    for line, focus in ((4, 0), (5, 1)):
        position = {"line": line, "character": 9}
        answer = await editor.client.protocol.send_request_async(
            "graphguard/relations", {"uri": uri, "position": position}
        )
        assert answer["focus"] == focus


async def test_the_relation_explorer_asks_for_rows_and_searches_them(editor: Editor) -> None:
    editor.open("model.py")
    await editor.settled()
    request = editor.client.protocol.send_request_async
    picture = (await request("graphguard/relations", {"check": "check_mlp.py::mlp", "mesh": {"tp": 2}}))["picture"]
    answer = await request("graphguard/rows", {"picture": picture, "first": 1, "end": 99, "columns": [1]})
    assert answer["first"] == 1
    assert [len(row["cells"]) for row in answer["rows"]] == [2]
    assert await request("graphguard/rows", {"picture": "other", "first": 0, "end": 9, "columns": [0]}) is None
    for text, rows in (("SHARD", [0]), ("toy.", [0, 1]), ("mlp", [0, 1]), ("nothing of it", []), ("", [])):
        assert (await request("graphguard/find", {"picture": picture, "text": text}))["rows"] == rows


async def test_debug_information_names_versions_and_processes(editor: Editor) -> None:
    editor.open("model.py")
    await editor.settled()
    answer = await editor.client.protocol.send_request_async("graphguard/debugInformation", {})
    assert re.search(r"protocol \d+", answer["text"])
    assert "worker: ready" in answer["text"]
    assert "prover: ready" in answer["text"]


def test_the_protocol_page_is_the_tables() -> None:
    page = Path(__file__).parents[2] / "docs" / "protocol.md"
    assert page.read_text() == protocol.documentation(), (
        "run: python -m graphguard_server.serving.protocol > docs/protocol.md"
    )


async def test_every_request_of_the_table_is_answered(editor: Editor) -> None:
    editor.open("model.py")
    await editor.settled()
    for message in protocol.MESSAGES:
        if message.kind == "request" and message.method != protocol.REPRODUCE:
            answer: Any = await editor.client.protocol.send_request_async(message.method, {})
            assert answer is None or isinstance(answer, dict), message.method


async def test_a_client_that_pulls_is_told_when_to_and_gets_what_others_are_pushed(workspace: Path, log: Path) -> None:
    async with editing(workspace, log) as editor:
        assert editor.initialized is not None
        assert editor.initialized.capabilities.diagnostic_provider is None
        uri = editor.open("model.py")
        await editor.settled()
        pushed = editor.diagnostics(uri)
    capabilities = client_capabilities("visual-studio-code")
    assert capabilities.text_document is not None
    assert capabilities.workspace is not None
    capabilities.text_document.diagnostic = types.DiagnosticClientCapabilities()
    capabilities.workspace.diagnostics = types.DiagnosticWorkspaceClientCapabilities(refresh_support=True)
    async with editing(workspace, log, capabilities=capabilities, options={"diagnostics": "pull"}) as editor:
        assert editor.initialized is not None
        assert editor.initialized.capabilities.diagnostic_provider is not None
        uri = editor.open("model.py")
        await editor.until(lambda: editor.refreshed)
        await editor.settled()
        report = await editor.client.text_document_diagnostic_async(types.DocumentDiagnosticParams(document(uri)))
        assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
        assert list(report.items) == pushed
        again = types.DocumentDiagnosticParams(document(uri), previous_result_id=report.result_id)
        assert (await editor.client.text_document_diagnostic_async(again)).kind == "unchanged"
        assert not editor.published
        editor.change(uri, FIXED)
        await editor.until(lambda: editor.runs()[0]["state"] == "proved")
        report = await editor.client.text_document_diagnostic_async(again)
        assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
        assert not report.items
