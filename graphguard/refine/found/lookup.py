"""Which tensors are which: look-up of relations by kernel.

Equal meaning has become equal identity, so a relation is found by asking a table: the specification's tensors by their kernels, and the
ranks' tensors by theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from heapq import merge
from itertools import islice
from operator import itemgetter, le

from graphguard.ir import Capture, Graph, Placement, Var
from graphguard.refine.evaluation.evaluate import Values
from graphguard.refine.evaluation.exposed import ROUNDED
from graphguard.refine.found.covers import cover
from graphguard.refine.found.layouts import Layouts
from graphguard.refine.found.naming import names_of
from graphguard.refine.found.parts import part_text
from graphguard.relations.algebra import Unsupported
from graphguard.relations.relation import Expression, Relation, placed
from graphguard.relations.sums.linear import close
from graphguard.relations.terms.kernels import Number, Ref
from graphguard.relations.terms.values import NormalValue, extents_of

_GROUPS = 8  # groups of the ranks' tensors that are tried for one tensor of the specification
_VAGUE = ("rearrangement of ", "part of ")  # in a text that says less than a slice does, the last one least
_TARGETS = 6  # tensors of the specification that are tried for one group


@dataclass(frozen=True, slots=True)
class GroupRelation:
    """How one tensor a rank rebuild a tensor of the specification: ``target = placements(tensors) / factor``."""

    target: Var
    target_name: str
    placements: dict[str, Placement] | None
    factor: Fraction = Fraction(1)

    def __str__(self) -> str:
        scale = "" if self.factor == 1 else f"{self.factor} * "
        return f"{scale}{self.target_name}: {placed(self.placements or {})}"


@dataclass(slots=True)
class Targets:
    """What is known of one specification's tensors: by kernel, their shapes, and which of them groups of the ranks' tensors rebuild."""

    by_kernel: dict[int, list[Var]] | None = None
    shapes: frozenset[tuple[int, ...]] = frozenset()
    groups: dict[object, GroupRelation | None] = field(default_factory=dict)


class Lookup:
    """Tables of one proof, filled when they are first asked."""

    def __init__(
        self,
        capture: Capture,
        specification: Values,
        ranks: list[Values],
        layouts: Layouts,
        names: dict[int, dict[Var, str]] | None = None,
        targets: Targets | None = None,
    ) -> None:
        assert capture.spec is not None
        self.capture = capture
        self.spec: Graph = capture.spec
        self.specification = specification
        self.ranks = ranks
        self.layouts = layouts
        self.universe = layouts.algebra.universe
        self._targets = targets or Targets()
        self._held: dict[int, list[dict[Var, int]]] | None = None
        self._described: dict[int, str | None] = {}
        self._made_of: dict[int, set[Var]] = {}
        self._labels: dict[str, dict[int, Var]] | None = None
        self._preludes: dict[int, set[Var]] = {}
        self._names: dict[int, dict[Var, str]] = {} if names is None else names

    # -- tables

    def names(self, graph: int) -> dict[Var, str]:
        """Names of a rank's variables; of the specification's for -1."""
        if graph not in self._names:
            self._names[graph] = names_of(self.spec if graph < 0 else self.capture.ranks[graph])
        return self._names[graph]

    def closed(self, value: NormalValue) -> list[tuple[Number, Ref]] | None:
        """Every piece as a multiple of one reference; None where that is not possible."""
        known = self.layouts.closed.get(id(value))
        if known is None:
            try:
                pieces = [close(self.universe, terms, extents_of(box)) for box, terms in value.pieces]
            except Unsupported:
                pieces = None
            known = self.layouts.closed[id(value)] = (value, pieces)
        return known[1]

    def kernel(self, value: NormalValue) -> int | None:
        """The kernel of the first piece that is not constant."""
        pieces = self.closed(value)
        return next((ref[0].id for c, ref in pieces or () if c != 0 and ref[0].kind != "one"), None)

    def targets(self) -> dict[int, list[Var]]:
        """The specification's variables by kernel, first computed first."""
        found = self._targets.by_kernel
        if found is None:
            found = self._targets.by_kernel = {}
            for var, value in self.specification.items():
                for c, ref in self.closed(value) or ():
                    row = found.setdefault(ref[0].id, [])
                    if c != 0 and ref[0].kind != "one" and (not row or row[-1] != var):
                        row.append(var)
            self._targets.shapes = frozenset(value.shape for value in self.specification.values())
        return found

    def held(self) -> dict[int, list[dict[Var, int]]]:
        """The ranks' variables by kernel: one table a rank, in order of computation."""
        if self._held is None:
            self._held = {}
            for rank, values in enumerate(self.ranks):
                for place, (var, value) in enumerate(values.items()):
                    for kernel in {ref[0].id for c, ref in self.closed(value) or () if c != 0 and ref[0].kind != "one"}:
                        self._held.setdefault(kernel, [{} for _ in self.ranks])[rank][var] = place
        return self._held

    # -- relations of the specification's tensors

    def relation(self, var: Var) -> Relation | None:
        """How the ranks' tensors rebuild a tensor of the specification."""
        value = self.specification.get(var)
        if value is None:
            return None
        name = self.names(-1).get(var, "")
        partial: Relation | None = None
        for group in self._candidates(var, name, value):
            if any(mine in self._unheld(rank) for rank, mine in group.items()):
                continue
            held = {rank: self.ranks[rank][mine] for rank, mine in group.items()}
            found = self.layouts.find(value, held)
            if found is not None:
                names = {rank: self.names(rank).get(mine, "tensor") for rank, mine in group.items()}
                relation = Relation(name, self.layouts.expression(found[0], names), found[0])
                if all(place.kind != "partial" for place in found[0].values()):
                    return relation
                partial = partial or relation
            elif group == self._labelled(name) or (name in self.spec.outputs and group == self._outputs(name)):
                expression = cover(self.layouts, value, held, name)
                if expression is not None:
                    return Relation(name, expression)
        return partial

    def holders(self, var: Var) -> list[tuple[dict[int, Var], dict[str, Placement]]]:
        """The groups of the ranks' tensors that hold a tensor of the specification whole or in parts, with their placements."""
        value = self.specification.get(var)
        if value is None:
            return []
        groups: list[tuple[dict[int, Var], dict[str, Placement]]] = []
        for group in self._candidates(var, self.names(-1).get(var, ""), value):
            found = self.layouts.find(value, {rank: self.ranks[rank][mine] for rank, mine in group.items()})
            if found is not None and len(group) == len(self.ranks) and group not in [known for known, _ in groups]:
                groups.append((group, found[0]))
        return groups

    def _candidates(self, var: Var, name: str, value: NormalValue) -> list[dict[int, Var]]:
        """Groups of the ranks' tensors that could hold a tensor of the specification."""
        kernel = self.kernel(value)
        tables = self.held().get(kernel) if kernel is not None else None
        return self._alike(var, value) if tables is None else self._groups(tables, name, value)

    def _outputs(self, name: str) -> dict[int, Var]:
        """The ranks' outputs of a name."""
        return {
            rank: graph.outputs[name]
            for rank, graph in enumerate(self.capture.ranks)
            if name in graph.outputs and graph.outputs[name] in self.ranks[rank]
        }

    def _labelled(self, name: str) -> dict[int, Var]:
        """The ranks' own parameters of a name."""
        if self._labels is None:
            self._labels = {}
            for rank, graph in enumerate(self.capture.ranks):
                for var, label in graph.labels.items():
                    if var in self.ranks[rank]:
                        self._labels.setdefault(label, {})[rank] = var
        return self._labels.get(name, {})

    def _prelude(self, rank: int) -> set[Var]:
        """The inputs of a rank, and what its prelude makes of them."""
        if rank not in self._preludes:
            graph = self.capture.ranks[rank]
            made = (out for node in graph.nodes if node.phase == "prelude" for out in node.outs)
            self._preludes[rank] = {*made, *graph.inputs}
        return self._preludes[rank]

    def _unheld(self, rank: int) -> set[Var]:
        """What no rank keeps: the specification's parameters that it makes its own ones of, which bear the same names, and numbers before they are rounded."""
        if rank not in self._made_of:
            graph = self.capture.ranks[rank]
            own = set(graph.labels.values())
            self._made_of[rank] = {
                var for var, name in graph.inputs.items() if name in own and graph.labels.get(var) != name
            }.union(*(node.operands() for node in graph.nodes if node.op == ROUNDED))
        return self._made_of[rank]

    def _groups(self, tables: list[dict[Var, int]], name: str, value: NormalValue) -> list[dict[int, Var]]:
        """Tensors of the ranks at one position of the program that could be parts of a value; own parameters first, inputs of the prelude last."""
        groups: list[dict[int, Var]] = []
        outputs = self._outputs(name) if name in self.spec.outputs else {}
        groups += [group for group in (outputs, self._labelled(name)) if group]
        tables = [
            {var: place for var, place in table.items() if _could_be_part(self.ranks[rank][var].shape, value.shape)}
            for rank, table in enumerate(tables)
        ]
        first = next((rank for rank, table in enumerate(tables) if table), None)
        if first is None:
            return groups
        prelude = self._prelude(first)
        ordered = sorted(tables[first], key=lambda var: (var in prelude, tables[first][var]))
        for ordinal, var in enumerate(ordered[:_GROUPS]):
            group: dict[int, Var] = {}
            for rank, table in enumerate(tables):
                if var in table:
                    group[rank] = var
                elif table:
                    mine = list(table)
                    group[rank] = mine[min(ordinal, len(mine) - 1)]
            groups.append(group)
        return groups

    @cached_property
    def _made(self) -> dict[Var, int]:
        return self.spec.producers()

    def _alike(self, var: Var, value: NormalValue) -> list[dict[int, Var]]:
        """Tensors that the same operator gives, for a value whose pieces a rank's part cuts: such a part has other kernels than the whole."""
        if len(value.pieces) < 2:
            return []
        made = self._made.get(var)
        if made is None:
            return []
        by_shape = self._everywhere.get(self.spec.nodes[made].op, {})
        fitting = (outs for shape, outs in by_shape.items() if _could_be_part(shape, value.shape))
        first = islice(merge(*fitting, key=itemgetter(0)), _GROUPS)
        return [dict.fromkeys(range(len(self.ranks)), out) for _, out in first]

    @cached_property
    def _everywhere(self) -> dict[str, dict[tuple[int, ...], list[tuple[int, Var]]]]:
        """By operator and shape, what the first rank makes beyond its prelude and all ranks hold, in order of computation."""
        found: dict[str, dict[tuple[int, ...], list[tuple[int, Var]]]] = {}
        for place, node in enumerate(self.capture.ranks[0].nodes if self.capture.ranks else ()):
            for out in node.outs if node.phase != "prelude" else ():
                if all(out in values for values in self.ranks):
                    by_shape = found.setdefault(node.op, {})
                    by_shape.setdefault(self.ranks[0][out].shape, []).append((place, out))
        return found

    # -- the ranks' tensors

    def describe(self, rank: int, var: Var) -> str | None:
        """A rank's tensor in terms of the specification; None where it is no window of any of its tensors."""
        value = self.ranks[rank].get(var)
        if value is None:
            return None
        if id(value) not in self._described:
            self._described[id(value)] = self._describe(value)
        return self._described[id(value)]

    def _describe(self, value: NormalValue) -> str | None:
        pieces = self.closed(value)
        if pieces is None:
            return None
        texts = list(dict.fromkeys(self._describe_piece(c, ref) for c, ref in pieces))
        if not texts:
            return "constant"
        if None in texts:
            return None
        moving = [text for text in texts if text != "constant"]
        if not moving:
            return "constant"
        return moving[0] if len(moving) == 1 else "pieces of " + ", ".join(filter(None, moving[:4]))

    def _describe_piece(self, coefficient: Number, ref: Ref) -> str | None:
        if coefficient == 0 or ref[0].kind in ("one", "iota", "number", "infinity"):
            return "constant"
        best: tuple[tuple[bool, int], str] | None = None
        for var in self.targets().get(ref[0].id, ())[:_TARGETS]:
            name = self.names(-1).get(var, "")
            for other, target in self.closed(self.specification[var]) or ():
                if target[0] is not ref[0]:
                    continue
                factor = Fraction(coefficient) / Fraction(other)
                text = part_text(name, ref, target)
                if factor == 1 and text == name:
                    return name
                vague = (factor != 1, next((n for n, word in enumerate(_VAGUE, 1) if word in text), 0))
                if best is None or vague < best[0]:
                    best = vague, text if factor == 1 else f"{factor} * {text}"
        return None if best is None else best[1]

    def on_relation(self, rank: int, var: Var) -> bool:
        """Whether a rank's tensor is a window of some tensor of the specification, unscaled; what is no float is not asked."""
        value = self.ranks[rank].get(var)
        if value is None or value.kind != "float":
            return value is not None
        text = self.describe(rank, var)
        return text is not None and not (text[0].isdigit() or text[0] == "-")

    # -- groups

    def group(self, variables: Mapping[int, Var]) -> GroupRelation | None:
        """The tensor of the specification that one tensor a rank rebuild together."""
        held = {rank: self.ranks[rank][var] for rank, var in variables.items() if var in self.ranks[rank]}
        if not held or len(held) < len(variables):
            return None
        key = tuple(held.items())
        if key not in self._targets.groups:
            self._targets.groups[key] = self._group(held)
        return self._targets.groups[key]

    def _group(self, held: Mapping[int, NormalValue]) -> GroupRelation | None:
        first = next(iter(held.values()))
        found = self._group_by(first, held)
        if found is not None:
            return found
        cut = range(len(first.shape) if len(first.pieces) > 1 or len(held) > 1 else 0)
        for axis, size in self.capture.mesh.items():
            if size == 1 or first.kind != "float":
                continue
            for placement in (Placement("partial"), *(Placement("shard", dim) for dim in cut)):
                if not self._may_rebuild(axis, placement, held):
                    continue
                rebuilt = self.layouts.rebuild({axis: placement}, held)
                found = self._group_by(rebuilt.value, held) if rebuilt is not None else None
                if found is not None:
                    return found
        return None

    def _may_rebuild(self, axis: str, placement: Placement, held: Mapping[int, NormalValue]) -> bool:
        """Whether a tensor of the specification has the shape that ranks' tensors have together, along the other axes a longer one."""
        self.targets()
        shapes = self._targets.shapes
        joined = list(next(iter(held.values())).shape)
        if any(len(value.shape) != len(joined) for value in held.values()):
            return False  # of different numbers of dims
        if placement.kind == "shard":
            joined[placement.dim] = sum(value.shape[placement.dim] for value in self.layouts.along(axis, held))
        if sum(size > 1 for size in self.capture.mesh.values()) == 1:
            return tuple(joined) in shapes
        return any(len(shape) == len(joined) and all(map(le, joined, shape)) for shape in shapes)

    def _group_by(self, sample: NormalValue, held: Mapping[int, NormalValue]) -> GroupRelation | None:
        kernel = self.kernel(sample)
        if kernel is None:
            return None
        scaled: GroupRelation | None = None
        targets = self.targets().get(kernel, [])
        same = [var for var in targets[_TARGETS:] if self.specification[var] == sample]
        for var in (*same[:1], *targets[:_TARGETS]):
            found = self.layouts.find(self.specification[var], held, scaled=True)
            if found is not None:
                relation = GroupRelation(var, self.names(-1).get(var, ""), found[0], found[1])
                if found[1] == 1:
                    return relation
                scaled = scaled or relation
        return scaled


def _could_be_part(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape has the dims of another, none of them longer: a shard, a summand or a copy of it."""
    return len(part) == len(whole) and all(map(le, part, whole))


__all__ = ["Expression", "GroupRelation", "Lookup"]
