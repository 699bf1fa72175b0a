"""``textDocument/codeAction``: proved fixes first, then what explains and reproduces a finding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lsprotocol import types

from graphguard_server import protocol
from graphguard_server.convert import Shown
from graphguard_server.documents import path_of

if TYPE_CHECKING:
    from graphguard_server.server import GraphGuardServer

METHOD: Final = types.TEXT_DOCUMENT_CODE_ACTION
OPTIONS: Final = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])


def handle(server: GraphGuardServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Actions for the findings in a range; a fix of a stale result is not offered, for it was proved on another text."""
    path = path_of(params.text_document.uri)
    if path is None or not _wanted(params.context.only):
        return []
    session = server.session
    converter = session.converter
    actions: list[types.CodeAction] = []
    for shown in converter.shown(session.runs_in(path), path):
        if _touch(session.documents.ruler(path).range(shown.span), params.range):
            diagnostic = converter.diagnostic(shown, related=False)
            actions.extend(_fixes(server, shown, diagnostic))
            actions.extend(_others(shown, diagnostic))
    return actions


def _wanted(only: object) -> bool:
    return not isinstance(only, list | tuple) or any(
        kind == "" or "quickfix".startswith(str(getattr(kind, "value", kind))) for kind in only
    )


def _fixes(server: GraphGuardServer, shown: Shown, diagnostic: types.Diagnostic) -> Iterator[types.CodeAction]:
    run = next((run for run in shown.runs if not run.stale), None)
    if run is None:
        return
    converter = server.session.converter
    versioned = server.supports("workspace.workspace_edit.document_changes")
    proved = [fix for fix in shown.diagnostic.fixes if fix.proved]
    for number, fix in enumerate(proved):
        yield types.CodeAction(
            title=f"{fix.title} (proved)",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[diagnostic],
            is_preferred=number == 0,
            edit=converter.edit(run, fix) if versioned else converter.plain_edit(run, fix),
        )


def _others(shown: Shown, diagnostic: types.Diagnostic) -> Iterator[types.CodeAction]:
    rule, run = shown.diagnostic.rule, shown.runs[0]
    yield types.CodeAction(
        title=f"Explain {rule}",
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[diagnostic],
        command=types.Command(f"Explain {rule}", _name(protocol.EXPLAIN), arguments=[{"rule": rule}]),
    )
    if run.report is not None and run.report.counterexample is not None:
        argument = {"id": run.key.check, "mesh": run.shown_mesh}
        yield types.CodeAction(
            title="Show a test that reproduces this",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[diagnostic],
            command=types.Command("Reproduce", _name(protocol.REPRODUCE), arguments=[argument]),
        )


def _name(method: str) -> str:
    return method.replace("/", ".")


def _touch(a: types.Range, b: types.Range) -> bool:
    return (a.start.line, a.start.character) <= (b.end.line, b.end.character) and (b.start.line, b.start.character) <= (
        a.end.line,
        a.end.character,
    )
