"""Literate cases: a Markdown file whose sections are small programs with their expected findings inline.

README.md in this folder tells the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from graphguard.report.diagnostics import Diagnostic, Report
from graphguard.report.edits import changed_files, changed_lines
from graphguard.report.folding import mesh_text
from graphguard.report.sources import Sources

MAIN = "check.py"
# Alone on a line of a section, outside of its blocks.
SLOW = "<!-- slow -->"
VERDICTS = ("refines", "broken", "unknown", "not-run")
_FILE = re.compile(r"#\s*file:\s*(?P<name>\S+)\s*$")
_FINDING = re.compile(
    r'#\s*(?P<severity>error|warning|information|hint):\s*\[(?P<rule>[\w|-]+)\](?:\s*"(?P<text>.*)")?\s*$'
)
_SAYING = re.compile(
    r"#\s*(?P<kind>relation|verdict|counterexample|assumed|caution|not compared|traced|proved|evaluated):\s*(?P<text>.*\S)\s*$"
)
_EDIT = re.compile(r"#\s*edit:\s*(?P<name>\S+)\s*$")
COUNTED = ("traced", "proved", "evaluated")


class CaseError(Exception):
    """The Markdown file is not a case file; the message names its line."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A finding that must be there: at a line of a file, of a rule, with a fragment of its message."""

    file: str
    line: int
    severity: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f'{self.file}:{self.line}  {self.severity}: [{self.rule}] "{self.text}"'


@dataclass(frozen=True, slots=True)
class Case:
    """A section: its files, what must be found, and what must be said of the checks.

    ``edits`` are its states after each edit; one that is ``slow`` is none that a contributor waits for.
    """

    title: str
    line: int
    files: dict[str, str] = field(default_factory=dict)
    expected: tuple[Expected, ...] = ()
    verdict: str = ""
    sayings: tuple[tuple[str, str], ...] = ()
    fix: tuple[str, ...] | None = None
    edits: tuple[Case, ...] = ()
    slow: bool = False

    def wanted_verdicts(self, reports: int) -> list[str]:
        """The stated verdict of every report, in order; else broken where an error is expected, refines where nothing is."""
        if not self.verdict:
            broken = any(each.severity == "error" for each in self.expected)
            return ["broken" if broken else "refines"] * reports
        stated = self.verdict.split(" | ")
        return stated * reports if len(stated) == 1 else stated


def read_cases(text: str) -> list[Case]:
    """The cases of a Markdown file; blocks before the first section belong to every case.  Raises :class:`CaseError`."""
    shared = Case("", 1)
    cases: list[Case] = []
    for kind, line, body in _parts(text):
        if kind == "section":
            if any(case.title == body for case in cases):
                raise CaseError(f"line {line}: two sections are called {body!r}")
            cases.append(replace(shared, title=body, line=line))
        elif kind == "slow":
            if not cases:
                raise CaseError(f"line {line}: {SLOW} belongs to a section")
            cases[-1] = replace(cases[-1], slow=True)
        elif not cases:
            shared = _with_block(shared, kind, line, body)
        elif kind == "python" and (edit := _EDIT.match(body.partition("\n")[0])):
            cases[-1] = _edited(cases[-1], shared, edit["name"], line, body)
        elif cases[-1].edits:
            raise CaseError(f"line {line}: after '# edit:' blocks a section has nothing else")
        else:
            cases[-1] = _with_block(cases[-1], kind, line, body)
    return [case for case in cases if case.files != shared.files]


def _parts(text: str) -> Iterator[tuple[str, int, str]]:
    """Headings of the second level, marks and fenced blocks: (section | slow | info string, line, title | nothing | content)."""
    block: list[str] = []
    info: str | None = None
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        if info is not None:
            if line.startswith("```"):
                yield info, start, "".join(f"{row}\n" for row in block)
                info = None
            else:
                block.append(line)
        elif line.startswith("```"):
            info, start, block = line[3:].strip(), number, []
        elif line.startswith("## "):
            yield "section", number, line[3:].strip()
        elif line.strip() == SLOW:
            yield "slow", number, ""
    if info is not None:
        raise CaseError(f"line {start}: a block that does not end")


def _edited(case: Case, shared: Case, name: str, line: int, body: str) -> Case:
    """The case with a further state: what its own blocks wrote to a file is replaced; only this block says what is found then."""
    before = case.edits[-1] if case.edits else case
    if name not in before.files:
        raise CaseError(f"line {line}: there is no {name} to be edited")
    files = {**before.files, name: shared.files.get(name, "")}
    after = _written(Case(case.title, line, files), name, line, body.partition("\n")[2])
    return replace(case, edits=(*case.edits, after))


def _with_block(case: Case, info: str, line: int, body: str) -> Case:
    if info == "diff":
        return replace(case, fix=tuple(row for row in body.splitlines() if row[:1] in ("+", "-")))
    if info != "python":
        return case
    named = _FILE.match(body.partition("\n")[0])
    return _written(case, named["name"] if named else MAIN, line, body)


def _written(case: Case, name: str, line: int, body: str) -> Case:
    """The case after a block was joined to a file."""
    before = case.files.get(name, "")
    offset = before.count("\n")
    verdict, sayings, expected = _expectations(name, body, offset)
    for each in verdict.split(" | ") if verdict else ():
        if each not in VERDICTS:
            raise CaseError(f"line {line}: {each!r} is no verdict ({', '.join(VERDICTS)})")
    return replace(
        case,
        files={**case.files, name: before + _program(body)},
        expected=(*case.expected, *expected),
        verdict=verdict or case.verdict,
        sayings=(*case.sayings, *sayings),
    )


