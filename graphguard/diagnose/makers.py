"""Where the parameters are made that a finding is about: their marks, placements and groups are given there, and neither where they are read nor where their gradients are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphguard.diagnose.libraries import library_of
from graphguard.ir import Capture, Span
from graphguard.refine.finding import Finding, Related
from graphguard.repair.text.frames import Sources
from graphguard.repair.writing.words import listed

_MOST = 4  # lines; what concerns more is told of no parameter


def with_makers(finding: Finding, capture: Capture, sources: Sources) -> Finding:
    """The finding, with the lines that make the parameters it is about: those it names, or whose gradients alone are not reduced."""
    lines: dict[tuple[Span, str], list[str]] = {}
    modules: dict[Span, None] = {}
    for name, seen in dict((*_unreduced(finding), *finding.parameters)).items():
        own, *outer = _lines(name, capture, sources) or (None,)
        if own is not None:
            lines.setdefault((own, seen), []).append(name)
            modules.update(dict.fromkeys(outer))
    told = [Related(span, _text(span, seen, names)) for (span, seen), names in lines.items()]
    told += [Related(span, "and its module here") for span in modules]
    known = {finding.span, *(place.span for place in finding.related)}
    related = (*finding.related, *(place for place in told if place.span not in known))
    return finding if len(told) > _MOST else replace(finding, related=related)


def _unreduced(finding: Finding) -> Iterator[tuple[str, str]]:
    """The parameters whose gradients are not reduced, if these are all that the finding is about; by its own name for them where the program calls them otherwise."""
    if finding.rule == "gradient-not-reduced":
        gradients = all(name.startswith("grad(") for name in finding.promises)
        names = [name[5:-1] for name in finding.promises] if gradients else finding.tensor.split(", ")
        yield from ((name, "") for name in names)


def _lines(name: str, capture: Capture, sources: Sources) -> list[Span]:
    """The line of a parameter's own module, and where that is a library's, the one that makes this module; it alone where the other makes those of several."""
    spans = [frame.span for frame in capture.made.get(name, ())]
    others = ([frame.span for frame in frames] for frames in capture.made.values())
    if len(spans) > 1 and any(other[0] == spans[0] and other != spans for other in others):
        return spans[1:]
    return spans[:1] if spans and sources.in_project(spans[0].file) else spans


def _text(span: Span, seen: str, names: list[str]) -> str:
    library = library_of(span.file)
    made = f"{listed(names)} {'is' if len(names) == 1 else 'are'} made here{library and f', in {library}'}"
    return f"{made}: {seen}" if seen else made
