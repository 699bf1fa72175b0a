"""Reports and spans of the engine as types of the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from lsprotocol import types

from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Diagnostic, Fix, RelatedPlace, TextEdit
from graphguard.report.folding import Identity, identities
from graphguard_server.state.checks import Run
from graphguard_server.texts.documents import Documents
from graphguard_server.texts.positions import content
from graphguard_server.texts.shifts import Move, moved, shift

SOURCE: Final = "graphguard"
STALE_NOTE: Final = "(from before the last edit)"

_SEVERITIES: Final = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "information": types.DiagnosticSeverity.Information,
    "hint": types.DiagnosticSeverity.Hint,
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One diagnostic of the editor: runs that found the same thing at the same place share it; ``own`` is how each of them has it."""

    diagnostic: Diagnostic
    span: Span
    runs: tuple[Run, ...]
    own: tuple[Diagnostic, ...] = ()

    @property
    def stale(self) -> bool:
        """Whether no fresh result stands behind it."""
        return bool(self.runs) and all(run.stale for run in self.runs)

    @property
    def searching(self) -> bool:
        """Whether a proved fix may still turn up."""
        return self.fresh is not None and not self.fresh[1].fixes and any(run.search is not None for run in self.runs)

    @property
    def fresh(self) -> tuple[Run, Diagnostic] | None:
        """The first run whose result is of the text as it is now, with its diagnostic; None where all are stale."""
        return next((each for each in zip(self.runs, self.own, strict=True) if not each[0].stale), None)


