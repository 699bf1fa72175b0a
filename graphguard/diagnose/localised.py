"""What interventions say of a broken claim: findings at the places that they show, and which repairs only make up for a defect elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphguard.diagnose.localise.lines import Lines
from graphguard.diagnose.localise.mends import STRENGTH, Mend
from graphguard.diagnose.localise.search import Search
from graphguard.diagnose.localise.sites import MOVES
from graphguard.diagnose.localise.telling import Telling
from graphguard.ir import Capture
from graphguard.ir.strict import STRICT
from graphguard.ops import REDUCTIONS
from graphguard.refine.finding import Finding
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.alignment import Alignment
from graphguard.repair.graph.edits import InsertCall, InsertReduction, OtherCalls
from graphguard.repair.graph.meanings import Sending
from graphguard.repair.text.frames import Sources
from graphguard.repair.trying.trials import Repair

FUEL = 40_000
"""Calls that may run again: between one and two seconds of a processor."""


log = logging.getLogger(__name__)


@dataclass(slots=True)
class Localised:
    """The search on one broken capture, prepared when it is first asked."""

    capture: Capture
    proof: Proof
    alignment: Alignment
    broken: Sequence[str]
    sources: Sources
    ratios: Mapping[str, float] = field(default_factory=dict)
    _search: list[Search | None] = field(default_factory=list)
    _culprits: list[tuple[Mend, Finding]] | None = None

    @property
    def search(self) -> Search | None:
        """The search; None where the programs have no numbers at hand."""
        if not self._search:
            with np.errstate(all="ignore"):
                ratios = {self.ratios[name] for name in self.broken if self.ratios.get(name)}
                self._search.append(Search.of(self.capture, self.proof, self.alignment, self.broken, FUEL, ratios))
        return self._search[0]

    @np.errstate(all="ignore")
    def culprits(self) -> list[tuple[Mend, Finding]]:
        """What interventions show, searched once, and what is to be said of it; none that only makes up for a defect."""
        if self._culprits is None:
            self._culprits = []
            if self.search is not None:
                try:
                    self._search_them(self.search, self._culprits)
                except Exception:
                    if STRICT:
                        raise
                    # a defect of ours here must not cost the verdict: families tell what they know
                    log.exception("interventions found no place")
        return self._culprits

    def _search_them(self, search: Search, found: list[tuple[Mend, Finding]]) -> None:
        telling = Telling(Lines(search, self.sources))
        found.extend((mend, telling.finding(mend)) for mend in search.culprits() if mend.evidence != "another")

    def findings(self) -> list[Finding]:
        """A finding for every culprit."""
        return [finding for _, finding in self.culprits()]

    def explains_all(self, broken: Sequence[str]) -> bool:
        """Whether one culprit, shown by its own operands, explains all that is broken."""
        first = self._first(broken)
        return first is not None and STRENGTH[first.evidence] <= STRENGTH["factor"]

    def explains_by_a_factor(self, broken: Sequence[str]) -> bool:
        """Whether all that is broken is right but for one factor: then nothing else is its cause."""
        first = self._first(broken)
        return first is not None and first.tried.factor is not None

    def computes_wrongly(self) -> bool:
        """Whether the first culprit is a step that computes the wrong thing of right operands, or is handed the wrong ones: what is wrong is more than a sum that is missing."""
        first = next((mend for mend, _ in self.culprits()), None)
        return first is not None and first.evidence in ("operator", "handed", "step")

    def explains_all_at_one_line(self, broken: Sequence[str]) -> bool:
        """Whether one culprit explains all that is broken, by its own operands or by what one line makes of right ones."""
        first = self._first(broken)
        return self.explains_all(broken) or (first is not None and self._is_one_line(first))

    def explains_at_once(self, broken: Sequence[str]) -> bool:
        """Whether one site explains all that is broken, which edits mend at several alone."""
        return self._first(broken) is not None

    def _first(self, broken: Sequence[str]) -> Mend | None:
        """The first culprit, if it mends all that is broken."""
        first = next((mend for mend, _ in self.culprits()), None)
        return first if first is not None and first.mended >= set(broken) else None

    def _is_one_line(self, mend: Mend) -> bool:
        """Whether everything goes wrong for a culprit within one line."""
        if mend.evidence != "region" or self.search is None:
            return False
        lines = Lines(self.search, self.sources)
        places = [lines.place(each) for site in mend.tried.sites for each in lines.region(site)]
        return None not in places and len({(place.file, place.line) for place in places if place is not None}) == 1

    @np.errstate(all="ignore")
    def makes_up(self, repair: Repair) -> bool:
        """Whether a repair only makes up for a defect elsewhere: it changes what is right and what nothing goes wrong with, or reduces what a collective there should have, what every rank has alike, or what are summands of nothing."""
        if repair.before is not self.capture or self.search is None:
            return False
        site, edit = repair.hypothesis.site, repair.hypothesis.edit
        if repair.hypothesis.rule == "wrong-scale" and self._reads_reduced(repair) and self._is_reduced_again():
            return True
        if isinstance(edit, InsertReduction):
            if edit.reduce != "sum":
                return False
            if self.search.left_undone(edit.tensors, edit.axis) or self.search.is_copied(edit.tensors):
                return True
            unknown = self.search.is_unknown(edit.tensors) and self.explains_all(self.broken)
            return unknown and self.findings()[0].rule == "wrong-scale"  # a sum over two ranks makes up for half of it
        if isinstance(edit, InsertCall) or (isinstance(edit, OtherCalls) and isinstance(edit.means, Sending)):
            return False  # what is right may lack a step before others read it
        # A factor may stand on either side of what is linear.
        return repair.hypothesis.rule != "wrong-scale" and self.search.is_innocent(site.tensors)

    def _reads_reduced(self, repair: Repair) -> bool:
        """Whether a repair is at a reduction of what another reduction gave, rearranged at most."""
        site = repair.hypothesis.site
        graph = self.capture.ranks[min(site.position)]
        made = graph.producers()
        todo = list(site.node.reads) if site.node.op in REDUCTIONS else []
        while todo:
            index = made.get(todo.pop())
            if index is None:
                continue
            if graph.nodes[index].op in REDUCTIONS:
                return True
            if graph.nodes[index].op in MOVES:
                todo += graph.nodes[index].reads
        return False

    def _is_reduced_again(self) -> bool:
        """Whether what explains everything is the result of a reduction that is whole, and is added up over the same ranks once more."""
        if not self.explains_all(self.broken):
            return False
        mend, _ = self.culprits()[0]
        needed = mend.needed
        whole = needed is not None and any(s.var == needed.var and not s.partial for s in mend.site.states)
        again = whole and needed is not None and bool(needed.partial) and not needed.share
        return again and mend.evidence == "layout" and mend.site.node.op in REDUCTIONS
