"""Which parts of which tensors the ranks would have to read for their outputs to be right, found by numbers.

What a rank's output must be is carried back through its program: what only moves elements is undone, and what computes is looked up in the specification, which computes the same
operator of the same elements.  Where a rank reads a part of a tensor (a slice, a split, an index) and other elements are needed, they are looked for in what it reads from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphguard.confirm.fields.field_run import FieldRun
from graphguard.confirm.fields.fields import Fields
from graphguard.confirm.fields.residues import P, Residues
from graphguard.ir import Capture, Node, Placement, Var
from graphguard.ir.fuel import SECOND, Fuel, burn
from graphguard.ir.joining import join
from graphguard.ops import EXCHANGES, aten, gg, operators
from graphguard.refine.stages.constants import elements
from graphguard.relations.algebra import Unsupported
from graphguard.repair.numbers.point import is_real
from graphguard.repair.numbers.undoing import MOVED, Array, operand_parts, part_wanted, undone, with_elements

STEPS = SECOND // 2
_ELEMENTS = 1 << 14  # of one tensor: parts are looked for by comparing elements
_BRANCHES = 400
_BRANCH = 16  # steps that one takes
_MOVES = 4  # rearrangements of all of a tensor that are looked through for a reordering
_DEPTH = 6  # rearrangements between a part and the tensor that it is taken from
_CHOOSING = operators(lambda op: op.moves in ("part", "split")) | {aten.index.Tensor, aten.index_select.default}


Positions = Sequence[Mapping[int, int]]
"""For each step of the programs, in order, the number of its node on every rank that has it."""
_Want = tuple[tuple[int, Var], Array]
Wants = Mapping[tuple[int, Var], Array]


@dataclass(frozen=True, slots=True)
class Places:
    """The tensor ``out`` of node ``node`` should be made of these places of a dim of ``source``, in this order; ``now`` are those that it is made of, where they are known."""

    node: int
    out: Var
    source: Var
    dim: int
    needed: tuple[int, ...]
    now: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Joint:
    """The tensor ``out`` of node ``node`` should be ``parts`` that were gathered, joined along another dim, and then viewed in its own shape; ``now`` is what joins them."""

    node: int
    out: Var
    parts: tuple[Var, ...]
    dim: int
    now: Var


Read = Places | Joint


@dataclass(frozen=True, slots=True)
class Rereading:
    """What every rank should read instead, and by node the group that it should gather over; ``steps`` are the numbers of the positions concerned, the last first."""

    reads: Mapping[int, tuple[Read, ...]]
    groups: Mapping[int, Mapping[int, tuple[int, ...]]]
    steps: tuple[int, ...]


def rereadings(capture: Capture, names: Sequence[str], positions: Positions) -> Iterator[Rereading]:
    """Ways to make outputs what was promised by reading other parts; none where numbers cannot tell, nor of complex tensors, whose values have a dim more."""
    if capture.spec is None or _largest(capture) > _ELEMENTS or not is_real(capture):
        return
    search = None
    try:
        search = _Search.of(capture, positions, Fuel("the search for what to read", STEPS))
    except Unsupported:  # an operator that the fields do not know
        return
    together: dict[tuple[int, Var], Array] = {}
    for name in names:
        for place, wants in enumerate(search.promised(name)):
            together |= {} if place else wants
            yield from search.carried(_State(wants))
    if len(names) > 1:
        yield from search.carried(_State(together))


@dataclass(frozen=True, slots=True)
class _State:
    """What is wanted still, and what was decided."""

    wants: Wants
    reads: tuple[tuple[int, Read], ...] = ()
    groups: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(slots=True)
class _Search:
    capture: Capture
    positions: Positions
    number: dict[tuple[int, Var], int]
    run: FieldRun
    residues: list[dict[Var, Residues]]
    spec: dict[Var, Array]
    ranks: list[dict[Var, Array]]
    fuel: Fuel
    branches: int = 0

    @classmethod
    def of(cls, capture: Capture, positions: Positions, fuel: Fuel) -> _Search:
        """Run both programs once and keep all that they compute."""
        assert capture.spec is not None
        run = FieldRun(capture, Fields(), elements)
        spec, ranks = run.specification(capture.spec), run.ranks(join(capture.ranks).order)
        number = {
            (rank, out): place
            for place, position in enumerate(positions)
            for rank, index in position.items()
            if capture.ranks[rank].nodes[index].phase != "prelude" or capture.ranks[rank].nodes[index].stack >= 0
            for out in capture.ranks[rank].nodes[index].outs
        }
        return cls(capture, positions, number, run, ranks, _arrays(spec), [_arrays(each) for each in ranks], fuel)

    def promised(self, name: str) -> Iterator[Wants]:
        """What every rank must hold of an output, for each layout that may be meant."""
        assert self.capture.spec is not None
        promise = next(promise for promise in self.capture.promises if promise.name == name)
        whole = self.spec[self.capture.spec.outputs[name]] if name in self.capture.spec.outputs else None
        if whole is None:
            return
        layouts: list[Mapping[str, Placement]] = []
        if isinstance(promise.wanted, dict):
            layouts.append(promise.wanted)
        elif promise.wanted == "infer":
            layouts.append({})
            layouts += [{axis: Placement("shard", dim)} for axis in self.capture.mesh for dim in range(whole.ndim)]
        for layout in layouts:
            wants = {
                (rank, graph.outputs[name]): part
                for rank, graph in enumerate(self.capture.ranks)
                if name in graph.outputs and (part := self._part(whole, layout, rank)) is not None
            }
            if len(wants) == sum(name in graph.outputs for graph in self.capture.ranks):
                yield wants

    def _part(self, whole: Array, layout: Mapping[str, Placement], rank: int) -> Array | None:
        """A rank's part of a tensor; None where it is a summand, or the parts are not of one size."""
        for axis, place in layout.items():
            size = self.capture.mesh[axis]
            if place.kind == "partial" or (place.kind == "shard" and whole.shape[place.dim] % size):
                return None
            if place.kind == "shard":
                whole = np.split(whole, size, place.dim)[self.capture.coordinates(rank)[axis]]
        return whole

    def carried(self, state: _State) -> Iterator[Rereading]:
        """What is wanted, carried back until every part of it is read from somewhere; each way to do so."""
        wants = {key: value for key, value in state.wants.items() if not _same(value, self.ranks[key[0]][key[1]])}
        self.branches += 1
        burn(_BRANCH)
        if any(
            key not in self.number or value.shape != self.ranks[key[0]][key[1]].shape for key, value in wants.items()
        ):
            return  # an input, which is as it is, or another shape
        if not wants:
            if state.reads or state.groups:
                yield _joined(state)
            return
        if self.branches > _BRANCHES or self.fuel.spent:
            return
        step = max(self.number[key] for key in wants)
        here = {key: wants.pop(key) for key in [key for key in wants if self.number[key] == step]}
        rest = replace(state, wants=wants)
        for following in self._behind(step, here, rest):
            yield from self.carried(following)

    def _behind(self, step: int, here: Wants, rest: _State) -> Iterator[_State]:
        """What must hold before a step for what is wanted after it, for each way to come by it."""
        nodes = {rank: (index, self.capture.ranks[rank].nodes[index]) for rank, index in self.positions[step].items()}
        op = next(iter(nodes.values()))[1].op
        if op in _CHOOSING | MOVED:
            found = [(rank, self._read(rank, nodes[rank], out, want)) for (rank, out), want in here.items()]
            if all(read is not None for _, read in found):
                known = tuple((rank, read) for rank, read in found if read is not None)
                joints = [self.number.get((rank, read.now), step) for rank, read in known if isinstance(read, Joint)]
                yield replace(rest, reads=(*rest.reads, *known), steps=(*rest.steps, min(joints, default=step)))
        if op in _CHOOSING:
            added = [(rank, self._before_choice(nodes[rank][1], rank, out, want)) for (rank, out), want in here.items()]
            yield from self._with(rest, [((rank, next(nodes[rank][1].operands())), whole) for rank, whole in added])
        elif op == gg.all_gather:
            yield from self._before_gather(step, nodes, here, rest)
        elif op in MOVED:
            moved: list[_Want] = []
            for (rank, _), want in here.items():
                node = nodes[rank][1]
                parts = undone(node, want, [self.ranks[rank][var] for var in node.operands()])
                moved += [((rank, var), part) for var, part in zip(node.operands(), parts, strict=True)]
            yield from self._with(rest, moved)
        elif not op.startswith("gg."):
            yield from self._computed(nodes, here, rest)

    def _with(self, rest: _State, added: Sequence[_Want]) -> Iterator[_State]:
        """The state in which more is wanted; none where two things are wanted of one element."""
        wants = dict(rest.wants)
        for (rank, var), value in added:
            found = self.ranks[rank][var]
            before = wants.get((rank, var), found)
            both = _both(before, value, found) if value.shape == found.shape else None
            if both is None:
                return
            wants[rank, var] = both
        yield replace(rest, wants=wants)

    def _before_choice(self, node: Node, rank: int, out: Var, want: Array) -> Array:
        """What a tensor must be for a part of it to be what is wanted; the rest stays as it is."""
        graph, whole = self.capture.ranks[rank], next(node.operands())
        source = self.ranks[rank][whole]
        numbered = Residues(source.shape, "int", plain=np.arange(source.size).reshape(source.shape))
        kinds = {var: replace(graph.types[var], dtype="int64") for var in (whole, *node.outs)}
        values = {**self.residues[rank], whole: numbered}
        self.run.run(node, replace(graph, types={**graph.types, **kinds}), values)
        return with_elements(source, want, _array(values[out]))

    def _read(self, rank: int, at: tuple[int, Node], out: Var, want: Array) -> Read | None:
        """What to read for a tensor to be the wanted one: at an operator that moves elements, in what it moves alone."""
        if at[1].op in _CHOOSING:
            return self._read_from(rank, at, out, want, _DEPTH)
        return self._joined_from(rank, at, out, want) or self._read_from(rank, at, out, want, _MOVES)

    def _read_from(self, rank: int, at: tuple[int, Node], out: Var, want: Array, depth: int) -> Places | None:
        """Where the wanted elements lie in what a part is taken from, or in what that is a rearrangement of."""
        index, node = at
        graph, values = self.capture.ranks[rank], self.ranks[rank]
        producers = graph.producers()
        operands = list(node.operands())
        for _ in range(depth):
            if len(operands) != 1 and node.op not in _CHOOSING:
                return None
            source = operands[0]
            if (found := part_wanted(want, values[source])) is not None:
                now = part_wanted(values[out], values[source], found[0])
                return Places(index, out, source, *found, None if now is None else now[1])
            made = graph.nodes[producers[source]] if source in producers else None
            if made is None or made.op not in (MOVED | _CHOOSING if node.op in _CHOOSING else MOVED):
                return None
            operands = list(made.operands())
            if made.op in MOVED and len(operands) != 1:
                return None
        return None

    def _joined_from(self, rank: int, at: tuple[int, Node], out: Var, want: Array) -> Joint | None:
        """The gathered parts that a tensor is made of, where they are the wanted one if they are joined along another dim."""
        index, node = at
        graph, values = self.capture.ranks[rank], self.ranks[rank]
        producers = graph.producers()
        made: Node | None = node
        for _ in range(_DEPTH):
            parts = tuple(made.operands()) if made is not None and made.op in MOVED else ()
            if made is None or not parts:
                return None
            if len(parts) == 1:
                made = graph.nodes[producers[parts[0]]] if parts[0] in producers else None
                continue
            gathers = {producers.get(part, -1) for part in parts}
            if len(gathers) > 1 or -1 in gathers or graph.nodes[gathers.pop()].op not in EXCHANGES:
                return None
            arrays = [values[part] for part in parts]
            joints = ((dim, np.concatenate(arrays, dim)) for dim in _joinable([array.shape for array in arrays]))
            viewed = ((dim, joint.reshape(want.shape)) for dim, joint in joints if joint.size == want.size)
            dim = next((dim for dim, joint in viewed if _same(joint, want)), None)
            return None if dim is None else Joint(index, out, parts, dim, made.outs[0])
        return None

    def _before_gather(
        self, step: int, nodes: Mapping[int, tuple[int, Node]], here: Wants, rest: _State
    ) -> Iterator[_State]:
        """What the members of a gather must give; where those of one group want different things, the group of those who want the same."""
        wanted = {
            rank: [here.get((rank, out), self.ranks[rank][out]) for out in node.outs]
            for rank, (_, node) in nodes.items()
        }
        groups = {
            rank: tuple(each for each in node.args[1] if isinstance(each, int))
            for rank, (_, node) in nodes.items()
            if isinstance(node.args[1], tuple)
        }
        agreed = all(_alike(wanted[rank], wanted[group[0]]) for rank, group in groups.items() if group[0] in wanted)
        if not agreed:
            alike: list[list[int]] = []
            for rank in sorted(wanted):
                kin = next((each for each in alike if _alike(wanted[each[0]], wanted[rank])), None)
                alike.append([rank]) if kin is None else kin.append(rank)
            if any(len(each) != len(wanted[each[0]]) for each in alike):
                return
            groups = {rank: tuple(each) for each in alike for rank in each}
        added = [
            ((rank, next(node.operands())), wanted[rank][groups[rank].index(rank)]) for rank, (_, node) in nodes.items()
        ]
        changed = () if agreed else tuple((rank, nodes[rank][0], groups[rank]) for rank in nodes)
        steps = rest.steps if agreed else (*rest.steps, step)
        yield from self._with(replace(rest, groups=(*rest.groups, *changed), steps=steps), added)

    def _computed(self, nodes: Mapping[int, tuple[int, Node]], here: Wants, rest: _State) -> Iterator[_State]:
        """What is wanted of an operator is a part of what the same operator gives in the specification: its operands must be that part of those."""
        added: list[_Want] = []
        for (rank, _), want in here.items():
            node = nodes[rank][1]
            parts = next(filter(None, (self._operands_of(node, meant, want) for meant in self._meant(node))), None)
            if parts is None:
                return
            added += [((rank, var), part) for var, part in zip(node.operands(), parts, strict=True)]
        yield from self._with(rest, added)

    def _meant(self, node: Node) -> Iterator[Node]:
        """The specification's nodes that compute the same."""
        assert self.capture.spec is not None
        for each in self.capture.spec.nodes:
            numbers = [arg for arg in each.args if not isinstance(arg, Var | tuple)]
            own = [arg for arg in node.args if not isinstance(arg, Var | tuple)]
            if each.op == node.op and len(each.outs) == 1 and numbers == own:
                yield each

    def _operands_of(self, node: Node, meant: Node, want: Array) -> list[Array] | None:
        """The parts of the specification's operands that give what is wanted; None where they are no parts of it."""
        operands = [self.spec[var] for var in meant.operands()]
        if len(operands) != len(list(node.operands())):
            return None
        return operand_parts(meant.op, want, self.spec[meant.outs[0]], operands)


