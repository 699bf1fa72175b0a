"""Where a program can be cut: tensors through which everything later passes, in the specification and in every rank alike.

A *cut* is one tensor of each graph.  Between two cuts lies a *stage* of the whole job; stages that share other tensors (a layer's forward and
backward share its saved activations) are one *region*.  Cuts are found by liveness alone and say nothing about values: whether the ranks' tensors of a
cut are windows of the specification's is proved when the stage before it is.

Tensors that follow from literals, index inputs or parameters alone (masks, rotary tables, shards, transposes) are *static*: every region that reads one
computes it for itself, so that they tie no regions together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from graphguard.ir import Capture, Graph, Leaf, Promise, Var
from graphguard.ir.capture import Like
from graphguard.ir.graph import COLLECTIVES, Size
from graphguard.ir.joining import Joined, JoinedCall, Step
from graphguard.refine.stages.calls import Unspelt
from graphguard.refine.stages.coarse import float_types
from graphguard.refine.stages.flow import Flow, Place
from graphguard.refine.stages.twins import Programs

_USUAL: Final = 3  # cuts of one type that are the stream of a stack of layers
_FLOATS: Final = frozenset(("float64", "float32", "bfloat16", "float16"))


Cut: TypeAlias = tuple[Var, ...]
"""One tensor a graph (the specification's first, then the ranks'), read after a stage and made in it or before; there is one after each stage but the last."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Calls between two cuts: a range of nodes for every graph, the specification's first; and the promises that are settled after it."""

    region: int
    nodes: tuple[range, ...]
    promises: tuple[Promise, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """A capture in stages, in an order in which it can run.

    By graph (the specification first) and number of a tensor, ``home`` is the stage that makes it, where it is not static, and ``made`` the node.
    ``own`` are the nodes that a stage has of its own: those whose results are not static, and the ``early`` ones, which make static tensors of float inputs that one region alone reads: in a deeper layer what they do is not static.
    ``programs`` has all nodes as data.  ``labelled`` are the ranks' own parameters by name; ``floats`` the tensors' float types.
    """

    stages: tuple[Stage, ...]
    cuts: tuple[Cut, ...]
    graphs: tuple[Graph, ...]
    home: tuple[dict[int, int], ...]
    made: tuple[dict[int, int], ...]
    early: tuple[set[int], ...]
    own: tuple[Sequence[int], ...]
    programs: Programs
    labelled: tuple[dict[str, Var], ...]
    floats: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "floats", float_types(frozenset().union(*[calls.dtypes for calls in self.programs.calls]))
        )

    def own_of(self, graph: int, stage: Stage) -> Sequence[int]:
        """The nodes of a graph that a stage has of its own."""
        own, nodes = self.own[graph], stage.nodes[graph]
        return own[bisect_left(own, nodes.start) : bisect_left(own, nodes.stop)]


class Steps:
    """The ranks' calls in lockstep, by stage, taken apart as far as they are asked for."""

    def __init__(self, division: Division, joined: Joined) -> None:
        ranks = range(len(division.graphs) - 1)
        self._bounds = [[stage.nodes[rank + 1].stop for stage in division.stages] for rank in ranks]
        self._at = [0] * len(ranks)  # the stage that each rank is in
        self._rest = iter(joined.order)
        self._stages: list[list[Step]] = [[] for _ in division.stages]

    def of(self, stage: int) -> list[Step]:
        """The calls of a stage."""
        if min(self._at) <= stage:
            self._go_on(stage)
        return self._stages[stage]

    def _go_on(self, wanted: int) -> None:
        """Take calls until every rank is past a stage."""
        at, bounds = self._at, self._bounds
        for step in self._rest:
            rank, index = next(iter(step.nodes.items())) if isinstance(step, JoinedCall) else step
            stage = at[rank]
            if index < bounds[rank][stage]:
                self._stages[stage].append(step)
                continue
            at[rank] = stage = bisect_right(bounds[rank], index, stage)
            self._stages[stage].append(step)
            if min(at) > wanted:
                break


def divided(capture: Capture, joined: Joined) -> Division | None:
    """The division of a capture; None where there is nothing to cut."""
    assert capture.spec is not None
    graphs = (capture.spec, *capture.ranks)
    bits = {leaf.name: 1 << index for index, leaf in enumerate(capture.leaves)}
    inputs = sum(bits[leaf.name] for leaf in capture.leaves if leaf.kind != "parameter")
    floats = sum(bits[leaf.name] for leaf in capture.leaves if leaf.type.dtype in _FLOATS)
    try:
        programs = Programs.of(graphs)
    except Unspelt:
        return None
    flows = [Flow(graphs[graph], programs.calls[graph], bits, inputs, floats) for graph in programs.twins]
    if not all(flow.whole for flow in flows) or len({flow.phases for flow in flows}) != 1:
        return None
    chosen = _chosen(flows)
    if not chosen:
        return None
    chosen = _stream(flows, chosen, inputs & floats)
    return _division(capture, flows, chosen, joined, programs)


