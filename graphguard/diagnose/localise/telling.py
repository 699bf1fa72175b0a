"""What is said of a culprit: what the value is, and what is needed, in the words of layouts and of the user's code."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from graphguard.diagnose.libraries import with_library
from graphguard.diagnose.localise.layouts import Laid, Selection, ranges
from graphguard.diagnose.localise.lines import SHAPED, Lines
from graphguard.diagnose.localise.mends import Mend
from graphguard.diagnose.localise.sites import LEAF, MOVES, Site
from graphguard.ir import Span, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ir.ranks import ranks_text
from graphguard.ops import REDUCTIONS, aten
from graphguard.refine.finding import Finding, Related
from graphguard.repair.findings.messages import is_asking
from graphguard.repair.writing.words import axis_of_group, factor_text, group_text, listed, operation

_LONG = 60
_ADDING = frozenset({aten.add.Tensor, aten.addmm.default, aten.sub.Tensor})


@dataclass(frozen=True, slots=True)
class Telling:
    """The sentences of one search."""

    lines: Lines

    def finding(self, mend: Mend) -> Finding:
        """The finding of a culprit."""
        sources = self.lines.sources
        span = self.lines.told(mend) or sources.capture.check.span
        site = mend.site
        left_out = self.lines.left_out(mend)
        aside = (mend.evidence == "region" or mend.tried.factor is not None) and span not in self.lines.frames(site)
        place = (self.lines.innermost(site) if left_out is not None or aside else None) or span
        name = self._name(site, place)
        if (handed := self.lines.hands_back(mend)) is not None:
            name = _short(sources.name_at(handed)) or name
        rule, text = ("wrong-shard", self._left_out(mend, name, place)) if left_out else self._said(mend, name)
        if aside and left_out is None and (first := sources.tensor_at(span)) and first != name:
            text = f"{text}; that goes wrong from '{_short(first)}' on"
        capture = sources.capture
        needed = mend.needed
        related = []
        if needed is not None and (specified := self._specified(needed.var)) is not None:
            related.append(Related(specified, f"needed: {self._tensor(needed.var)}, {self.layout(needed, site)}"))
        if (inner := self.lines.inside(site, span)) is not None:
            related.append(Related(inner, f"'{name}' is computed here, within the call"))
        if mend.evidence == "region":
            lines = sorted(
                {
                    (s.file, s.line): s for each in self.lines.region(site) if (s := self.lines.place(each)) is not None
                }.values(),
                key=lambda s: (s.file, s.line),
            )
            related += [Related(each, "part of where it goes wrong") for each in lines[:4] if each.line != span.line]
        wanted = "" if needed is None else f"{self._tensor(needed.var)}: {self.layout(needed, site)}"
        shows = site.states and mend.tried.of is None  # of a factor no layout says anything
        held = f"{self._tensor(site.states[0].var)}: {self.layout(site.states[0], site)}" if shows else ""
        repeated = needed is not None and self._laid(needed, site) in text and not held
        spoiled = sorted(mend.mended)
        related.append(Related(capture.check.span, f"the check that fails: {listed(spoiled)}"))
        finding = Finding(
            rule=rule,
            headline=text,
            span=span,
            needed="" if repeated else wanted,
            found="" if held == wanted else held,
            tensor=name,
            promises=tuple(spoiled),
            related=tuple(related),
            parameters=tuple(self._misplaced(mend)),
        )
        return with_library(finding, capture.ranks[site.rank], site.node, sources)

    # -- sentences

    def _left_out(self, mend: Mend, name: str, place: Span) -> str:
        """What a rank leaves out and needs later."""
        lost = mend.lost
        assert lost is not None
        which = f"{'position' if len(lost.positions) == 1 else 'positions'} {ranges(lost.positions)} of dim {lost.dim}"
        return f"rank {lost.rank} leaves out {which} of '{lost.leaf}', which '{name}' (line {place.line}) needs"

    def _said(self, mend: Mend, name: str) -> tuple[str, str]:
        site, needed = mend.site, mend.needed
        what = f"'{name}'"
        if is_asking(name):
            what = f"a gradient that '{name}' computes"
        elif site.node.phase == "backward" and not name.startswith("grad"):
            what = f"the gradient of '{name}'"
        capture = self.lines.sources.capture
        if mend.tried.factor is not None:
            if mend.tried.of is not None:
                divided = "1/" if mend.tried.factor > 0 else ""
                return "wrong-scale", f"{what} is {divided}{self._tensor(mend.tried.of)} times what is needed"
            times = Fraction(1 / mend.tried.factor).limit_denominator(1 << 16)
            return "wrong-scale", f"{what} is {factor_text(times, capture)} times what is needed"
        assert needed is not None
        wanted = self._laid(needed, site)
        now = next((each for each in site.states if each.var == needed.var and not each.share), None)
        if now is not None:
            return self._relaid(mend, what, now, needed)
        factor = self._factor(site, needed)
        if factor is not None and mend.evidence in ("operator", "factor", "region"):
            often = site.node.op in REDUCTIONS and factor == int(factor) and factor > 1
            rule = "extra-reduction" if often else "wrong-scale"
            return rule, f"{what} is {factor_text(factor, capture)} times what is needed: {wanted}"
        if (axes := self._summand(site, needed)) and mend.evidence in ("operator", "region"):
            over = " and ".join(f"'{axis}'" for axis in axes)
            if site.node.op in COLLECTIVES:
                return (
                    "wrong-group",
                    f"{what} is still a summand over axis {over} after {operation(site.node.op)} over {group_text(site.node.args[-1], capture)}: {wanted} is needed",
                )
            rule = "gradient-not-reduced" if site.node.phase == "backward" else "missing-reduction"
            return rule, f"{what} is a partial sum over axis {over} and is used as if it were whole: {wanted} is needed"
        if mend.evidence == "operator" and (text := self._counted_often(site, needed)):
            return "extra-reduction", f"{what} {text}"
        if self._has_other_elements(site, needed):
            return (
                "wrong-shard",
                f"{what} has other elements of {self._tensor(needed.var)} than are needed: {self.layout(needed, site)}",
            )
        if site.states:
            held = self._laid(site.states[0], site)
            if held == wanted and (turns := self._turns(site.states[0].var, needed.var)):
                return (
                    "wrong-relation",
                    f"{what} is {held} after {turns[0]} of {turns[2]} passes, where it is needed after {turns[1]}",
                )
            return "wrong-relation", f"{what} is {held}, where {wanted} is needed"
        if mend.lack is not None:
            return (
                "wrong-relation",
                f"{what} cannot be {wanted}, as is needed: that takes elements of '{mend.lack.leaf}' that rank {mend.lack.rank} does not have, and nothing brings them there",
            )
        return "wrong-relation", f"{what} is not {wanted}, as is needed{self._operands(mend, site)}"

    def _relaid(self, mend: Mend, what: str, now: Laid, needed: Laid) -> tuple[str, str]:
        site, capture = mend.site, self.lines.sources.capture
        held, wanted = self.layout(now, site), self.layout(needed, site)
        if now.cuts != needed.cuts:
            return "wrong-shard", self._other_part(site, what, now, needed)
        if now.share or needed.share:
            return "wrong-scale", f"{what} is {held}, where it is needed {wanted}"
        if now.partial and not needed.partial:
            over = " and ".join(f"'{axis}'" for axis in now.partial)
            if mend.blame is not None:
                group = mend.blame.node.args[-1]
                rule = "wrong-relation" if axis_of_group(group, capture) in now.partial else "wrong-group"
                does = f"{operation(mend.blame.node.op)} over {group_text(group, capture)}"
                return rule, f"{what} is a partial sum over axis {over}, which {does} does not add up"
            rule = "gradient-not-reduced" if site.node.phase == "backward" else "missing-reduction"
            return rule, f"{what} is a partial sum over axis {over} and is used as if it were whole"
        if needed.partial and not now.partial:
            over = " and ".join(f"'{axis}'" for axis in needed.partial)
            return (
                "extra-reduction",
                f"{what} is whole on every rank, where one summand a rank is needed over axis {over}: it counts more than once",
            )
        if held == wanted:  # some of its positions are on no rank, or in another pass of a loop
            return (
                "wrong-relation",
                f"{what} has other elements of {self._tensor(needed.var)} than are needed: {wanted}",
            )
        return "wrong-relation", f"{what} is {held}, where it is needed {wanted}"

    def _other_part(self, site: Site, what: str, now: Laid, needed: Laid) -> str:
        """That a rank has another part than it needs, by positions on the first rank where these differ."""
        name, shape = self._tensor(now.var), self.lines.search.numbers.runs[0].spec[now.var].shape
        for rank in site.tensors:
            for dim, size in enumerate(shape):
                mine, its = self._positions(now, dim, size, rank), self._positions(needed, dim, size, rank)
                if mine != its:
                    return f"{what} is another part of {name} than is needed: rank {rank} has {ranges(mine)} of its dim {dim}, and needs {ranges(its)}"
        return f"{what} is {name} {self.layout(now)}, where it is needed {self.layout(needed)}"

    def _misplaced(self, mend: Mend) -> Iterator[tuple[str, str]]:
        """The parameters behind a site that are cut over an axis along which it is cut, and is not to be."""
        needed, site, capture = mend.needed, mend.site, self.lines.sources.capture
        held = next((each for each in site.states if needed is not None and each.var == needed.var), None)
        if needed is None or held is None:
            return
        axes = {axis for axis, _ in self._cut(held) - self._cut(needed)}
        for one in self._behind(site) if axes else ():
            name = capture.ranks[one.rank].labels.get(one.tensors[one.rank], "") if one.rank >= 0 else ""
            own = (each for each in one.states if each.var in self.lines.search.interventions.spec.inputs)
            laid = next((each for each in own if axes.intersection(axis for axis, _ in self._cut(each))), None)
            if laid is not None and name in capture.made:
                yield name, self.layout(laid)

    def _behind(self, site: Site) -> list[Site]:
        """What a site is computed of on its ranks, back to what they receive."""
        found: dict[int, Site] = {}
        todo = [site]
        while todo:
            one = todo.pop()
            if one.number not in found:
                todo += self.lines.search.sites.operands(one) if one.node.op not in COLLECTIVES else ()
            found[one.number] = one
        return list(found.values())

    def _cut(self, laid: Laid) -> set[tuple[str, int]]:
        """The axes over which a tensor is cut, each with the dim that it cuts."""
        layouts = self.lines.search.layouts
        return {(axis, cut.dim) for cut in laid.cuts for axis in layouts.axes_of(replace(laid, cuts=(cut,)))}

    def _positions(self, laid: Laid, dim: int, size: int, rank: int) -> list[int]:
        cut = next((cut for cut in laid.cuts if cut.dim == dim), None)
        return list(range(size)) if cut is None else self.lines.search.layouts.positions(size, cut, rank).tolist()

    def _counted_often(self, site: Site, needed: Laid) -> str:
        """That what every rank has whole is added to summands; empty where that is not so."""
        read = [each for each in self.lines.search.sites.operands(site) if each.states]
        whole = [each for each in read if not each.states[0].partial]
        if site.node.op not in _ADDING or not needed.partial or len(read) < 2 or not whole or len(whole) == len(read):
            return ""
        name = self._name(whole[0], self.lines.place(whole[0]) or self.lines.sources.capture.check.span)
        count = math.prod(self.lines.sources.capture.mesh[axis] for axis in needed.partial)
        return f"adds '{name}', which every rank has whole, to a partial sum over {_axes(needed.partial)}: it counts {count} times in the sum"

    def _operands(self, mend: Mend, site: Site) -> str:
        if mend.evidence != "operator":
            return ""
        if (instead := self.lines.search.calls.instead(mend)) is not None:
            operand, meant = instead[0], self._tensor(instead[1])
            if meant != self._tensor(operand.states[0].var):
                return f"; it reads {self._laid(operand.states[0], operand)}, and the specification {meant}"
        read = [each for each in self.lines.search.sites.operands(site) if each.states]
        said = [self._laid(each.states[0]) for each in read[:2]]
        return f"; it is computed from {' and '.join(said)}" if said else ""

    # -- comparisons

    def _factor(self, site: Site, needed: Laid) -> Fraction | None:
        """The constant factor by which a site differs from what is needed, or its sum over ranks does; None where there is none."""
        run, layouts = self.lines.search.numbers.runs[0], self.lines.search.layouts
        held = {rank: run.ranks[rank][var] for rank, var in site.tensors.items()}
        if needed.partial and not needed.share:
            if len({value.shape for value in held.values()}) > 1:
                return None
            capture, home = self.lines.sources.capture, self.lines.sources.capture.coordinates(site.rank)
            members = [
                r
                for r in held
                if all(at == home[axis] for axis, at in capture.coordinates(r).items() if axis not in needed.partial)
            ]
            pairs = [(np.sum([held[rank] for rank in members], axis=0), layouts.cut(needed, run, site.rank))]
        else:
            pairs = list(zip(held.values(), layouts.values(needed, run, held).values(), strict=True))
        quotients = []
        for mine, its in pairs:
            if its.dtype.kind != "f" or mine.shape != its.shape:
                return None
            heavy = np.abs(its) > 1e-9
            quotients.append((mine[heavy] / its[heavy]).reshape(-1))
        quotient = np.concatenate(quotients)
        if (
            quotient.size < 2
            or not bool(np.isfinite(quotient).all())
            or not float(quotient[0])
            or float(quotient.max() - quotient.min()) > 1e-9 * abs(float(quotient[0]))
        ):
            return None
        factor = Fraction(float(quotient[0])).limit_denominator(1 << 12)
        return factor if factor != 1 and abs(float(factor) - float(quotient[0])) < 1e-9 else None

    def _summand(self, site: Site, needed: Laid) -> list[str]:
        """The axes over which a site adds up to what is needed whole."""
        search = self.lines.search
        if needed.partial:
            return []
        used = search.layouts.axes_of(needed)
        for axis in search.layouts.axes:
            laid = Laid(needed.var, needed.cuts, (axis,))
            if axis not in used and all(search.right.holds([site], laid, each) for each in search.numbers.runs):
                return [axis]
        return []

    def _has_other_elements(self, site: Site, needed: Laid) -> bool:
        """Whether all elements of a site are elements of the needed tensor, at other places."""
        run = self.lines.search.numbers.runs[0]
        pool = run.spec[needed.var].reshape(-1)
        values = [run.ranks[rank][var].reshape(-1) for rank, var in site.tensors.items()]
        if pool.dtype.kind != "f" or pool.size < 2:
            return False
        return all(value.size > 0 and bool(np.isin(value, pool).all()) for value in values)

    # -- names

    def _name(self, site: Site, span: Span) -> str:
        """The user's expression of a site's value."""
        sources = self.lines.sources
        if site.node.phase == "backward":
            asked = sources.name_at(self.lines.innermost(site)) if site.node.forward < 0 else ""  # of no one call
            name = ", ".join(self._handed_out(site)) or (asked if is_asking(asked) else "")
            name = name or sources.operand_at(span) or sources.tensor_at(span)
        else:
            inner = self.lines.inside(site, span)
            place = self.lines.place(site)
            if site.node.op in SHAPED and (given := self._given(site, SHAPED)):
                return _short(given)
            name = sources.tensor_at(inner or (span if place is not None and place != span else place or span))
        return _short(name) or self._given(site) or operation(site.node.op)

    def _given(self, site: Site, moved: Collection[str] = ()) -> str:
        """The name of the input or parameter that a site is, or is cut from by what the check says, or of which it is made by some operators."""
        graph = self.lines.search.numbers.capture.ranks[site.rank]
        while True:
            var = site.tensors.get(site.rank)
            name = "" if var is None else graph.labels.get(var) or graph.inputs.get(var, "")
            operands = self.lines.search.sites.operands(site) if site.is_leaf or site.node.op in moved else []
            if name or not operands:
                return name or ("a constant" if site.node.op == LEAF else "")
            site = operands[0]

    def _handed_out(self, site: Site) -> list[str]:
        """The parameters and inputs whose gradient a site is, but for moves."""
        sites, found = self.lines.search.sites, list[str]()
        graph = self.lines.search.numbers.capture.ranks[site.rank]
        todo = [site]
        while todo:
            one = todo.pop()
            own = one.tensors.get(site.rank)
            found += [name[5:-1] for name, var in graph.outputs.items() if var == own and name.startswith("grad(")]
            todo += [each for each in sites.readers(one) if each.node.op in MOVES]
        return list(dict.fromkeys(found))

    def _specified(self, var: Var) -> Span | None:
        spec = self.lines.search.interventions.spec
        node = self.lines.search.layouts.makers.get(var)
        return None if node is None else self.lines.sources.place(spec, node)

    def _tensor(self, var: Var) -> str:
        """A tensor of the specification by its name there."""
        spec = self.lines.search.interventions.spec
        if var in spec.inputs:
            return f"'{spec.inputs[var]}'"
        node = self.lines.search.layouts.makers.get(var)
        while node is not None and node.phase == "forward" and node.op in SHAPED and len(node.reads) == 1:
            if node.reads[0] in spec.inputs:
                return f"'{spec.inputs[node.reads[0]]}'"
            node = self.lines.search.layouts.makers.get(node.reads[0])
        node = self.lines.search.layouts.makers.get(var)
        if node is None:
            return "a constant"
        gradients = [name for name, out in spec.outputs.items() if self.lines.search.layouts.same_as.get(out) == var]
        if gradients:
            return f"'{gradients[0]}'"
        through = self.lines.sources.forward_call(spec, node) if node.phase == "backward" else None
        if through is not None:
            called = _short(self.lines.sources.name_at(through))
            return f"what comes back through '{called}' (line {through.line} of the specification)"
        name = _short(self.lines.sources.name_at(self.lines.sources.name_place(spec, node)))
        line = self._specified(var)
        where = f" (line {line.line} of the specification)" if line is not None else ""
        gradient = "the gradient at " if node.phase == "backward" else ""
        return f"{gradient}'{name or operation(node.op)}'{where}"

    def _turns(self, held: Var, needed: Var) -> tuple[int, int, int] | None:
        """Of two tensors that a loop of the specification makes at one place: in which pass each, counted from one, and of how many."""
        makers = self.lines.search.layouts.makers
        one, other = makers.get(held), makers.get(needed)
        if one is None or other is None or (one.op, one.stack) != (other.op, other.stack):
            return None
        spec = self.lines.search.interventions.spec
        passes = [node.outs for node in spec.nodes if (node.op, node.stack) == (one.op, one.stack)]
        return passes.index(one.outs) + 1, passes.index(other.outs) + 1, len(passes)

    def _laid(self, laid: Laid, site: Site | None = None) -> str:
        """A tensor of the specification in a layout, on the ranks of a site."""
        text = f"{self._tensor(laid.var)}{' ' if laid.is_whole else ' as '}{self.layout(laid, site)}"
        return text if not laid.share else f"{self._tensor(laid.var)} in equal shares over {_axes(laid.partial)}"

    def layout(self, laid: Laid, site: Site | None = None) -> str:
        """A layout in DTensor's words, on the ranks of a site."""
        search, words = self.lines.search, []
        shape = search.numbers.runs[0].spec[laid.var].shape
        for cut in laid.cuts:
            piece = f"piece {cut.piece + 1} of {cut.pieces} of " if cut.pieces > 1 else ""
            if cut.selection < 0:
                words.append(f"{piece}dim {cut.dim}")
                continue
            selection = search.layouts.known[shape[cut.dim]][cut.selection]
            words.append(piece + self._selected(cut.dim, selection))
        axes = [
            axis
            for cut in laid.cuts
            if cut.selection >= 0
            for axis in search.layouts.known[shape[cut.dim]][cut.selection].axes
        ]
        if len(set(axes)) < len(axes):
            words = [f"{' and '.join(words)} at once, so the blocks on the diagonal alone"]
        if laid.partial:
            words.append(
                f"{'an equal share' if laid.share else 'Partial(avg)' if laid.mean else 'Partial(sum)'} over {_axes(laid.partial)}"
            )
        elif laid.mean:
            words.append("each part as of its own mean")
        if laid.passes:
            words.append(f"a summand in each of {laid.passes} passes")
        return ", ".join(words) or f"whole on {self._ranks(site)}"

    def _ranks(self, site: Site | None) -> str:
        ranks = sorted(site.tensors) if site is not None else []
        if not ranks or len(ranks) == self.lines.sources.capture.world_size:
            return "every rank"
        return ranks_text(ranks)

    def _selected(self, dim: int, selection: Selection) -> str:
        """Positions of a dim: a shard, or those that the ranks are seen to have."""
        over = _axes(selection.axes)
        if selection.plain:
            return f"Shard({dim}) over {over}"
        if not selection.axes:
            return f"whole on every rank, dim {dim} {selection.role}"
        home = self.lines.sources.capture.coordinates(0)
        other = next(
            rank
            for rank in selection.picks
            if self.lines.sources.capture.coordinates(rank)[selection.axes[-1]] != home[selection.axes[-1]]
        )
        held = (
            f"{ranges(selection.picks[rank].tolist())} on rank {rank}" for rank in (0, other) if rank in selection.picks
        )
        return f"positions of dim {dim} over {over}: {', '.join(held)}"


def _axes(axes: Iterable[str]) -> str:
    return " and ".join(f"'{axis}'" for axis in axes)


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."
