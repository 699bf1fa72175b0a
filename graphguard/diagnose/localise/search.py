"""The culprits of a broken claim: sites that, put right, put failing outputs right, by the strength of the evidence."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from graphguard.diagnose.localise.calls import Calls
from graphguard.diagnose.localise.interventions import Intervention, Interventions
from graphguard.diagnose.localise.layouts import Laid, Layouts
from graphguard.diagnose.localise.mends import STRENGTH, Evidence, Mend
from graphguard.diagnose.localise.numbers import Numbers, OutOfFuelError, Place
from graphguard.diagnose.localise.reach import Lack, Reach
from graphguard.diagnose.localise.right import Right
from graphguard.diagnose.localise.sites import MOVES, Site, Sites
from graphguard.ir import Capture, Promise, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ops import REDUCTIONS, aten, gg, operators
from graphguard.refine.proving.proof import Proof
from graphguard.relations.numbers import Array
from graphguard.repair.backward.stopped import results_among
from graphguard.repair.graph.alignment import Alignment

_CULPRITS: Final = 3
_COMPARED: Final = 150_000  # sites times tensors of the specification
_FUEL: Final = 2  # calls that laying out values takes
_COMPLETING: Final = REDUCTIONS | {gg.broadcast}
_TOGETHER: Final = 8  # calls of a family that are put right at once
_CALLERS: Final = 12  # calls that hand on another tensor than the specification's
_FAR: Final = 24  # layouts that are tried where what is read is wrong as well
_SHARE: Final = 8  # of the fuel that is left, one family may burn a part
_KEPT: Final = 3  # a part of all fuel, for what is tried after the border of what is right
_FACTORS: Final = operators(lambda op: op.reduces == "mean") | frozenset(
    (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.pow.Tensor_Scalar, aten.full.default, aten.ones_like.default, "gg.sdpa")
) | REDUCTIONS  # fmt: skip


@dataclass(slots=True)
class Search:
    """The search on one capture."""

    numbers: Numbers
    sites: Sites
    layouts: Layouts
    right: Right
    interventions: Interventions
    reach: Reach
    calls: Calls
    results: frozenset[str]
    ratios: frozenset[float] = frozenset()
    loose: bool = False
    outputs: set[tuple[int, Var]] = field(default_factory=set)
    _found: bool = False

    @classmethod
    def of(
        cls,
        capture: Capture,
        proof: Proof,
        alignment: Alignment,
        broken: Sequence[str],
        fuel: int,
        ratios: Collection[float] = (),
    ) -> Search | None:
        """Prepare a search; None where numbers do not refute the claim, or the programs are too large to be compared tensor by tensor."""
        numbers = Numbers.of(capture, broken, fuel)
        if numbers is None:
            return None
        sites = Sites(numbers, alignment)
        layouts = Layouts(numbers.capture, numbers.runs)
        if sum(site.live for site in sites.all) * len(layouts.tensors) > _COMPARED:
            return None
        made = cls(
            numbers,
            sites,
            layouts,
            Right(sites, layouts, proof),
            Interventions(sites, layouts),
            Reach(numbers, layouts),
            Calls(sites, layouts),
            frozenset(results_among(capture, broken)),
            frozenset(ratios),
        )
        made._expect(numbers.failing)
        return made

    def culprits(self) -> Iterator[Mend]:
        """The defects, told apart by the outputs that they explain; fewer where the fuel does not last.

        What a site is and has is that before the next one is asked for: then the mend is put in place.
        """
        left = list(self.numbers.failing)
        found: list[Mend] = []
        while left and len(found) < _CULPRITS:
            if found or not self._found:
                self._find(proved=not found)
            mends: list[Mend] = []
            try:
                for self.loose in (False, True) if any(p.wanted == "infer" for p in left) else (False,):
                    mends.extend(self._mends(left))
                    if any(self._is_strong(mend, left) for mend in mends):
                        break
                    if mends and not any(map(self._is_claimed, mends)):
                        break
            except OutOfFuelError:
                self.numbers.fuel = 0
            best = self._best(mends, left)
            if best is None:
                break
            found.append(best)
            yield best
            left = [promise for promise in left if promise.name not in best.mended]
            if not self.numbers.fuel:
                break
            if left:
                self.numbers.become([self.interventions.values(best.tried, run) or {} for run in self.numbers.runs])

    def _find(self, proved: bool = True) -> None:
        """Find out which sites are right; those that ranks hold apart become sites of their own."""
        self.right.find(proved)
        apart = self.right.apart()
        if apart:
            self.sites.split(apart)
            self.right.find(proved)
        self._found = True

    def _mends(self, left: Sequence[Promise]) -> Iterator[Mend]:
        """Mends, the border of what is right first, then factors alone; nothing more behind evidence that explains everything."""
        self._expect(left)
        strong = False
        families = sorted(self.sites.live_families(), key=self._turn)
        kept = self.numbers.fuel // _KEPT
        for mend in self._scaled(left, idle=True) if self.ratios else ():  # one output shows by how much
            if len(mend.mended) == len(left):
                yield mend
                return
        for near in (True, False):
            for family in families:
                if near and self.numbers.fuel < kept:
                    break
                for mend in self._at(family, left, near):
                    strong = strong or self._is_strong(mend, left)
                    yield mend
                if strong:
                    return
            if not near:
                return
            for sites in self._lines():
                for mend in self._jointly(sites, left):
                    strong = strong or self._is_strong(mend, left)
                    yield mend
                if strong:
                    return
            for mend in self._scaled(left):
                strong = strong or len(mend.mended) == len(left)
                yield mend
            if strong:
                return

    def _turn(self, family: Sequence[Site]) -> tuple[float, int]:
        """When a family is tried: in the order in which things go wrong, at sites that are wrong though all that they read is right, or right and read by what is wrong, or a part of what they read; the others last."""
        first = min((site.order for site in family if self._is_here(site)), default=math.inf)
        return first, family[0].order

    def _is_here(self, site: Site) -> bool:
        if site.is_right:
            return self._is_border(site) or self._chooses(site)
        return self._is_well_fed(site) and not self._is_handed_on(site)

    def _chooses(self, site: Site) -> bool:
        """Whether a right site is a part of what it reads: another one may be needed, however far on it is seen."""
        cuts = [state.cuts for state in site.states]
        read = [state.cuts for operand in self.sites.operands(site) for state in operand.states]
        return site.node.op in MOVES and any(cuts) and not any(each in read for each in cuts)

    def _expect(self, left: Sequence[Promise]) -> None:
        """Note which tensors are outputs that are wrong."""
        self.outputs = {
            (rank, graph.outputs[promise.name])
            for promise in left
            for rank, graph in enumerate(self.numbers.capture.ranks)
            if promise.name in graph.outputs
        }

    def _is_strong(self, mend: Mend, left: Sequence[Promise]) -> bool:
        """Whether nothing further need be looked for: it explains everything, and no more than how inputs were said to be cut is blamed."""
        return STRENGTH[mend.evidence] == 0 and len(mend.mended) == len(left) and not self._is_claimed(mend)

    def _is_claimed(self, mend: Mend) -> bool:
        """Whether a mend is at how the check cuts inputs: what the claim says of them is right, unless nothing else is wrong."""
        return all(site.node.phase == "prelude" and self._is_of_inputs(site) for site in mend.tried.sites)

    def _is_of_inputs(self, site: Site) -> bool:
        parameters = {leaf.name for leaf in self.numbers.capture.leaves if leaf.kind != "input"}
        graph = self.numbers.capture.ranks[site.rank]
        todo, seen = [site], set[int]()
        while todo:
            one = todo.pop()
            if one.number in seen:
                continue
            seen.add(one.number)
            if any(graph.inputs.get(var) in parameters for rank, var in one.tensors.items() if rank == site.rank):
                return False
            todo += self.sites.operands(one)
        return True

    def _lines(self) -> list[list[Site]]:
        """Sites of several calls that one line makes, in order."""
        lines: dict[object, list[Site]] = {}
        for family in self.sites.live_families():
            for site in family[:_TOGETHER]:
                frames = self.numbers.capture.ranks[site.rank].stack_of(site.node.stack)
                if frames and (site.is_right or self._is_well_fed(site)):
                    lines.setdefault((site.node.op, site.node.phase, frames[0].span, site.slot), []).append(site)
        return sorted((sites for sites in lines.values() if len(sites) > 1), key=lambda sites: sites[0].order)

    def _jointly(self, sites: Sequence[Site], left: Sequence[Promise]) -> Iterator[Mend]:
        """What mends at one line where each of its calls alone does not; the first alone."""
        for tried in self.interventions.jointly(sites):
            mended = self._mended(tried, left)
            if mended:
                yield Mend(tried, mended, self._evidence(tried))
                return

    def _at(self, family: Sequence[Site], left: Sequence[Promise], near: bool) -> list[Mend]:
        """What mends at one family."""
        doubtful = {site.number for site in family if not site.is_right or self._is_border(site)}
        is_near = any(site.is_right or self._is_well_fed(site) for site in family)
        if near is not is_near or self._is_blank(family[0]) or not any(map(self._is_read, family)):
            return []
        if all(map(self._is_handed_on, family)):
            return []
        found: list[Mend] = []
        least = self.numbers.fuel - self.numbers.fuel // _SHARE
        for tried in self.interventions.at(family) if near else self.interventions.at(family, _FAR):
            if self.numbers.fuel < least:
                break
            if not all(
                site.number in doubtful or _is_other_part(site, laid) or laid in site.states
                for site, laid in zip(tried.sites, tried.laid, strict=True)
            ):
                continue
            mended = self._mended(tried, left)
            if mended:
                found.append(Mend(tried, mended, self._evidence(tried)))
                if len(mended) == len(left):
                    break
        if len(family) > 1 and found and max(len(mend.mended) for mend in found) < len(left):
            found += self._together(found, left)
        return found

    def _mended(self, tried: Intervention, left: Sequence[Promise]) -> frozenset[str]:
        self.numbers.fuel -= _FUEL
        if self.numbers.fuel < 0:
            raise OutOfFuelError
        forced: list[dict[Place, Array]] = []
        for run in self.numbers.runs:
            values = self.interventions.values(tried, run)
            if values is None or not (values or forced):
                return frozenset()  # it does not fit, or replaces nothing
            forced.append(values)
        results = [promise for promise in left if promise.name in self.results]
        if results and len(results) < len(left) and not self.numbers.mended(forced, results, self.loose):
            return frozenset()  # gradients are computed of results, and cost more
        return self.numbers.mended(forced, left, self.loose)

    def _together(self, found: Sequence[Mend], left: Sequence[Promise]) -> list[Mend]:
        """What single passes of one call mend, each with its own tensor, put in place at once."""
        chosen: dict[int, Mend] = {}
        covered: set[str] = set()
        for mend in sorted((mend for mend in found if len(mend.tried.sites) == 1), key=lambda mend: -len(mend.mended)):
            number = mend.tried.sites[0].number
            if number not in chosen and mend.mended - covered:
                chosen[number] = mend
                covered |= mend.mended
        if len(chosen) < 2:
            return []
        tried = Intervention(
            tuple(mend.tried.sites[0] for mend in chosen.values()),
            tuple(mend.tried.laid[0] for mend in chosen.values()),
        )
        mended = self._mended(tried, left)
        more = len(mended) > max(len(mend.mended) for mend in found)
        return [Mend(tried, mended, self._evidence(tried))] if more else []

    def _scaled(self, left: Sequence[Promise], idle: bool = False) -> Iterator[Mend]:
        """Sites that a factor alone puts right, of operators that can bring one in; ``idle``: of what rests on no input, by a factor that outputs show."""
        numbers = [1 / ratio for ratio in self.ratios] if idle else self.interventions.factors()
        factors = [*((number, None) for number in numbers), *(() if idle else self.interventions.counts())]
        for family in self.sites.live_families():
            site = family[0]
            value = self.numbers.runs[0].ranks[site.rank][site.tensors[site.rank]]
            known = site.is_right and not self.sites.idle(site)  # a number alone is easily the one of another call
            if (
                known
                or not site.computes
                or (idle and not self.sites.idle(site))
                or value.dtype.kind != "f"
                or not self._scales(site)
            ):
                continue
            for sites in [tuple(family)] if len(family) == 1 else [tuple(family), *((each,) for each in family[:6])]:
                for factor, count in factors:
                    tried = Intervention(sites, (), factor, count)
                    mended = self._mended(tried, left)
                    if mended:
                        yield Mend(tried, mended, "factor")
                        break

    # -- what a mend says

    def _evidence(self, tried: Intervention) -> Evidence:
        pairs = [(site, laid) for site, laid in zip(tried.sites, tried.laid, strict=True) if laid not in site.states]
        site, first = pairs[0] if pairs else (tried.sites[0], tried.laid[0])
        if pairs and all(self.calls.is_given(*pair) for pair in pairs):
            return "handed"
        if all(each.is_right for each in tried.sites):
            if first is None or not any(state.var == first.var for state in site.states):
                made = first is not None and any(state.var in self.layouts.sources(first.var) for state in site.states)
                return "step" if made else "another"
            return "factor" if first.share else "layout"
        numbers = {each.number for each in tried.sites}
        fed = all(self._origins(each) <= numbers for each in tried.sites if not each.is_right)
        if first is not None and first.share:
            return "factor" if fed and self._scales(site) else "another"
        return "operator" if fed else "region"

    def _best(self, mends: Sequence[Mend], left: Sequence[Promise]) -> Mend | None:
        """The widest, then the best evidence, then the earliest; results before gradients, which are computed of them."""
        values = self.results.intersection(promise.name for promise in left)
        kept = [mend for mend in mends if mend.mended & values] or list(mends)
        if not kept:
            return None
        most = max(len(mend.mended) for mend in kept)
        widest = [mend for mend in kept if len(mend.mended) == most]
        relaid = [mend for mend in widest if mend.evidence == "layout" and not self._is_claimed(mend)]
        if relaid:
            widest = [mend for mend in widest if not self._is_claimed(mend)]
        best = min(widest, key=lambda mend: (STRENGTH[mend.evidence], mend.tried.sites[0].order, len(mend.tried.sites)))
        best = self._least(best, left)
        if best.evidence == "layout":
            return self._refined(best, left)
        return self._handed(self._within_reach(best, widest), left)

    def _least(self, best: Mend, left: Sequence[Promise]) -> Mend:
        """One of several passes, if that alone mends as much by evidence that is no weaker: what is summed up there has nothing to do with those before it."""
        sites, laid = best.tried.sites, best.tried.laid
        if not 1 < len(sites) <= _TOGETHER or best.tried.factor is not None:
            return best
        alone = []
        for site, each in zip(sites, laid, strict=True):
            tried = Intervention((site,), (each,))
            try:
                if each is not None and self._mended(tried, left) >= best.mended:
                    alone.append(Mend(tried, best.mended, self._evidence(tried)))
            except OutOfFuelError:
                break
        return min((best, *alone), key=lambda mend: (STRENGTH[mend.evidence], len(mend.tried.sites)))

    def _handed(self, best: Mend, left: Sequence[Promise]) -> Mend:
        """Where the specification makes what is needed with the very call that is blamed: what this reads, and should not, by way of all such calls."""
        for _ in range(_CALLERS):
            if best.evidence not in ("operator", "handed") or None in best.tried.laid:
                break
            try:
                found = self._read_instead(best, left)
            except OutOfFuelError:
                break
            if found is None:
                break
            best = found
        return best

    def _read_instead(self, best: Mend, left: Sequence[Promise]) -> Mend | None:
        """What mends in the place of an operand which is another tensor than the one that the specification's call has there."""
        laid = [each for each in best.tried.laid if each is not None]
        makers = [self.layouts.makers.get(each.var) for each in laid]
        for place in range(len(best.site.node.reads)):
            pairs = []
            for site, maker in zip(best.tried.sites, makers, strict=True):
                operand = self.calls.read_at(site, place)
                if maker is None or operand is None or not self.calls.are_one(site, maker) or operand.is_leaf:
                    return None
                pairs.append((operand, self.layouts.same_as.get(maker.reads[place], maker.reads[place])))
            operands = tuple(operand for operand, _ in pairs)
            if all(any(state.var == var for state in operand.states) for operand, var in pairs):
                continue
            for one in self.interventions.laid(operands[0], of={pairs[0][1]}):
                tried = Intervention(operands, tuple(replace(one, var=var) for _, var in pairs))
                if self._mended(tried, left) >= best.mended:
                    return Mend(tried, best.mended, "handed")
        return None

    def _within_reach(self, best: Mend, others: Sequence[Mend]) -> Mend:
        """The first mend of its kind for which every rank has what it takes; what is computed before it is only on the way."""
        best.lack = self._lack(best)
        if best.lack is None and best.evidence == "region":
            pairs = zip(best.tried.sites, best.tried.laid, strict=False)
            lost = (self.reach.lost(site, laid) for site, laid in pairs if laid is not None)
            best.lost = next(filter(None, lost), None)
        if best.lack is None or best.evidence not in ("operator", "region"):
            return best
        later = sorted(
            (mend for mend in others if mend.evidence in ("operator", "region") and mend is not best),
            key=lambda mend: mend.tried.sites[0].order,
        )
        for mend in later:
            if mend.tried.sites[0].computes and self._lack(mend) is None and not self._weighs(mend.site, best.site):
                mend.late = True
                return mend
        return best

    def _weighs(self, last: Site, first: Site) -> bool:
        """Whether a parameter is read on the way from one site to another: what is right again behind another layer is no later step of the same."""
        parameters = {leaf.name for leaf in self.numbers.capture.leaves if leaf.kind == "parameter"}
        todo, seen = [last], set[int]()
        while todo:
            one = todo.pop()
            if one.number in seen or one.order <= first.order:
                continue
            seen.add(one.number)
            for operand in self.sites.operands(one):
                if not operand.is_right:
                    todo.append(operand)
                elif self._source(operand) in parameters:
                    return True
        return False

    def _source(self, site: Site) -> str:
        """The input or parameter that a site is, rearranged at most; empty where anything is computed."""
        graph = self.numbers.capture.ranks[site.rank]
        while not (name := graph.inputs.get(site.tensors.get(site.rank, Var(-1)), "")):
            operands = self.sites.operands(site)
            if len(operands) != 1 or not (site.is_leaf or site.node.op in MOVES):
                return ""
            site = operands[0]
        return name

    def _lack(self, mend: Mend) -> Lack | None:
        pairs = zip(mend.tried.sites, mend.tried.laid, strict=False)
        return next((lack for site, laid in pairs if laid is not None and (lack := self.reach.lack(site, laid))), None)

    def _refined(self, best: Mend, left: Sequence[Promise]) -> Mend:
        """Where a summand is whole too late, or a whole meets a summand, the reader that mixes them is told; else the collective that should have made it whole."""
        site, needed = best.tried.sites[0], best.tried.laid[0]
        assert needed is not None
        now = next(state for state in site.states if state.var == needed.var)
        for reader in self.sites.readers(site):
            mixes = bool(needed.partial) > bool(now.partial) or reader.node.op in COLLECTIVES
            if mixes and not reader.is_right and self._is_well_fed(reader):
                family = next((each for each in self.sites.live_families() if reader in each), [])
                try:
                    found = [
                        m for m in (self._at(family, left, near=True) if family else []) if m.evidence == "operator"
                    ]
                except OutOfFuelError:
                    return best
                wide = [mend for mend in found if len(mend.mended) >= len(best.mended)]
                if wide:
                    return wide[0]
        if now.partial and not needed.partial:
            best.blame = self._completing(site, now.partial)
        return best

    def _completing(self, site: Site, axes: Collection[str], depth: int = 3) -> Site | None:
        """A collective among ranks along some axes that reads summands, by way of moves, and leaves them wrong."""
        for reader in self.sites.readers(site):
            if not reader.is_right and reader.node.op in _COMPLETING and self._is_along(reader, axes):
                return reader
            if depth and reader.node.op in MOVES and (found := self._completing(reader, axes, depth - 1)) is not None:
                return found
        return None

    def _is_along(self, site: Site, axes: Collection[str]) -> bool:
        """Whether members of a collective's group differ along one of some axes."""
        capture, group = self.numbers.capture, site.node.args[-1]
        places = (
            [capture.coordinates(rank) for rank in group if isinstance(rank, int)] if isinstance(group, tuple) else []
        )
        return any(len({place[axis] for place in places}) > 1 for axis in axes)

    def left_undone(self, tensors: Mapping[int, Var], axis: str) -> bool:
        """Whether tensors are summands over an axis that a collective should have made whole, and did not."""
        site = self._at_tensors(tensors)
        summand = site is not None and any(axis in state.partial for state in site.states)
        return site is not None and summand and self._completing(site, (axis,)) is not None

    # -- questions about sites

    def is_copied(self, tensors: Mapping[int, Var]) -> bool:
        """Whether tensors that add up to one of the specification's are equal on all ranks: then each is too small, too."""
        site = self._at_tensors(tensors)
        return site is not None and bool(site.states) and not site.is_right

    def is_unknown(self, tensors: Mapping[int, Var]) -> bool:
        """Whether tensors that outputs depend on are no tensor of the specification in any layout, no summands either."""
        site = self._at_tensors(tensors)
        return site is not None and site.live and not site.states

    def is_innocent(self, tensors: Mapping[int, Var]) -> bool:
        """Whether tensors are right, and so is all that is made of them directly; one piece of several that all ranks have alike may be the wrong one."""
        site = self._at_tensors(tensors)
        if site is None or not site.live or not site.readers or self._is_border(site):
            return False
        right = (state for state in site.states if not (state.share or state.lacking or self.layouts.is_ordered(state)))
        return any(all(cut.selection >= 0 and cut.pieces == 1 for cut in state.cuts) for state in right)

    def _at_tensors(self, tensors: Mapping[int, Var]) -> Site | None:
        if not self._found:
            self._find()
        numbers = {self.sites.owner.get(place) for place in tensors.items()}
        number = numbers.pop() if len(numbers) == 1 else None
        return None if number is None else self.sites[number]

    def _is_border(self, site: Site) -> bool:
        """Whether a right site has a wrong reader, by way of moves; for summands also what they alone are made of, with no collective between."""
        if not site.is_right:
            return False
        wrong = (not (reader.is_right or self._is_handed_on(reader)) for reader in self.sites.readers(site))
        if any(wrong) or any(place in self.outputs for place in site.tensors.items()):
            return True
        partial = site.states[0].partial
        return any(
            reader.states[:1]
            and (bool(partial) or reader.node.op in MOVES)
            and reader.states[0].partial == partial
            and reader.node.op not in COLLECTIVES
            and self._is_border(reader)
            for reader in self.sites.readers(site)
        )

    def _is_well_fed(self, site: Site) -> bool:
        return all(map(self._is_fine, self.sites.operands(site)))

    def _origins(self, site: Site) -> set[int]:
        """Where what a site reads goes wrong first: sites that are not right although all that they read is; a loop's later passes read what the first one spoils."""
        found: set[int] = set()
        todo, seen = [each for each in self.sites.operands(site) if not self._is_fine(each)], set[int]()
        while todo:
            one = todo.pop()
            if one.number in seen:
                continue
            seen.add(one.number)
            wrong = [each for each in self.sites.operands(one) if not self._is_fine(each)]
            todo += wrong
            if not wrong:
                found.add(one.number)
        return found

    def _is_fine(self, site: Site) -> bool:
        return site.is_right or site.is_leaf or self.sites.idle(site) or self._is_handed_on(site)

    def _is_handed_on(self, site: Site) -> bool:
        """Whether a site is one rank's part, on all ranks, of what is right: as a gather gives it."""
        return not site.states and site.node.op == gg.all_gather and self._is_well_fed(site)

    def _is_read(self, site: Site) -> bool:
        """Whether a site is read as one, or an output: parts of a split that ranks read crosswise are a site of their own where they are read."""
        return bool(site.readers) or any(place in self.outputs for place in site.tensors.items())

    def _is_blank(self, site: Site) -> bool:
        """Whether a site is a new buffer: zeros, or memory that nobody wrote."""
        value = self.numbers.runs[0].ranks[site.rank][site.tensors[site.rank]]
        return "empty" in site.node.op or (self.sites.idle(site) and not bool(value.any()))

    def _scales(self, site: Site) -> bool:
        """Whether an operator can bring in a factor: it reads a number, or it counts."""
        if site.node.op in (aten.mul.Tensor, aten.div.Tensor):
            operands = self.sites.operands(site)
            return len(operands) < 2 or any(self.sites.idle(each) for each in operands)
        return site.node.op in _FACTORS


def _is_other_part(site: Site, laid: Laid | None) -> bool:
    """Whether a layout is another part of the tensor of which a right site has some part."""
    return laid is not None and any(
        state.var == laid.var and state.cuts and state.partial == laid.partial and state.cuts != laid.cuts
        for state in site.states
    )
