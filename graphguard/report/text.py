"""Reports as people read them on a terminal: findings in the manner of rustc, then one line for every check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from graphguard.confirm.confirmation import Counterexample
from graphguard.report.diagnostics import REAL_ARITHMETIC, Diagnostic, Fix, Report, Verdict
from graphguard.report.edits import EditError, changed_files, changed_lines
from graphguard.report.excerpt import Gutter, Mark, change, excerpt
from graphguard.report.folding import Folded, folded, mesh_text, sharing
from graphguard.report.layout import Page, width, wrapped
from graphguard.report.sources import Sources

SHOWN_INPUTS = 6
FORMULAS = 2  # from here on verbose tells relations as formulas
_WORDS = {Verdict.REFINES: "refines", Verdict.BROKEN: "broken", Verdict.UNKNOWN: "unknown", None: "could not run"}
_COLOURS = {Verdict.REFINES: "refines", Verdict.BROKEN: "broken", Verdict.UNKNOWN: "unknown", None: "error"}


def render(
    reports: Sequence[Report], sources: Sources | None = None, page: Page | None = None, *, verbose: int = 0
) -> str:
    """Findings of all reports, then their summary."""
    sources, page = sources or Sources(), page or Page()
    return findings(reports, sources, page) + summary(reports, page, sources, verbose=verbose)


def findings(reports: Sequence[Report], sources: Sources, page: Page, told: set[Hashable] | None = None) -> str:
    """Every distinct diagnostic of reports, each followed by an empty line; the counterexample stands with the first error.

    ``told`` are the keys of findings that were shown before and are not shown again; those shown now are added.
    """
    told = set() if told is None else told
    proved_wrong: set[int] = set()
    blocks = []
    for finding in folded(reports):
        if finding.key in told:
            continue
        told.add(finding.key)
        evidence = None
        first = finding.reports[0]
        if finding.diagnostic.severity == "error" and id(first) not in proved_wrong:
            evidence = first.counterexample
            proved_wrong.add(id(first))
        blocks.append("\n".join(_finding(finding, evidence, sources, page)) + "\n\n")
    return "".join(blocks)


def _finding(finding: Folded, evidence: Counterexample | None, sources: Sources, page: Page) -> Iterator[str]:
    diagnostic, report = finding.diagnostic, finding.reports[0]
    marks = _marks(diagnostic)
    last = max((mark.end_line for mark in marks), default=0)
    gutter = Gutter(len(str(last + 3)), page)
    yield page.paint(diagnostic.severity, f"{diagnostic.severity}[{diagnostic.rule}]") + page.paint(
        "note", f": {diagnostic.headline}"
    )
    if marks:
        yield from excerpt(marks, sources, gutter)
    else:
        yield gutter.arrow("-->", sources.shown_check(report.check))
    for kind, text in notes(diagnostic):
        yield from _note(gutter, kind, text)
    if evidence is not None:
        yield from _note(gutter, "counterexample", str(evidence))
        yield from _note(gutter, "inputs", _inputs(evidence))
    if shared := sharing(finding, sources.shown_check):
        kind, _, text = shared.partition(": ")
        yield from _note(gutter, kind, text)
    for fix in diagnostic.fixes[:1]:
        yield from _fix(fix, diagnostic, sources, gutter)
    for title in dict.fromkeys(map(fix_title, diagnostic.fixes)):
        if title != fix_title(diagnostic.fixes[0]):
            yield from _note(gutter, "or", title)


def _marks(diagnostic: Diagnostic) -> list[Mark]:
    if diagnostic.span is None:
        return [Mark(place.span, place.message, primary=False) for place in diagnostic.related]
    first = Mark(diagnostic.span, "", primary=True, severity=diagnostic.severity)
    return [first, *(Mark(place.span, place.message, primary=False) for place in diagnostic.related)]


def notes(diagnostic: Diagnostic) -> list[tuple[str, str]]:
    """The lines of a message below its headline as (kind, text): ``needed: ...`` is of kind needed, a line without a kind is a note.

    A line ``fix: ...`` is left out where the fix itself is there to be shown.
    """
    found = []
    for line in diagnostic.message.splitlines()[1:]:
        kind, colon, text = line.partition(": ")
        if kind == "fix" and diagnostic.fixes:
            continue
        if colon and kind.isidentifier() and kind.islower():
            found.append((kind, text.strip()))
        elif line.strip():
            found.append(("note", line.strip()))
    return found


def _note(gutter: Gutter, kind: str, text: str) -> list[str]:
    indent = gutter.digits + len(kind) + 5
    first, *rest = wrapped(text, "", "", gutter.page.width - indent)
    return [gutter.note(kind, first), *(" " * indent + line for line in rest)]


def _inputs(evidence: Counterexample) -> str:
    """The inputs of a counterexample, those with the same values together: ``tp=2; x 2x8: integers, seed 1; all ones: w 8x4``."""
    alike: dict[str, list[str]] = {}
    for name, how in evidence.inputs.items():
        shape = "x".join(map(str, evidence.shapes.get(name, ())))
        alike.setdefault(how, []).append(f"{name} {shape}".strip())
    parts = [mesh_text(evidence.mesh), "at reduced sizes" if evidence.reduced else ""]
    for how, names in alike.items():
        more = f" and {len(names) - SHOWN_INPUTS} more" if len(names) > SHOWN_INPUTS else ""
        parts.append(f"{how}: {', '.join(names[:SHOWN_INPUTS])}{more}")
    return "; ".join(part for part in parts if part)


def fix_title(fix: Fix) -> str:
    """What a fix does, whether it was proved, and what it costs."""
    cost = f", moves {bytes_text(fix.bytes_moved)}" if fix.bytes_moved else ""
    return f"{fix.title} ({'proved' if fix.proved else 'not proved'}{cost})"


def _fix(fix: Fix, diagnostic: Diagnostic, sources: Sources, gutter: Gutter) -> Iterator[str]:
    yield from _note(gutter, "fix", fix_title(fix))
    try:
        files = changed_files(fix, sources)
    except EditError:
        return  # the file has changed since: the title still says what to do
    for file, (before, after) in files.items():
        if before == after:
            continue
        if diagnostic.span is None or file != diagnostic.span.file:
            yield gutter.arrow(":::", sources.shown(file))
        yield from change(changed_lines(before, after), gutter)


def summary(reports: Sequence[Report], page: Page, sources: Sources | None = None, *, verbose: int = 0) -> str:
    """One line for every report, what it alone rests on, the totals, and last what several rest on."""
    if not reports:
        return ""
    sources = sources or Sources()
    names = [sources.shown_check(report.check) for report in reports]
    meshes = [mesh_text(report.mesh) for report in reports]
    name_width = max(map(width, names))
    mesh_width = max(map(width, meshes))
    counts = Counter(line for report in reports for line in report.particular_assumptions)
    rows: list[str] = []
    elsewhere = _told_elsewhere(reports, sources)
    for report, name, mesh in zip(reports, names, meshes, strict=True):
        word = page.paint(_COLOURS[report.verdict], _WORDS[report.verdict])
        padding = " " * (name_width - width(name))
        waived = f"  ({len(report.waived)} waived)" if report.waived else ""
        if first := elsewhere.get(id(report)):
            waived += f"  (the finding of {first})"
        rows.append(f"{name}{padding}  {mesh:<{mesh_width}}  {word}  {page.paint('faint', took(report))}{waived}")
        own = [line for line in report.particular_assumptions if counts[line] == 1]
        rows += _below(report, own, page, verbose=verbose)
    rows += ["", totals(reports)]
    for line, count in counts.items():
        if count > 1:
            rows += wrapped(line, f"assumed ({count} checks): ", "    ", page.width)
    if any(REAL_ARITHMETIC in report.assumed for report in reports):
        rows += [page.paint("faint", row) for row in wrapped(REAL_ARITHMETIC, "assumed: ", "    ", page.width)]
    return "\n".join(rows) + "\n"


def _told_elsewhere(reports: Sequence[Report], sources: Sources) -> dict[int, str]:
    """For reports that share a finding with an earlier check, by identity: that check."""
    shared: dict[int, str] = {}
    for finding in folded(reports):
        first = finding.reports[0].check
        name = sources.shown_check(first)
        shared |= {id(report): name for report in finding.reports if report.check.id != first.id}
    return shared


def _below(report: Report, assumed: Sequence[str], page: Page, *, verbose: int) -> Iterator[str]:
    for kind, lines in (("assumed", assumed), ("caution", report.cautions), ("not compared", report.not_compared)):
        for line in lines:
            yield from wrapped(line, f"    {kind}: ", " " * (len(kind) + 6), page.width)
    if report.audit:
        yield from wrapped(f"audited: {report.audit}", "    ", "        ", page.width)
    if verbose:
        if report.numbers is not None:
            yield from wrapped(f"numbers: {report.numbers}", "    ", "        ", page.width)
        for name, relation in report.relations.items():
            words = report.layouts.get(name) if verbose < FORMULAS else None
            yield from wrapped(f"{name}: {words}" if words else f"{name} = {relation}", "    ", "        ", page.width)


def totals(reports: Sequence[Report]) -> str:
    """How many checks ended how, in one line."""
    counts = Counter(report.verdict for report in reports)
    words = {Verdict.REFINES: "refine", Verdict.BROKEN: "broken", Verdict.UNKNOWN: "unknown", None: "could not run"}
    parts = [f"{counts[verdict]} {word}" for verdict, word in words.items() if counts[verdict]]
    waived = sum(len(report.waived) for report in reports)
    more = f"; {waived} finding{'s' if waived != 1 else ''} waived" if waived else ""
    return f"{len(reports)} check{'s' if len(reports) != 1 else ''}: {', '.join(parts)}{more}"


def took(report: Report) -> str:
    """How long a check took: ``41 ms``, ``2.3 s``, or ``cached``."""
    seconds = sum(report.seconds.values())
    duration = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    if report.cached and not report.seconds:
        return "cached"
    return f"{duration}, cached" if report.cached else duration


def bytes_text(count: int) -> str:
    """A number of bytes: ``512 B``, ``4.0 KiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes every size")
