"""Programs of a quotient over stacked values: every call once for all its ranks.

What cannot be followed has no value, and what reads it has none either; a promise that needs it is not proved this way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from graphguard.ir import Node, TensorType, Var
from graphguard.ir.graph import COLLECTIVES, Arg
from graphguard.ops import aten
from graphguard.refine.digits.algebra import Stack, Stacked
from graphguard.refine.digits.moves import Numbers, coordinate, put, window
from graphguard.refine.digits.programs import Program, same_argument
from graphguard.refine.evaluation.evaluate import Evaluator
from graphguard.refine.stages.constants import elements
from graphguard.relations.algebra import Unsupported
from graphguard.rules import Trait, evaluate_node

#: Calls of our own that are neither collectives nor functions of their operands alone.
_SPECIAL: Final = frozenset(("gg.assume", "gg.rounded"))
#: Where a call takes a number that may be a tensor without dims as well, and what it is then called.
_SCALARS: Final = {
    aten.add.Tensor: (1, aten.add.Tensor),
    aten.sub.Tensor: (1, aten.sub.Tensor),
    aten.mul.Tensor: (1, aten.mul.Tensor),
    aten.eq.Scalar: (1, aten.eq.Tensor),
    aten.ne.Scalar: (1, aten.ne.Tensor),
    aten.ge.Scalar: (1, aten.ge.Tensor),
    aten.gt.Scalar: (1, aten.gt.Tensor),
    aten.le.Scalar: (1, aten.le.Tensor),
    aten.lt.Scalar: (1, aten.lt.Tensor),
}
_SPLITS: Final = frozenset((aten.split.Tensor, aten.chunk.default, aten.split_with_sizes.default))


class Run:
    """The values of one program.  ``lists`` has the results of calls that give several, with their place along a dim in front; ``lost`` says what was not followed."""

    def __init__(self, algebra: Stacked, evaluator: Evaluator, program: Program, traits: Mapping[str, Trait]) -> None:
        self.algebra = algebra
        self.program = program
        self.values: dict[Var, Stack] = {}
        self.lists: dict[int, Stack] = {}
        self.lost: list[str] = []
        self._evaluator = evaluator
        self._traits = traits
        graph = program.graph
        self._results = {
            out: (index, at) for index, node in enumerate(graph.nodes) for at, out in enumerate(node.outs) if len(node.outs) > 1
        }

    def start(self, leaves: Mapping[str, Stack]) -> None:
        """Give leaves and literal tensors their values."""
        graph, a = self.program.graph, self.algebra
        for var, name in graph.inputs.items():
            self.values[var] = leaves[name]
        for var, constant in graph.constants.items():
            each = self.program.literals.get(var)
            if each is None:
                self.values[var] = a.lift(self._evaluator.constant(constant))
                continue
            try:
                rows = np.stack([elements(one, single=True) for one in each])
                self.values[var] = a.of(a.normal.literal(rows.reshape((*a.sizes, *rows.shape[1:]))))
            except Unsupported as reason:
                self.lost.append(str(reason))

    def run(self, indices: Collection[int]) -> None:
        """Evaluate calls that are no collectives, in order."""
        for index in indices:
            if self.program.graph.nodes[index].op not in COLLECTIVES:
                self.call(index)

    def call(self, index: int) -> None:
        """Evaluate a call that is no collective."""
        node = self.program.graph.nodes[index]
        try:
            if node.op in _SPECIAL or "empty" in node.op:
                raise Unsupported(f"{node.op} is not followed along digits")
            each = self.program.unlike.get(index)
            results = self._alike(index, node) if each is None else self._unlike(index, node, each)
        except KeyError:
            return
        except Unsupported as reason:
            self.lost.append(f"{node.op}: {reason}")
            return
        for out, value in zip(node.outs, results, strict=len(results) > 0):
            self.give(out, value)

    def give(self, out: Var, value: Stack) -> None:
        """Keep a result, which must have the shape that it has in the program."""
        if value.shape != self.program.graph.types[out].shape:
            raise Unsupported("a result of another shape")
        self.values[out] = value

    def get(self, var: Var) -> Stack:
        """The value of a variable; raises ``KeyError`` where it has none."""
        if var not in self.values and var in self._results:
            index, at = self._results[var]
            self.values[var] = self._item(self.lists[index], at)
        return self.values[var]

    def _item(self, several: Stack, at: int) -> Stack:
        return self.algebra.reshape(self.algebra.slice(several, 0, at, at + 1), several.shape[1:])

    def listed(self, each: Sequence[Arg]) -> Stack:
        """Tensors of one shape along a new dim in front; all results of a call as they are."""
        found = self._whole_list(each)
        if found is not None:
            return found
        values = [self.get(var) for var in each if isinstance(var, Var)]
        return self.algebra.concat([self.algebra.reshape(value, (1, *value.shape)) for value in values], 0)

    def _whole_list(self, each: Sequence[Arg]) -> Stack | None:
        """The results of one call where these are all of them, in order."""
        at = [self._results.get(var) if isinstance(var, Var) else None for var in each]
        if not at or at[0] is None or at[0][0] not in self.lists:
            return None
        index = at[0][0]
        return self.lists[index] if at == [(index, place) for place in range(self.lists[index].shape[0])] else None

    # -- calls that all ranks make alike

    def _alike(self, index: int, node: Node) -> Sequence[Stack]:
        if node.op in _SPLITS and self._split(index, node):
            return ()
        if node.op == aten.cat.default:
            joined = self._joined(node)
            if joined is not None:
                return (joined,)
        values = {var: self.get(var) for var in node.reads}
        plain = {var: self.algebra.plain(value) for var, value in values.items()}
        known = {var: value for var, value in plain.items() if value is not None}
        if len(known) == len(plain):
            results = self._evaluator.made(node, self.program.graph, known)
            return [self.algebra.lift(value) for value in results]
        return self._evaluated(node, values)

    def _evaluated(self, node: Node, values: Mapping[Var, Stack], types: Mapping[Var, TensorType] | None = None) -> Sequence[Stack]:
        graph = self.program.graph
        if types:
            graph = replace(graph, types={**graph.types, **types})
        results = evaluate_node(self.algebra, node, graph, values, None, self._traits, real=True)
        return [self.algebra.written_down(value) for value in results]

    def _split(self, index: int, node: Node) -> bool:
        """Whether a call cuts a tensor evenly, so that its results are one tensor with their place in front."""
        v = self.get(node.args[0])  # type: ignore[arg-type]
        dim = node.args[2] if len(node.args) > 2 else 0
        shapes = {self.program.graph.types[out].shape for out in node.outs}
        if not isinstance(dim, int) or len(shapes) > 1 or len(node.outs) < 2 or node.kwargs:
            return False
        dim %= len(v.shape)
        count, (shape,) = len(node.outs), shapes
        extent = shape[dim]
        asked = {aten.split.Tensor: extent, aten.chunk.default: count}.get(node.op, (extent,) * count)
        if not isinstance(extent, int) or extent * count != v.shape[dim] or not same_argument(node.args[1], asked):
            return False
        parts = self.algebra.reshape(v, (*v.shape[:dim], count, *shape[dim:]))  # type: ignore[arg-type]
        self.lists[index] = self.algebra.permute(parts, (dim, *(d for d in range(len(parts.shape)) if d != dim)))
        return True

    def _joined(self, node: Node) -> Stack | None:
        """All results of one call joined along a dim; None of other lists."""
        each = node.args[0]
        assert isinstance(each, tuple)
        found = self._whole_list(each)
        return None if found is None else self._side_by_side(found, self._dim(node, 1, len(found.shape) - 1))

    @staticmethod
    def _dim(node: Node, at: int, dims: int) -> int:
        dim = node.args[at] if len(node.args) > at else 0
        if not isinstance(dim, int) or node.kwargs:
            raise Unsupported("a dim that is not known")
        return dim % dims

    def _side_by_side(self, several: Stack, dim: int) -> Stack:
        """Tensors along a dim in front, joined along one of their own dims."""
        a, shape = self.algebra, several.shape[1:]
        moved = a.permute(several, (*range(1, dim + 1), 0, *range(dim + 1, len(several.shape))))
        return a.reshape(moved, (*shape[:dim], several.shape[0] * shape[dim], *shape[dim + 1 :]))

    # -- calls that differ between ranks

    def _unlike(self, index: int, node: Node, each: Sequence[Node]) -> Sequence[Stack]:
        node, extra = self._one_result(node, each)
        differing = [
            at for at in range(len(node.args)) if any(not same_argument(call.args[at], node.args[at]) for call in each)
        ]
        differing = [at for at in differing if not (isinstance(node.args[at], Var) and node.args[at] in extra)]
        if not differing:
            return self._evaluated(node, {var: extra[var] if var in extra else self.get(var) for var in node.reads}, self._like(extra, each))
        if extra:
            raise Unsupported("a call that differs in tensors and numbers")
        follow = _FOLLOWED.get(node.op)
        if follow is not None:
            return (follow(self, node, each, differing),)
        if node.op in _SCALARS and differing == [_SCALARS[node.op][0]]:
            return self._scalar(node, each)
        raise Unsupported("arguments that differ between ranks")

    def _one_result(self, node: Node, each: Sequence[Node]) -> tuple[Node, dict[Var, Stack]]:
        """A call that reads a result of another by the rank's own number, with what that is on every rank."""
        extra: dict[Var, Stack] = {}
        args = list(node.args)
        for at, arg in enumerate(node.args):
            if not isinstance(arg, Var) or all(call.args[at] == arg for call in each):
                continue
            fresh = Var(-1 - at)
            args[at] = fresh
            extra[fresh] = self.own([call.args[at] for call in each])
        return (replace(node, args=tuple(args)), extra) if extra else (node, extra)

    def own(self, each: Sequence[Arg]) -> Stack:
        """What every rank has under its own variable: one variable, or results of one call by a number that is the rank's."""
        first = each[0]
        if isinstance(first, Var) and all(var == first for var in each):
            return self.get(first)
        homes = [self._results.get(var) if isinstance(var, Var) else None for var in each]
        found = [home for home in homes if home is not None and homes[0] is not None and home[0] == homes[0][0]]
        if len(found) < len(homes):
            raise Unsupported("ranks that read different tensors")
        index = found[0][0]
        several = self.lists[index] if index in self.lists else self._stack_of(index)
        numbers = Numbers.of([at for _, at in found], self.algebra.sizes)
        return self.algebra.reshape(window(self.algebra, several, 0, numbers, 1), several.shape[1:])

    def _stack_of(self, index: int) -> Stack:
        """The results of a call along a dim in front."""
        outs = self.program.graph.nodes[index].outs
        if len({self.program.graph.types[out] for out in outs}) > 1:
            raise Unsupported("results of several shapes by place")
        self.lists[index] = self.listed(outs)
        return self.lists[index]

    def _like(self, extra: Mapping[Var, Stack], each: Sequence[Node]) -> dict[Var, TensorType]:
        types = self.program.graph.types
        found: dict[Var, TensorType] = {}
        for var in extra:
            kinds = {types[call.args[-1 - var.id]] for call in each}  # type: ignore[index]
            if len(kinds) != 1:
                raise Unsupported("ranks that read tensors of different types")
            found[var] = kinds.pop()
        return found

    def _scalar(self, node: Node, each: Sequence[Node]) -> Sequence[Stack]:
        """A call with a whole number that differs: the number as a tensor without dims."""
        at, op = _SCALARS[node.op]
        numbers = self._numbers(each, at)
        read = node.args[0]
        if not isinstance(read, Var):
            raise Unsupported("a number in the place of a tensor")
        kind = self.program.graph.types[read].dtype
        if self.program.graph.types[node.outs[0]].dtype not in (kind, "bool") or kind == "bool":
            raise Unsupported("a number that changes the type of what it is added to")
        fresh = Var(-1)
        value = coordinate(self.algebra, numbers)
        if self.get(read).kind == "float":
            value = self.algebra.number(value, "float")
        args = (*node.args[:at], fresh, *node.args[at + 1 :])
        values = {var: self.get(var) for var in node.reads} | {fresh: value}
        return self._evaluated(replace(node, op=op, args=args), values, {fresh: TensorType((), kind)})

    def _numbers(self, each: Sequence[Node], at: int) -> Numbers:
        numbers = [call.args[at] for call in each]
        if any(type(number) is not int for number in numbers):
            raise Unsupported("numbers that are not whole and differ between ranks")
        return Numbers.of(numbers, self.algebra.sizes)  # type: ignore[arg-type]

    def slice(self, node: Node, each: Sequence[Node], differing: Sequence[int]) -> Stack:
        """``slice(x, dim, start, stop)`` from where it begins on each rank; as long on all."""
        v = self.get(node.args[0])  # type: ignore[arg-type]
        if not {2, 3}.issuperset(differing) or (len(node.args) > 4 and node.args[4] != 1) or node.kwargs:
            raise Unsupported("slices that differ in more than where they begin")
        dim = self._dim(node, 1, len(v.shape))
        extent, length = v.shape[dim], self.program.graph.types[node.outs[0]].shape[dim]
        starts = []
        for call in each:
            start, stop = (_within(call.args[at], extent, whole) for at, whole in ((2, 0), (3, extent)))
            if stop - start != length:
                raise Unsupported("slices of different lengths")
            starts.append(start)
        return window(self.algebra, v, dim, Numbers.of(starts, self.algebra.sizes), length)

    def select(self, node: Node, each: Sequence[Node], differing: Sequence[int]) -> Stack:
        """``select(x, dim, index)`` at each rank's own index."""
        v = self.get(node.args[0])  # type: ignore[arg-type]
        if list(differing) != [2] or node.kwargs:
            raise Unsupported("selections that differ in more than the index")
        dim = self._dim(node, 1, len(v.shape))
        numbers = self._numbers(each, 2)
        if int(numbers.table.min()) < 0:
            raise Unsupported("an index from the end that differs between ranks")
        found = window(self.algebra, v, dim, numbers, 1)
        return self.algebra.reshape(found, (*v.shape[:dim], *v.shape[dim + 1 :]))

    def slice_backward(self, node: Node, each: Sequence[Node], differing: Sequence[int]) -> Stack:
        """``slice_backward(gradient, sizes, dim, start, stop, step)``: zeros with the gradient from where it begins on each rank."""
        v, sizes = self.get(node.args[0]), node.args[1]  # type: ignore[arg-type]
        if not {3, 4}.issuperset(differing) or len(node.args) < 6 or node.args[5] != 1 or not isinstance(sizes, tuple):
            raise Unsupported("gradients of slices that differ in more than where they begin")
        dim = self._dim(node, 2, len(v.shape))
        extent = sizes[dim]
        assert isinstance(extent, int)
        starts = []
        for call in each:
            start, stop = (_within(call.args[at], extent, whole) for at, whole in ((3, 0), (4, extent)))
            if stop - start != v.shape[dim]:
                raise Unsupported("slices of different lengths")
            starts.append(start)
        return put(self.algebra, v, dim, Numbers.of(starts, self.algebra.sizes), extent)

    def cat(self, node: Node, each: Sequence[Node], differing: Sequence[int]) -> Stack:
        """A list with one tensor at a place that the rank decides, and others that are alike: at every place the one, where it is the rank's own, or the other."""
        a, names = self.algebra, [call.args[0] for call in each]
        if list(differing) != [0] or any(not isinstance(row, tuple) for row in names):
            raise Unsupported("lists that differ")
        rows: list[tuple[Arg, ...]] = [row for row in names if isinstance(row, tuple)]
        own = set(rows[0]).intersection(*rows[1:])
        mine = next((var for var in rows[0] if var in own and len({row.index(var) for row in rows}) > 1 and all(row.count(var) == 1 for row in rows)), None)
        others = {var for row in rows for var in row if var != mine}
        if not isinstance(mine, Var) or any(not isinstance(var, Var) for var in others):
            raise Unsupported("lists that differ")
        x, rest = self.get(mine), [self.get(var) for var in others if isinstance(var, Var)]
        if any(value.shape != x.shape or value.kind != x.kind or not a.same(value, rest[0]) for value in rest):
            raise Unsupported("lists of different tensors")
        count, dim = len(rows[0]), self._dim(node, 1, len(x.shape))
        place = coordinate(a, Numbers.of([row.index(mine) for row in rows], a.sizes))
        hit = a.compare("eq", a.expand(a.reshape(place, (1,)), (count,)), a.iota(count))
        shape = (count, *x.shape)
        hit = a.expand(a.reshape(hit, (count, *(1 for _ in x.shape))), shape)
        one, other = (a.expand(a.reshape(value, (1, *x.shape)), shape) for value in (x, rest[0]))
        return self._side_by_side(a.where(hit, one, other), dim)


_FOLLOWED: Final[dict[str, Callable[[Run, Node, Sequence[Node], Sequence[int]], Stack]]] = {
    aten.slice.Tensor: Run.slice,
    aten.select.int: Run.select,
    aten.slice_backward.default: Run.slice_backward,
    aten.cat.default: Run.cat,
}


def _within(number: Arg, extent: int, otherwise: int) -> int:
    """An end of a slice as a position, as PyTorch takes it."""
    if number is None:
        return otherwise
    if type(number) is not int:
        raise Unsupported("an end of a slice that is not known")
    return min(max(number + extent if number < 0 else number, 0), extent)
