"""Calls of the ranks beside those of the specification: whether one line of code makes both, and what each of them reads."""

from __future__ import annotations

from dataclasses import dataclass

from graphguard.diagnose.localise.layouts import Laid, Layouts
from graphguard.diagnose.localise.mends import Mend
from graphguard.diagnose.localise.sites import MOVES, Site, Sites
from graphguard.ir import Node, Var


@dataclass(frozen=True, slots=True)
class Calls:
    """The comparison on one capture."""

    sites: Sites
    layouts: Layouts

    def are_one(self, site: Site, maker: Node) -> bool:
        """Whether one line of code makes a site and a tensor of the specification, by one operator."""
        capture = self.layouts.capture
        assert capture.spec is not None
        mine = capture.ranks[site.rank].stack_of(site.node.stack)[:1]
        its = capture.spec.stack_of(maker.stack)[:1]
        alike = site.node.op == maker.op and len(site.node.reads) == len(maker.reads)
        return alike and bool(mine) and [frame.span for frame in mine] == [frame.span for frame in its]

    def is_given(self, site: Site, laid: Laid | None) -> bool:
        """Whether a site is an input or a parameter, rearranged at most, and another one of the same line of code is needed."""
        maker = self.layouts.makers.get(laid.var) if laid is not None else None
        given = site.is_right and all(each.is_leaf for each in self.sites.operands(site))
        other = laid is not None and not any(state.var == laid.var for state in site.states)
        return given and other and maker is not None and site.node.op in MOVES and self.are_one(site, maker)

    def read_at(self, site: Site, place: int) -> Site | None:
        """The site that a call of every rank reads at one place."""
        reads = self.layouts.capture.ranks[site.rank].nodes[site.index].reads
        var = reads[place] if place < len(reads) else None
        return next((each for each in self.sites.operands(site) if each.tensors.get(site.rank) == var), None)

    def instead(self, mend: Mend) -> tuple[Site, Var] | None:
        """The one operand that is another tensor than the specification's call of the same operator reads, and that tensor; None where there is no such one."""
        site, needed = mend.site, mend.needed
        maker = self.layouts.makers.get(needed.var) if needed is not None else None
        if maker is None or maker.op != site.node.op or len(maker.reads) != len(site.node.reads):
            return None
        found: list[tuple[Site, Var]] = []
        for place, read in enumerate(maker.reads):
            var, operand = self.layouts.same_as.get(read, read), self.read_at(site, place)
            if operand is None or not operand.is_right:
                return None
            if not any(state.var == var for state in operand.states):
                found.append((operand, var))
        return found[0] if len(found) == 1 else None