class Converter:
    """Turns spans of a run's snapshot into ranges of the texts as they are now."""

    def __init__(self, documents: Documents, docs: str) -> None:
        self._documents = documents
        self._docs = docs

    def move(self, run: Run, path: str) -> Move:
        """Where places of the run's text of a file are now."""
        old, new = run.snapshot.get(path), self._documents.text(path)
        return shift(old, new) if old is not None and new is not None else (lambda line, column: (line, column))

    def span_now(self, run: Run, span: Span) -> Span:
        """A span of the run in the text as it is now."""
        return moved(span, self.move(run, span.file))

    def range_now(self, run: Run, span: Span) -> types.Range:
        """The client's range of a span of the run."""
        return self._documents.ruler(span.file).range(self.span_now(run, span))

    def location(self, run: Run, span: Span) -> types.Location:
        """The client's location of a span of the run."""
        return types.Location(self._documents.uri(span.file), self.range_now(run, span))

    def shown(self, runs: Iterable[Run], path: str) -> list[Shown]:
        """What the runs have to say in one file, merged over meshes and checks."""
        merged: dict[tuple[Identity, Span], list[tuple[Run, Diagnostic]]] = {}
        for run in runs:
            if run.report is None:
                continue
            for diagnostic, identity in zip(run.report.diagnostics, identities(run.report), strict=True):
                span = diagnostic.span or run.report.check.span
                if span.file == path:
                    merged.setdefault((identity, self.span_now(run, span)), []).append((run, diagnostic))
        return [
            Shown(behind[0][1], place, tuple(run for run, _ in behind), tuple(own for _, own in behind))
            for (_, place), behind in merged.items()
        ]

    def causes(self, runs: Iterable[Run], path: str) -> list[Shown]:
        """Errors of other lines that a check in this file brings about, by the inputs that it gives, at the check."""
        found: dict[tuple[Span, str], Shown] = {}
        for run in runs:
            if run.report is None or run.report.verdict is not None or run.report.check.span.file != path:
                continue
            check = run.report.check.span
            for error in run.report.diagnostics:
                told = next((place.message for place in error.related if place.span == check), None)
                if told is None or error.span in (None, check):
                    continue
                assert error.span is not None
                here = replace(
                    error,
                    message=f"this check could not be run: {error.headline}\n{told}",
                    span=check,
                    related=(RelatedPlace(error.span, error.headline),),
                    fixes=(),
                )
                place = self.span_now(run, check)
                found.setdefault((place, here.message), Shown(here, place, (run,), (here,)))
        return list(found.values())

    def diagnostic(self, shown: Shown, *, related: bool) -> types.Diagnostic:
        """The protocol's form of a diagnostic."""
        found = shown.diagnostic
        return types.Diagnostic(
            range=self._documents.ruler(shown.span.file).range(shown.span),
            message=self._message(shown),
            severity=_SEVERITIES[found.severity],
            code=found.code,
            code_description=types.CodeDescription(f"{self._docs}/{found.rule}.md") if self._docs else None,
            source=SOURCE,
            related_information=self._related(shown) if related and shown.runs else None,
            data={
                "rule": found.rule,
                "stale": shown.stale,
                "checks": [{"id": run.key.check, "mesh": run.shown_mesh} for run in shown.runs],
                "fixes": len(found.fixes),
                "searching": shown.searching,
            },
        )

    def edit(self, run: Run, fix: Fix) -> types.WorkspaceEdit:
        """A fix as versioned edits, so that the client refuses it once the text has changed."""
        by_file: dict[str, list[types.TextEdit | types.AnnotatedTextEdit | types.SnippetTextEdit]] = {}
        for edit in fix.edits:
            place = self._place_now(run, edit)
            by_file.setdefault(edit.span.file, []).append(
                types.TextEdit(place, self._line_ends(edit.span.file, edit.text))
            )
        return types.WorkspaceEdit(
            document_changes=[
                types.TextDocumentEdit(
                    types.OptionalVersionedTextDocumentIdentifier(
                        uri=self._documents.uri(path), version=self._documents.version(path)
                    ),
                    edits,
                )
                for path, edits in by_file.items()
            ]
        )

    def insertion(self, place: Span, text: str) -> types.WorkspaceEdit:
        """Text to insert at a place of the text as it is now."""
        edit = types.TextEdit(self._documents.ruler(place.file).range(place), text)
        return types.WorkspaceEdit(changes={self._documents.uri(place.file): [edit]})

    def plain_edit(self, run: Run, fix: Fix) -> types.WorkspaceEdit:
        """The same for clients that know no document changes."""
        changes: dict[str, list[types.TextEdit]] = {}
        for edit in fix.edits:
            text = self._line_ends(edit.span.file, edit.text)
            changes.setdefault(self._documents.uri(edit.span.file), []).append(
                types.TextEdit(self._place_now(run, edit), text)
            )
        return types.WorkspaceEdit(changes=changes)

    def _place_now(self, run: Run, edit: TextEdit) -> types.Range:
        """The place of an edit; a new line comes behind the comment that the line before it has by now."""
        span = self.span_now(run, edit.span)
        line = content(self._documents.lines(span.file)[span.line - 1])
        behind = line[span.column - 1 :].strip()
        if edit.text.startswith(("\n", "\r\n")) and _is_empty(edit.span) and (not behind or behind.startswith("#")):
            span = Span(span.file, span.line, len(line) + 1, span.line, len(line) + 1)
        return self._documents.ruler(span.file).range(span)

    def _line_ends(self, path: str, text: str) -> str:
        """Inserted text ends its lines as the file does."""
        windows = any(line.endswith("\r\n") for line in self._documents.lines(path)[:3])
        return text.replace("\r\n", "\n").replace("\n", "\r\n") if windows else text

    def _message(self, shown: Shown) -> str:
        lines = [shown.diagnostic.message]
        places = sorted({f"{run.key.check.partition('::')[2]} ({run_mesh(run)})" for run in shown.runs})
        if len(places) > 1:
            lines.append("checks: " + ", ".join(places))
        examples = [
            run.report.counterexample for run in shown.runs if run.report is not None and run.report.counterexample
        ]
        if examples:
            lines.append(f"counterexample: {examples[0]}")
        if shown.stale:
            lines.append(STALE_NOTE)
        return "\n".join(lines)

    def _related(self, shown: Shown) -> list[types.DiagnosticRelatedInformation]:
        run = shown.runs[0]
        return [
            types.DiagnosticRelatedInformation(self.location(run, place.span), place.message)
            for place in shown.diagnostic.related
        ]


def _is_empty(span: Span) -> bool:
    return (span.line, span.column) == (span.end_line, span.end_column)


def run_mesh(run: Run) -> str:
    """The mesh of a run in words."""
    mesh = run.shown_mesh
    return " ".join(f"{axis}={size}" for axis, size in mesh.items()) or "its own mesh"