def _program(body: str) -> str:
    """The block without the comments at the ends of its lines, so that a fix need not carry them along."""
    return "".join(f"{_without(line)}\n" for line in body.splitlines())


def _without(line: str) -> str:
    return line if line.lstrip().startswith("#") else _FINDING.sub("", line).rstrip()


def _expectations(file: str, body: str, offset: int) -> tuple[str, list[tuple[str, str]], list[Expected]]:
    """The comments of a block; one that stands alone on its line speaks of the next line that is no such comment."""
    verdict, sayings, expected, pending = "", [], [], []
    for number, line in enumerate(body.splitlines(), offset + 1):
        saying, finding = _SAYING.search(line), _FINDING.search(line)
        if saying:
            if saying["kind"] == "verdict":
                verdict = saying["text"]
            else:
                sayings.append((saying["kind"], saying["text"]))
        elif finding:
            found = Expected(file, number, finding["severity"], finding["rule"], finding["text"] or "")
            (pending if line.lstrip().startswith("#") else expected).append(found)
            if line.lstrip().startswith("#"):
                continue
        expected += [replace(each, line=number) for each in pending]
        pending = []
    return verdict, sayings, expected + pending


def differences(
    case: Case, reports: Sequence[Report], sources: Sources, counts: Mapping[str, int] | None = None
) -> list[str]:
    """What is not as the case says, in lines for people; empty where all is well.

    ``counts`` say how many checks were recorded (``traced``) and proved (``proved``) anew, not taken from before, and how many of the
    ``calls`` of operators were ``evaluated``.
    """
    if not reports:
        return ["no check was found"]
    wanted = case.wanted_verdicts(len(reports))
    wrong = [
        f"{report.check.name} {mesh_text(report.mesh)}: verdict {_verdict(report)}, expected {verdict}"
        for report, verdict in zip(reports, wanted, strict=False)
        if _verdict(report) != verdict
    ]
    if len(wanted) != len(reports):
        wrong.append(f"{len(reports)} reports, {len(wanted)} verdicts are stated")
    wrong += _finding_differences(case, reports, sources)
    for kind, text in case.sayings:
        if kind in COUNTED:
            wrong += _count_differences(kind, text, counts or {})
            continue
        wrong += _saying_differences(kind, text, reports)
    if case.fix is not None:
        wrong += _fix_differences(case.fix, reports, sources)
    return wrong


def _count_differences(kind: str, text: str, counts: Mapping[str, int]) -> Iterator[str]:
    """A count is stated exactly, or as less than a part of all calls: ``< 1/4``."""
    count = counts.get(kind, 0)
    if text.startswith("<"):
        if not count < Fraction(text[1:].strip()) * counts.get("calls", 0):
            yield f"{count} of {counts.get('calls', 0)} {kind}, {text} expected"
    elif str(count) != text:
        yield f"{count} {kind} anew, {text} expected"


def _verdict(report: Report) -> str:
    return "not-run" if report.verdict is None else report.verdict.value


def _finding_differences(case: Case, reports: Sequence[Report], sources: Sources) -> Iterator[str]:
    found = {diagnostic: _place(diagnostic, sources) for report in reports for diagnostic in report.diagnostics}
    matched = set()
    for each in case.expected:
        matching = [diagnostic for diagnostic, place in found.items() if _matches(each, diagnostic, place)]
        matched.update(matching)
        if not matching:
            yield f"missing:    {each}"
    for diagnostic, (file, line) in found.items():
        if diagnostic not in matched:
            yield f"unexpected: {Expected(file, line, diagnostic.severity, diagnostic.rule, diagnostic.headline)}"


def _place(diagnostic: Diagnostic, sources: Sources) -> tuple[str, int]:
    return (sources.shown(diagnostic.span.file), diagnostic.span.line) if diagnostic.span else ("", 0)


def _matches(each: Expected, diagnostic: Diagnostic, place: tuple[str, int]) -> bool:
    return (
        place == (each.file, each.line)
        and diagnostic.rule in each.rule.split("|")
        and diagnostic.severity == each.severity
        and each.text in diagnostic.message
    )


def _saying_differences(kind: str, text: str, reports: Sequence[Report]) -> Iterator[str]:
    for report in reports:
        if kind == "relation":
            said = [f"{name} = {relation}" for name, relation in report.relations.items()]
        elif kind == "assumed":
            said = list(report.assumed)
        elif kind == "caution":
            said = list(report.cautions)
        elif kind == "not compared":
            said = list(report.not_compared)
        else:
            said = [str(report.counterexample)]
        if not any(text == each if kind == "relation" else text in each for each in said):
            name = text.partition(" = ")[0]
            near = [each for each in said if kind != "relation" or each.startswith(f"{name} = ")]
            yield f"{report.check.name} {mesh_text(report.mesh)}: {kind} {text!r} expected, found {near or 'none'}"


def _fix_differences(wanted: tuple[str, ...], reports: Sequence[Report], sources: Sources) -> Iterator[str]:
    fixes = [fix for report in reports for diagnostic in report.diagnostics for fix in diagnostic.fixes[:1]]
    if not fixes:
        yield "no fix was offered"
    for fix in fixes:
        signs = {"removed": "-", "added": "+"}
        hunks = [
            hunk for before, after in changed_files(fix, sources).values() for hunk in changed_lines(before, after)
        ]
        changed = tuple(signs[line.kind] + line.text for hunk in hunks for line in hunk if line.kind in signs)
        if changed != wanted:
            yield "another fix was offered:\n" + "\n".join(changed)
        if not fix.proved:
            yield f"the fix {fix.title!r} is not proved"
