"""Where in the user's code a culprit is told: not in a helper that serves other calls well, and of gradients at the forward call."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphguard.diagnose.localise.mends import Mend
from graphguard.diagnose.localise.search import Search
from graphguard.diagnose.localise.sites import MOVES, Site
from graphguard.diagnose.origins import origin
from graphguard.ir import Graph, Node, Span
from graphguard.ir.graph import COLLECTIVES
from graphguard.ops import operators
from graphguard.repair.backward.asked import by_hand
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Function

_ASKING = frozenset(("backward", "grad"))
SHAPED = operators(lambda op: op.moves in ("same", "view", "permute", "expand"))


@dataclass(frozen=True, slots=True)
class Lines:
    """Places of sites; ``sources`` are those of the capture that is told, whose calls are the ones that ran."""

    search: Search
    sources: Sources

    def told(self, mend: Mend) -> Span | None:
        """The line of a culprit."""
        site = mend.blame or mend.site
        if mend.lost is not None and (left_out := self.left_out(mend)) is not None:
            return left_out
        if mend.tried.factor is not None and (given := origin(self._graph(site), site.node, self.sources)) is not None:
            return given
        if (handed := self.hands_back(mend)) is not None:
            return handed
        if mend.evidence == "region" and not mend.late:
            region = self._spoiling(self.region(mend.site))
            only_moved = all(each.node.op in MOVES | COLLECTIVES for each in region)
            shared = None if only_moved else self._common(self._own(region))
            if shared is not None:
                return shared
        return self._blamed(mend, self._chosen(site) if mend.evidence == "layout" else site)

    def hands_back(self, mend: Mend) -> Span | None:
        """What a backward written by hand returns, where an operator gives or reads another gradient than the one through the call that it belongs to; None if it computes that one itself, or autograd does."""
        if (
            mend.evidence not in ("operator", "handed", "region")
            or mend.needed is None
            or by_hand(self._graph(mend.site), mend.site.node)
        ):
            return None
        spec, makers = self.search.interventions.spec, self.search.layouts.makers
        instead = self.search.calls.instead(mend)
        through = {
            made.forward
            for var in (mend.needed.var, *(() if instead is None else (instead[1],)))
            if (made := makers.get(var)) is not None and made.phase == "backward" and made.forward >= 0
        }
        called = {out for each in spec.nodes if each.stack in through for out in each.outs}
        frames = (
            frame
            for site in self.search.sites.all
            if any(state.var in called for state in site.states)
            for frame in self.sources.frames(self._graph(site), site.node)
        )
        return next((span for frame in frames if (span := self._returned(frame.span)) is not None), None)

    def _returned(self, span: Span) -> Span | None:
        """What the backward returns that belongs to a forward written by hand, in which a place stands."""
        program = self.sources.program(span.file)
        function = program.enclosing_function(span) if program is not None else None
        klass = program.klass(function) if program is not None and function is not None else None
        if program is None or function is None or klass is None or function.name != "forward":
            return None
        method = next((each for each in klass.body if isinstance(each, Function) and each.name == "backward"), None)
        returns = [each.value for each in ast.walk(method) if isinstance(each, ast.Return)] if method else []
        first = (
            returns[-1].elts[0] if returns and isinstance(returns[-1], ast.Tuple) else returns[-1] if returns else None
        )
        return program.span(first) if first is not None else None

    def left_out(self, mend: Mend) -> Span | None:
        """Where a rank leaves out what it needs later, if only code that the specification runs as well goes wrong for it; None elsewhere."""
        site, lost, sources = mend.site, mend.lost, self.sources
        region = [sources.frames(self._graph(each), each.node)[:1] for each in self.region(site)]
        if lost is None or not all(frames and sources.is_shared(frames[0]) for frames in region):
            return None
        graph = self.search.numbers.capture.ranks[lost.rank]
        node = graph.nodes[lost.node]
        frames = [frame.span for frame in sources.frames(graph, node)]
        others = [
            [frame.span for frame in sources.frames(graph, other)]
            for index, other in enumerate(graph.nodes)
            if other.op == node.op and index != lost.node
        ]
        own = (span for span in frames if not any(span in other for other in others))
        return next(own, (*frames[1:], *frames, None)[0])

    def _chosen(self, site: Site) -> Site:
        """Where the elements of a site were chosen: what only gives them another shape is not to blame."""
        while site.node.op in SHAPED:
            made = [each for each in self.search.sites.operands(site) if not each.is_leaf]
            if len(made) != 1 or made[0].is_right:
                break
            site = made[0]
        return site

    def frames(self, site: Site, node: Node | None = None) -> list[Span]:
        """The user's places of a site, innermost first: in functions that the specification does not run, where there are any."""
        node, graph, sources = node or site.node, self._graph(site), self.sources
        own = sources.frames(graph, node)
        if node.phase == "backward" and node.forward >= 0 and (not own or self._asks(own[0].span)):
            own = sources.forward_frames(graph, node)
            first = sources.forward_call(graph, node)
        else:
            first = sources.place(graph, node)
        spans = [frame.span for frame in own]
        kept = {frame.span for frame in own if not sources.is_shared(frame)}
        inner = list(itertools.dropwhile(lambda span: span != first, spans))
        return [span for span in inner if span in kept] or inner or spans

    def place(self, site: Site) -> Span | None:
        """The innermost of them."""
        return next(iter(self.frames(site)), None)

    def innermost(self, site: Site) -> Span | None:
        """The innermost of all places of a site."""
        return next((frame.span for frame in self.sources.frames(self._graph(site), site.node)), None)

    def inside(self, site: Site, span: Span) -> Span | None:
        """Where a site is computed if that is within the call at ``span`` and its value does not leave it; None where it is what the call gives."""
        graph = self._graph(site)
        frames = [frame.span for frame in self.sources.frames(graph, site.node)]
        if site.node.phase == "backward" or not frames or span not in frames[1:]:
            return None
        readers = self.search.sites.readers(site)
        stays = any(
            span in [frame.span for frame in self.sources.frames(graph, reader.node)]
            for reader in readers
            if reader.node.phase == site.node.phase
        )
        return frames[0] if stays else None

    def region(self, site: Site) -> list[Site]:
        """A site and what it is made of, back to where values are right."""
        found: dict[int, Site] = {}
        todo = [site]
        while todo:
            one = todo.pop()
            if one.number in found or one.is_leaf or (one is not site and one.is_right):
                continue
            found[one.number] = one
            todo += self.search.sites.operands(one)
        return sorted(found.values(), key=lambda each: each.order)

    def _own(self, region: list[Site]) -> list[Site]:
        """The sites of a region that code computes which the specification does not run, where there are any: the other is right, and is given what is wrong."""
        frames = ((site, self.sources.frames(self._graph(site), site.node)[:1]) for site in region)
        return [site for site, inner in frames if not any(map(self.sources.is_shared, inner))] or region

    def _spoiling(self, region: list[Site]) -> list[Site]:
        """The sites of a region that no right output rests on, where there are any."""
        sites, numbers = self.search.sites, self.search.numbers
        wrong = {promise.name for promise in numbers.failing}
        kept = [
            sites[sites.owner[rank, var]]
            for rank, graph in enumerate(numbers.capture.ranks)
            for name, var in graph.outputs.items()
            if name not in wrong and (rank, var) in sites.owner
        ]
        right = {each.number for each in self._behind(*kept)}
        return [site for site in region if site.number not in right] or region

    def _graph(self, site: Site) -> Graph:
        return self.search.numbers.capture.ranks[site.rank]

    def _asks(self, span: Span) -> bool:
        """Whether a place is no more than the call that runs autograd."""
        program = self.sources.program(span.file)
        match program.expression(span) if program is not None else None:
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in _ASKING
        return False

    def _blamed(self, mend: Mend, site: Site) -> Span | None:
        """The innermost place through which no other call goes that does the same, with as many tensors, and is right."""
        frames, graph = self.frames(site), self._graph(site)
        mended = {each.index for each in mend.tried.sites}
        others: list[list[Span]] = []
        for index, node in enumerate(graph.nodes):
            same = node.op == site.node.op and node.phase == site.node.phase and index not in mended
            if same and len(node.reads) == len(site.node.reads) and len(node.outs) > site.slot:
                number = self.search.sites.owner.get((site.rank, node.outs[site.slot]))
                other = None if number is None else self.search.sites[number]
                if other is None or other.is_right or not other.live:
                    spans = self.frames(site, replace(node))
                    if spans != frames:
                        others.append(spans)
                    elif other is not None and other.live and self._are_apart(site, other):
                        others.append(self._up_to_loop(frames))
        for span in frames:
            if not any(span in other for other in others):
                return span
        return frames[0] if frames else None

    def _are_apart(self, site: Site, other: Site) -> bool:
        """Whether neither of two sites is made of the other: passes of a loop that each serve a tensor of their own."""
        return other not in self._behind(site) and site not in self._behind(other)

    def _behind(self, *last: Site) -> list[Site]:
        found: dict[int, Site] = {}
        todo = list(last)
        while todo:
            one = todo.pop()
            if one.number not in found:
                found[one.number] = one
                todo += self.search.sites.operands(one)
        return list(found.values())

    def _up_to_loop(self, frames: Sequence[Span]) -> list[Span]:
        """The places within the function that a loop stands in, if it is called by another: it serves what other passes are given."""
        for place, span in enumerate(frames[:-1]):
            program = self.sources.program(span.file)
            value = program.expression(span) if program is not None else None
            around = program.ancestors(value) if program is not None and value is not None else ()
            inner = itertools.takewhile(lambda node: not isinstance(node, Function), around)
            if any(isinstance(node, ast.For | ast.While) for node in inner):
                return list(frames[: place + 1])
        return []

    def _common(self, sites: Sequence[Site]) -> Span | None:
        """The innermost line that all sites of a region go through; where they part within one function, its first line of them."""
        stacks = [self.frames(site)[::-1] for site in sites if not self.search.sites.idle(site)]
        stacks = [stack for stack in stacks if stack]
        shared: Span | None = None
        for spans in itertools.zip_longest(*stacks):
            here = [span for span in spans if span is not None]
            if len(here) < len(spans):
                break
            if len({(span.file, span.line) for span in here}) > 1:
                return self._first(here, shared, sites)
            shared = here[0]
        return shared

    def _first(self, spans: Sequence[Span], shared: Span | None, sites: Sequence[Site]) -> Span | None:
        program = self.sources.program(spans[0].file)
        if program is None or any(span.file != spans[0].file for span in spans):
            return shared
        functions = {id(program.enclosing_function(span)) for span in spans}
        computing = [site for site in sites if site.computes]  # what is computed once is moved several times
        families = [family for family in self.search.sites.families if any(site in family for site in computing)]
        once = shared is None or all(self._are_apart(*pair) for f in families for pair in itertools.pairwise(f))
        return spans[0] if once and len(functions) == 1 else shared