def _joinable(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """The dims along which tensors of these shapes can be joined: those that they may differ in."""
    return [dim for dim in range(len(shapes[0])) if len({(*shape[:dim], *shape[dim + 1 :]) for shape in shapes}) == 1]


def _joined(state: _State) -> Rereading:
    reads: dict[int, tuple[Read, ...]] = {}
    for rank, each in state.reads:
        reads[rank] = (*reads.get(rank, ()), each)
    groups: dict[int, dict[int, tuple[int, ...]]] = {}
    for rank, node, group in state.groups:
        groups.setdefault(rank, {})[node] = group
    return Rereading(reads, groups, state.steps)


def _alike(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return len(one) == len(other) and all(map(_same, one, other))


def _both(one: Array, other: Array, found: Array) -> Array | None:
    """What is wanted by either, where a thing that is as it was found is not asked for; None where they want different things."""
    first, second = one != found, other != found
    return None if (first & second & (one != other)).any() else np.where(first, one, other)


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool((one == other).all())


def _arrays(values: Mapping[Var, Residues]) -> dict[Var, Array]:
    return {var: _array(value) for var, value in values.items()}


def _array(value: Residues) -> Array:
    """One number for each element."""
    if value.p is None:
        return np.asarray(value.plain, dtype=np.int64)
    numbers = value.p % P
    return numbers if value.hidden is None else np.where(value.hidden, P, numbers)


def _largest(capture: Capture) -> int:
    kinds = (kind for graph in capture.graphs for kind in graph.types.values())
    return max((math.prod(n if isinstance(n, int) else 0 for n in kind.shape) for kind in kinds), default=0)
