"""Pictures of proofs for the relation explorer: kept here, so that scrolling asks no other process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from graphguard.ir.plain import from_plain
from graphguard.ir.spans import Span
from graphguard_server.state.checks import Run
from graphguard_server.texts.places import code_at

KEPT: Final = 4
SHOWN_UNFOLDED: Final = 2


@dataclass(frozen=True)
class Picture:
    """A prover's answer to ``picture`` with the run that it is of: fields as in :class:`graphguard.checks.explorer.rows.Picture`."""

    run: Run
    proof: str
    ranks: list[list[int]]
    rows: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    sites: list[dict[str, Any]]

    @cached_property
    def spans(self) -> list[tuple[Span, ...]]:
        """The spans of every site, innermost first."""
        return [tuple(from_plain(Span, span) for span in site["spans"]) for site in self.sites]

    @cached_property
    def code(self) -> list[str]:
        """What stands in the source at every site, with the name that it is assigned to."""
        texts = self.run.snapshot
        return [code_at(texts.get(spans[0].file), spans[0]) if spans else "" for spans in self.spans]

    @cached_property
    def columns(self) -> list[int]:
        """The ranks that are shown at first: all of a few, else one of every class."""
        count = sum(map(len, self.ranks))
        return list(range(count)) if count <= SHOWN_UNFOLDED else [ranks[0] for ranks in self.ranks]

    def at(self, span: Span, phase: str = "") -> list[int]:
        """The rows that are computed at a span, in order; those that only a call there computes where no expression is just that."""
        inner = {number for number, spans in enumerate(self.spans) if spans[:1] == (span,)}
        outer = {number for number, spans in enumerate(self.spans) if span in spans}
        for sites in (inner, outer):
            rows = [
                number
                for number, row in enumerate(self.rows)
                if (not phase or row["phase"] == phase) and any(site in sites for site in _sites(row))
            ]
            if rows:
                return rows
        return []

    @cached_property
    def frontier(self) -> list[int]:
        """The rows that are off the relation while what they are made of is on it."""
        return [number for number, row in enumerate(self.rows) if row["state"] == "broken"]

    def found(self) -> dict[Span, int]:
        """The row of every finding, by its span: of several at its place the last before the frontier, else the first."""
        report = self.run.report
        if report is None or self.run.result not in ("broken", "unknown"):
            return {}
        first = min(self.frontier, default=len(self.rows))
        spans = {each.span for each in report.diagnostics if each.span is not None}
        rows = {span: self.at(span) for span in spans}
        return {span: max((row for row in at if row <= first), default=at[0]) for span, at in rows.items() if at}

    def finds(self, text: str) -> list[int]:
        """The rows in which a text occurs, whatever its case: in modules, names, code, operators, relations, layouts."""
        wanted = text.casefold()
        return [number for number, words in enumerate(self._words) if wanted in words]

    @cached_property
    def _words(self) -> list[str]:
        return ["\n".join(self._said(row)).casefold() for row in self.rows]

    def _said(self, row: dict[str, Any]) -> Iterator[str]:
        yield from (row["module"], row["layout"], row["relation"])
        for site in dict.fromkeys(_sites(row)):
            yield from (self.code[site], *self.sites[site]["operators"])
        yield from dict.fromkeys(
            text for cell in row["cells"] if cell is not None for text in (cell["name"], cell["text"])
        )


class Pictures:
    """The last pictures, by proof."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Picture] = OrderedDict()

    def known(self, run: Run) -> Picture | None:
        """The picture of a run, where it was asked for before."""
        picture = self.named(run.report.proof) if run.report is not None else None
        return picture if picture is not None and picture.run is run else None

    def named(self, proof: str) -> Picture | None:
        """The picture of a proof, where it was asked for before."""
        return self._kept.get(proof)

    def keep(self, run: Run, proof: str, answer: dict[str, Any]) -> Picture:
        """What a prover answered, as the picture of a run."""
        picture = Picture(run, proof, answer["ranks"], answer["rows"], answer["groups"], answer["sites"])
        self._kept[proof] = picture
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return picture


def needed_and_found(message: str) -> dict[str, str]:
    """What the message of a finding says is needed and found."""
    rows = (line.partition(": ") for line in message.splitlines())
    return {kind: text.strip() for kind, colon, text in rows if colon and kind in ("needed", "found")}


def nearest(rows: Sequence[int], to: Iterable[int]) -> int | None:
    """Of some rows the nearest to any of others; the first where there are no others."""
    goals = list(to)
    return min(rows, key=lambda row: min((abs(row - goal) for goal in goals), default=0), default=None)


def _sites(row: dict[str, Any]) -> Iterator[int]:
    return (cell["site"] for cell in row["cells"] if cell is not None)
