"""``textDocument/publishDiagnostics``: pushed with the version of the text whose positions they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lsprotocol import types

from graphguard.ir.spans import Span
from graphguard_server.features.checking import marks
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Run
from graphguard_server.state.convert import SOURCE, Shown

SYNTAX_RULE: Final = "trace-error"


class Publisher:
    """Publishes a file's diagnostics whenever they, or the version they are for, have changed."""

    def __init__(self, server: GraphGuardServer) -> None:
        self._server = server
        self._published: dict[str, tuple[int | None, list[types.Diagnostic], object]] = {}

    def publish(self, path: str) -> None:
        """Bring the client up to date about one file."""
        session = self._server.session
        runs = session.runs_in(path)
        found = self.diagnostics(path)
        version = session.documents.version(path)
        gutter = marks.marks(self._server, path)
        now = (version, found, gutter)
        before = self._published.get(path)
        if before == now or (before is None and not found and not any(run.known for run in runs)):
            return
        self._published[path] = now
        uri = session.documents.uri(path)
        if self._server.pulls:
            self._server.teller.ask_for_diagnostics()
        else:
            self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))
        self._server.protocol.notify(protocol.MARKS, gutter)

    def diagnostics(self, path: str) -> list[types.Diagnostic]:
        """What there is to say about a file now."""
        server = self._server
        runs = server.session.runs_in(path)
        related = server.supports("text_document.publish_diagnostics.related_information")
        converter = server.session.converter
        found = [converter.diagnostic(shown, related=related) for shown in converter.shown(runs, path)]
        found.extend(converter.diagnostic(shown, related=related) for shown in converter.causes(runs, path))
        found.extend(self._failures(path, runs))
        found.extend(self._syntax(path))
        found.extend(self._plain(place, text, False) for place, text in self._misconfigured(path))
        found.extend(self._unused_waivers(path, runs))
        return sorted(found, key=lambda each: (each.range.start.line, each.range.start.character, each.message))

    def _failures(self, path: str, runs: list[Run]) -> list[types.Diagnostic]:
        """At the check: why it could not be run at all."""
        session = self._server.session
        found = []
        for run in runs:
            known = session.run_of(run.key)
            if run.failure and known is not None and known[0].file == path:
                span = known[0].ref.span
                found.append(self._plain(span, f"this check could not be run: {run.failure}", run.stale))
        return found

    def _unused_waivers(self, path: str, runs: list[Run]) -> list[types.Diagnostic]:
        """Waivers that silence nothing; known only once every check of the file has a fresh result."""
        session = self._server.session
        text = session.documents.text(path)
        if (
            not runs
            or text is None
            or "graphguard:" not in text
            or any(run.stale or run.report is None for run in runs)
        ):
            return []
        levels = session.projects[runs[0].key.root].configuration.levels or {}
        reports = [run.report for run in runs if run.report is not None]
        converter = session.converter
        return [
            converter.diagnostic(Shown(each, each.span, ()), related=False)
            for each in session.engine.unused_waivers(reports, path, text, levels)
            if each.span is not None
        ]

    def _syntax(self, path: str) -> list[types.Diagnostic]:
        """One diagnostic while a file that checks depend on does not parse; earlier results stay beside it, marked stale."""
        session = self._server.session
        for project in session.projects.values():
            error = project.unreadable.get(path)
            if error is not None:
                line, column = error.lineno or 1, error.offset or 1
                span = Span(path, line, max(column, 1), error.end_lineno or 0, error.end_offset or 0)
                if (span.end_line, span.end_column) <= (line, column):
                    span = Span(path, line, max(column, 1))
                return [self._plain(span, f"not checked: {error.msg}\nthe last results stay until this parses", False)]
        return []

    def _misconfigured(self, path: str) -> Iterator[tuple[Span, str]]:
        """What is wrong with a configuration, at its line, without the name of its file."""
        for place, text in self._server.session.misconfigured.values():
            if place.file == path:
                yield place, text.partition(": ")[2] or text

    def _plain(self, span: Span, message: str, stale: bool) -> types.Diagnostic:
        session = self._server.session
        docs = session.settings.docs
        return types.Diagnostic(
            range=session.documents.ruler(span.file).range(span),
            message=message,
            severity=types.DiagnosticSeverity.Error,
            code=SYNTAX_RULE,
            code_description=types.CodeDescription(f"{docs}/{SYNTAX_RULE}.md") if docs else None,
            source=SOURCE,
            data={"rule": SYNTAX_RULE, "stale": stale, "checks": [], "fixes": 0, "searching": False},
        )
