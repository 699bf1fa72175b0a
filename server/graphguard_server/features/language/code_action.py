"""``textDocument/codeAction``: proved fixes first, then what explains and reproduces a finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from lsprotocol import types

from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Fix, TextEdit
from graphguard.report.edits import apply_edits, changed_lines
from graphguard.report.wording import UNKNOWN_OPERATOR
from graphguard_server.features.language.code_action_resolve import reference
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.convert import Shown, run_mesh
from graphguard_server.texts.documents import path_of
from graphguard_server.texts.pinning import pin
from graphguard_server.texts.positions import content
from graphguard_server.texts.source import last_line

METHOD: Final = types.TEXT_DOCUMENT_CODE_ACTION
LONGEST_LINE: Final = 80
OPTIONS: Final = types.CodeActionOptions(
    code_action_kinds=[types.CodeActionKind.QuickFix, types.CodeActionKind.RefactorRewrite], resolve_provider=True
)


def handle(server: GraphGuardServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Actions for the findings in a range; a fix of a stale result is not offered, for it was proved on another text."""
    path = path_of(params.text_document.uri)
    if path is None:
        return []
    session = server.session
    converter = session.converter
    actions: list[types.CodeAction] = []
    for shown in converter.shown(session.runs_in(path), path):
        if _touch(session.documents.ruler(path).range(shown.span), params.range):
            diagnostic = converter.diagnostic(shown, related=False)
            actions.extend(_fixes(server, shown, diagnostic))
            actions.extend(_search(shown, diagnostic))
            actions.extend(_assumption(server, shown, diagnostic))
            actions.extend(_others(shown, diagnostic))
            actions.append(_waiver(server, shown, diagnostic))
    actions += _pins(server, path, params)
    return [
        action for action in actions if _wanted(params.context.only, str(getattr(action.kind, "value", action.kind)))
    ]


def _waiver(server: GraphGuardServer, shown: Shown, diagnostic: types.Diagnostic) -> types.CodeAction:
    """Silence the finding on its line."""
    rule, line = shown.diagnostic.rule, shown.span.line
    text = content(server.session.documents.lines(shown.span.file)[line - 1])
    place = Span(shown.span.file, line, len(text) + 1, line, len(text) + 1)
    edit = server.session.converter.insertion(place, f"  # graphguard: ignore[{rule}]")
    kind = types.CodeActionKind.QuickFix
    return types.CodeAction(title=f"Ignore {rule} on this line", kind=kind, diagnostics=[diagnostic], edit=edit)


def _pins(server: GraphGuardServer, path: str, params: types.CodeActionParams) -> list[types.CodeAction]:
    """On the name of a proved check whose output relation is left open: promise what was found."""
    session = server.session
    checks = [check for project in session.projects.values() for check in project.checks.values() if check.file == path]
    actions = []
    for check in checks:
        run = next(iter(check.runs.values()), None)
        if run is None or run.stale or run.result not in ("proved", "assumed") or path not in run.snapshot:
            continue
        if not _touch(session.documents.ruler(path).range(check.ref.span), params.range):
            continue
        found = pin(path, run.snapshot[path], check.ref.name, run.relations)
        if found is not None:
            fix = Fix(found.title, (TextEdit(found.span, found.text),), proved=False)
            kind = types.CodeActionKind.RefactorRewrite
            actions.append(types.CodeAction(title=found.title, kind=kind, edit=server.edit_of(run, fix)))
    return actions


def _wanted(only: object, kind: str) -> bool:
    """Whether the client asked for a kind of action, by its name or one above it."""
    if not isinstance(only, list | tuple):
        return True
    names = [str(getattr(each, "value", each)) for each in only]
    return any(not name or kind == name or kind.startswith(f"{name}.") for name in names)


def _fixes(server: GraphGuardServer, shown: Shown, diagnostic: types.Diagnostic) -> Iterator[types.CodeAction]:
    """The proved fixes; their edits wait until one is chosen where the client can ask for them."""
    if shown.fresh is None:
        return
    run, own = shown.fresh
    lazy = "edit" in server.resolvable and server.supports("text_document.code_action.data_support")
    preferred = True
    for number, fix in enumerate(own.fixes):
        if not fix.proved:
            continue
        yield types.CodeAction(
            title=f"{title_of(run.snapshot, fix)} (proved, {run_mesh(run)})",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[diagnostic],
            is_preferred=preferred,
            edit=None if lazy else server.edit_of(run, fix),
            data=reference(run, own, number) if lazy else None,
        )
        preferred = False


def title_of(texts: Mapping[str, str], fix: Fix) -> str:
    """What a fix does and the text that it writes: ``all_reduce(y) over 'tp': dist.all_reduce(y, group=mesh.group("tp"))``; of several lines the first, imports last; ``texts`` are those before it, by path."""
    written: list[str] = []
    for path in dict.fromkeys(edit.span.file for edit in fix.edits):
        before = texts.get(path, "")
        after = apply_edits(before, [edit for edit in fix.edits if edit.span.file == path])
        hunks = changed_lines(before, after)
        written += [line.text.strip() for hunk in hunks for line in hunk if line.kind == "added" and line.text.strip()]
    written.sort(key=lambda line: line.startswith(("import ", "from ")))
    if not written or written[0] in fix.title:
        return fix.title
    line = written[0] if len(written[0]) <= LONGEST_LINE else written[0][: LONGEST_LINE - 1] + "…"
    return f"{fix.title}: {line}"


def _search(shown: Shown, diagnostic: types.Diagnostic) -> Iterator[types.CodeAction]:
    """While fixes are still being proved: something that waits for them, so that the menu does not say that there are none."""
    if shown.searching:
        title = "Looking for a proved fix …"
        checks = [{"id": run.key.check, "mesh": run.shown_mesh} for run in shown.runs]
        yield types.CodeAction(
            title=title,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[diagnostic],
            command=types.Command(title, _name(protocol.AWAIT_FIX), arguments=[{"checks": checks}]),
        )


def _assumption(server: GraphGuardServer, shown: Shown, diagnostic: types.Diagnostic) -> Iterator[types.CodeAction]:
    """For an operator that the engine does not know: say what it is; every verdict that rests on it lists that."""
    path, text = shown.span.file, server.session.documents.text(shown.span.file)
    if shown.diagnostic.rule != "unsupported-operator" or UNKNOWN_OPERATOR not in shown.diagnostic.message or not text:
        return
    line = last_line(text, shown.span)
    end = len(content(server.session.documents.lines(path)[line - 1])) + 1
    edit = server.session.converter.insertion(Span(path, line, end, line, end), "  # graphguard: assume elementwise")
    title = "Assume that this operator works element by element"
    yield types.CodeAction(title=title, kind=types.CodeActionKind.QuickFix, diagnostics=[diagnostic], edit=edit)


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