def _chosen(flows: list[Flow]) -> list[tuple[Place, ...]]:
    """Cuts that all graphs have, at the same leaves, in order: a place in every graph."""
    spec, *ranks = [flow.cuts() for flow in flows]
    out: list[tuple[Place, ...]] = []
    for run, mine in enumerate(spec):
        common = Counter(op for places in mine.values() for op in {flows[0].op(var) for _, var in places})
        for mask, places in sorted(mine.items(), key=lambda item: item[1][0]):
            others = [rows[run].get(mask, []) for rows in ranks]
            found = _alike(flows, places, others, common) if all(others) else None
            if found is None:
                continue
            rising = not out or all(a > b and v != w for (a, v), (b, w) in zip(found, out[-1], strict=True))
            if rising and all(_is_float(flow, var) for flow, (_, var) in zip(flows, found, strict=True)):
                out.append(found)
    return out


def _stream(flows: list[Flow], chosen: list[tuple[Place, ...]], inputs: int) -> list[tuple[Place, ...]]:
    """The cuts by which the first and the last layer of a stack are cut as the others are.

    That is without those of odd types among those of the type that most have, and without those past which a layer still reads an input (of the leaves ``inputs``, as bits) in
    the place of another layer's tensor; and with what a run of one phase ends in.
    """
    spec = flows[0].graph
    kinds = [spec.types[Var(places[0][1])] for places in chosen]
    types = [(kind.shape, kind.dtype) for kind in kinds]
    (usual, count), *_ = Counter(types).most_common(1)
    if count < _USUAL:
        return chosen
    last = len(types) - 1 - types[::-1].index(usual)
    kept = [
        places for index, (places, kind) in enumerate(zip(chosen, types, strict=True)) if kind == usual or index > last
    ]
    passed = _passed(flows[0], [places[0][0] for places in kept], inputs)
    kept = [places for index, places in enumerate(kept) if index not in passed]
    return sorted([*kept, *_turns(flows, usual)])


def _passed(spec: Flow, cuts: list[int], inputs: int) -> set[int]:
    """The cuts, by index, past which a few stages go on reading an input; one that more of them read is no layer's own."""
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    run = cut = 0
    for index, _, _, leaves in spec.moving:
        while cut < len(cuts) and cuts[cut] < index:
            cut += 1
        while run < len(spec.runs) and spec.runs[run] <= index:
            run += 1
        read = leaves & inputs
        while read:
            key = run, read & -read
            spans[key] = spans.get(key, (cut, cut))[0], cut
            read &= read - 1
    return {cut for first, end in spans.values() if end - first < _USUAL for cut in range(first, end)}


def _turns(flows: list[Flow], usual: tuple[tuple[Size, ...], str]) -> Iterator[tuple[Place, ...]]:
    """The ends of runs, but for the last one, each with the last output of the usual shape and element type that the run makes."""
    spec = flows[0]
    kinds = [(name, var, spec.graph.types[var]) for name, var in spec.graph.outputs.items()]
    outputs = [(name, var) for name, var, kind in kinds if (kind.shape, kind.dtype) == usual]
    for run in range(len(spec.runs) - 1):
        made = {name: spec.made[var.id] for name, var in outputs if spec.run_of(var) == run}
        held = [flow.graph.outputs.get(max(made, key=made.__getitem__)) for flow in flows] if made else [None]
        ends = tuple(
            (flow.end_of(run), var.id)
            for flow, var in zip(flows, held, strict=False)
            if var is not None and flow.run_of(var) == run and _is_float(flow, var.id)
        )
        if len(ends) == len(flows):
            yield ends


def _is_float(flow: Flow, var: int) -> bool:
    return flow.graph.types[Var(var)].dtype in _FLOATS


def _alike(
    flows: list[Flow], places: list[Place], others: list[list[Place]], common: Counter[str]
) -> tuple[Place, ...] | None:
    """The last places of the specification and the ranks where one operator made the tensor, the most common one at cuts.

    Where collectives made the last of all ranks these are the places: what they gather is seldom related before.
    """
    ops = [[flow.op(var) for _, var in rows] for flow, rows in zip(flows[1:], others, strict=True)]
    if all(row[0] in COLLECTIVES for row in ops):
        return (places[0], *(rows[0] for rows in others))
    for node, var in sorted(places, key=lambda place: -common[flows[0].op(place[1])]):
        op = flows[0].op(var)
        if all(op in row for row in ops):
            return ((node, var), *(rows[row.index(op)] for rows, row in zip(others, ops, strict=True)))
    return None


