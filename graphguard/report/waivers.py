"""Silencing findings: ``# graphguard: ignore[rule]`` comments, rules that the configuration turns off, and unused comments."""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphguard.ir.spans import Span
from graphguard.report.catalogue import RULES
from graphguard.report.diagnostics import Diagnostic, Report
from graphguard.report.registry import reported
from graphguard.report.sources import Sources

_COMMENT = re.compile(r"#\s*graphguard:\s*ignore\b(?:\[(?P<rules>[^\]]*)\])?")
UNUSED = "unused-ignore"
OFF = "off"


@dataclass(frozen=True, slots=True)
class Waiver:
    """One rule named in a comment; ``rule`` is empty where the comment names none."""

    span: Span
    rule: str


def waivers(file: str, text: str) -> tuple[Waiver, ...]:
    """Every waiver of a file, in order; a file that does not tokenize has those before the error."""
    found: list[Waiver] = []
    for line, column, comment in _comments(text):
        for match in _COMMENT.finditer(comment):
            span = Span(file, line, column + match.start() + 1, line, column + match.end() + 1)
            names = [name.strip() for name in (match["rules"] or "").split(",")]
            found += [Waiver(span, name) for name in names if name or len(names) == 1]
    return tuple(found)


def _comments(text: str) -> Iterator[tuple[int, int, str]]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield *token.start, token.string
    except (tokenize.TokenError, SyntaxError):
        return


@dataclass(slots=True)
class Waivers:
    """The waivers of the files that reports speak of, and which of them were needed."""

    sources: Sources
    levels: Mapping[str, str]
    _files: dict[str, tuple[Waiver, ...]]
    _used: set[Waiver]

    def __init__(self, sources: Sources, levels: Mapping[str, str] | None = None) -> None:
        self.sources, self.levels = sources, levels or {}
        self._files, self._used = {}, set()

    def apply(self, report: Report) -> Report:
        """The report with silenced diagnostics moved to ``waived``."""
        silent = {diagnostic for diagnostic in report.diagnostics if self._silences(diagnostic)}
        if not silent:
            return report
        kept = tuple(each for each in report.diagnostics if each not in silent)
        moved = tuple(each for each in report.diagnostics if each in silent)
        return replace(report, diagnostics=kept, waived=(*report.waived, *moved))

    def _silences(self, diagnostic: Diagnostic) -> bool:
        if self.levels.get(diagnostic.rule) == OFF:
            return True
        if diagnostic.span is None:
            return False
        lines = range(diagnostic.span.line, max(diagnostic.span.line, diagnostic.span.end_line) + 1)
        matching = {
            waiver
            for waiver in self._of(diagnostic.span.file)
            if waiver.rule == diagnostic.rule and waiver.span.line in lines
        }
        self._used |= matching
        return bool(matching)

    def _of(self, file: str) -> tuple[Waiver, ...]:
        if file not in self._files:
            self._files[file] = waivers(file, self.sources.text(file))
        return self._files[file]

    def unused(self, files: Iterable[str]) -> list[Diagnostic]:
        """A diagnostic for every waiver of these files that silenced nothing in the reports seen so far."""
        if self.levels.get(UNUSED) == OFF:
            return []
        spare = [waiver for file in files for waiver in self._of(file) if waiver not in self._used]
        return [reported(UNUSED, _why(waiver), self.levels, waiver.span) for waiver in spare]


def _why(waiver: Waiver) -> str:
    if not waiver.rule:
        return "the waiver names no rule: write '# graphguard: ignore[rule]'"
    if waiver.rule not in RULES:
        similar = difflib.get_close_matches(waiver.rule, RULES, n=1)
        hint = f"; did you mean '{similar[0]}'?" if similar else " (graphguard explain lists them)"
        return f"the waiver names '{waiver.rule}', which is no rule{hint}"
    return f"unused waiver: no '{waiver.rule}' is found on this line"


def with_unused(reports: Sequence[Report], unused: Iterable[Diagnostic]) -> list[Report]:
    """The reports with each unused waiver added to the first that concerns its file, else to the first."""
    found = list(reports)
    for diagnostic in unused:
        assert diagnostic.span is not None
        file = diagnostic.span.file
        owner = next((i for i, each in enumerate(found) if file == each.check.span.file or file in each.sources), 0)
        found[owner] = replace(found[owner], diagnostics=(*found[owner].diagnostics, diagnostic))
    return found