def _division(
    capture: Capture,
    flows: list[Flow],
    chosen: list[tuple[Place, ...]],
    joined: Joined,
    programs: Programs,
) -> Division | None:
    regions = Regions(len(chosen) + 1)
    bounds, home = [], []
    for number, flow in enumerate(flows):
        ends = [0, *(places[number][0] + 1 for places in chosen), len(flow.graph.nodes)]
        bounds.append(ends)
        home.append(_homes(flow, ends, {places[number][1] for places in chosen}, regions))
    like = {
        graph: number for number, (first, others) in enumerate(programs.twins.items()) for graph in (first, *others)
    }
    forms = [like[graph] for graph in range(len(programs.calls))]
    if not _meet_in_one_stage(joined, [bounds[form] for form in forms[1:]]):
        return None
    promises = _settled(capture, flows, home, regions)
    ranges = [[range(*ends) for ends in pairwise(mine)] for mine in bounds]
    cuts = tuple(tuple(Var(places[form][1]) for form in forms) for places in chosen)
    stages_ = tuple(
        Stage(regions.root(index), tuple(ranges[form][index] for form in forms), tuple(promises.get(index, ())))
        for index in range(len(cuts) + 1)
    )
    everywhere = _shared(flows[0], bounds[0], regions)  # a table of frequencies, say
    early = [{index for index, leaves in flow.early.items() if leaves & ~everywhere} for flow in flows]
    own = [sorted([*flow.own, *mine]) if mine else flow.own for flow, mine in zip(flows, early, strict=True)]
    assert capture.spec is not None
    return Division(
        stages=stages_,
        cuts=cuts,
        graphs=(capture.spec, *capture.ranks),
        home=tuple(home[form] for form in forms),
        made=tuple(flows[form].made for form in forms),
        early=tuple(early[form] for form in forms),
        own=tuple(own[form] for form in forms),
        programs=programs,
        labelled=tuple(flows[form].labelled for form in forms[1:]),
    )


def _meet_in_one_stage(joined: Joined, bounds: list[list[int]]) -> bool:
    """Whether the calls of every collective belong to one stage; ``bounds`` has those of the stages, by rank."""
    return all(
        len({bisect_right(bounds[rank], index) for rank, index in call.nodes.items()}) == 1
        for call in joined.collectives
    )


def _shared(flow: Flow, bounds: list[int], regions: Regions) -> int:
    """The leaves, as bits, behind static tensors that several regions read."""
    behind = [0] * len(bounds)
    stage = 0
    for index, _, _, leaves in flow.moving:
        while index >= bounds[stage + 1]:
            stage += 1
        behind[stage] |= leaves
    of_regions: dict[int, int] = {}
    for stage, leaves in enumerate(behind[:-1]):
        root = regions.root(stage)
        of_regions[root] = of_regions.get(root, 0) | leaves
    once = twice = 0
    for leaves in of_regions.values():
        twice |= once & leaves
        once |= leaves
    return twice


class Regions:
    """Stages joined by what they share."""

    def __init__(self, count: int) -> None:
        self.parents = list(range(count))

    def root(self, stage: int) -> int:
        """The stage that a region goes by."""
        while self.parents[stage] != stage:
            stage = self.parents[stage]
        return stage

    def join(self, a: int, b: int) -> None:
        """Make one region of two."""
        a, b = sorted((self.root(a), self.root(b)))
        self.parents[b] = a


def _homes(flow: Flow, bounds: list[int], cut: set[int], regions: Regions) -> dict[int, int]:
    """The stage of every tensor that is not static; stages that read such a tensor, other than a cut, are one region with it."""
    home: dict[int, int] = {}
    shared: set[tuple[int, int]] = set()
    stage, stop = 0, bounds[1]
    for index, outs, reads, _ in flow.moving:
        while index >= stop:
            stage += 1
            stop = bounds[stage + 1]
        for var in reads:
            if home[var] != stage and var not in cut:
                shared.add((home[var], stage))
        for out in outs:
            home[out.id] = stage
    for pair in sorted(shared):
        regions.join(*pair)
    return home


def _settled(
    capture: Capture, flows: list[Flow], home: list[dict[int, int]], regions: Regions
) -> dict[int, list[Promise]]:
    """The promises by the stage after which all that they speak of is there, which is all in one region."""
    names = capture.leaves
    out: dict[int, list[Promise]] = {}
    for promise in capture.promises:
        stages = {home[number][var] for number, var in _concerned(promise, flows, names) if var in home[number]}
        last = max(stages, default=0)
        for stage in stages:
            regions.join(stage, last)
        out.setdefault(last, []).append(promise)
    return out


def _concerned(promise: Promise, flows: list[Flow], leaves: tuple[Leaf, ...]) -> Iterator[tuple[int, int]]:
    """The tensors that a promise speaks of, by graph and number."""
    for number, flow in enumerate(flows):
        var = flow.graph.outputs.get(promise.name)
        if var is not None:
            yield number, var.id
    if isinstance(promise.wanted, Like):
        before, _, after = promise.name.rpartition(promise.wanted.leaf)
        mask = 0
        for flow in flows[1:]:
            own = flow.labelled.get(promise.wanted.leaf)
            mask |= flow.static.get(own.id, 0) if own is not None else 0
        outputs = flows[0].graph.outputs
        while mask:
            lowest = mask & -mask
            mask -= lowest
            var = outputs.get(before + leaves[lowest.bit_length() - 1].name + after)
            if var is not None:
                yield 0, var.id
