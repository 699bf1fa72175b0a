"""Programs of a quotient over stacked values: every call once for all its ranks.

What cannot be followed has no value, and what reads it has none either; a promise that needs it is not proved this way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from graphguard.ir import Node, TensorType, Var
from graphguard.ops import aten
from graphguard.refine.digits.algebra import Stacked
from graphguard.refine.digits.groups import same_argument
from graphguard.refine.digits.held import Held, dim_of, side_by_side
from graphguard.refine.digits.moves import coordinate
from graphguard.refine.digits.programs import Program
from graphguard.refine.digits.stacks import Stack
from graphguard.refine.digits.unlike import FOLLOWED, numbers_of
from graphguard.refine.evaluation.evaluate import Evaluator
from graphguard.refine.stages.coarse import adds_coarsely
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import evaluate_node

#: Calls of our own that are neither collectives nor functions of their operands alone.
_SPECIAL: Final = frozenset(("gg.assume", "gg.rounded"))
#: Which arguments of a call are numbers that may be tensors without dims as well, and what it is then called.
_SCALARS: Final = {
    aten.add.Tensor: (frozenset((1,)), aten.add.Tensor),
    aten.sub.Tensor: (frozenset((1,)), aten.sub.Tensor),
    aten.mul.Tensor: (frozenset((1,)), aten.mul.Tensor),
    aten.eq.Scalar: (frozenset((1,)), aten.eq.Tensor),
    aten.ne.Scalar: (frozenset((1,)), aten.ne.Tensor),
    aten.ge.Scalar: (frozenset((1,)), aten.ge.Tensor),
    aten.gt.Scalar: (frozenset((1,)), aten.gt.Tensor),
    aten.le.Scalar: (frozenset((1,)), aten.le.Tensor),
    aten.lt.Scalar: (frozenset((1,)), aten.lt.Tensor),
    aten.clamp.default: (frozenset((1, 2)), aten.clamp.Tensor),
    aten.clamp_min.default: (frozenset((1,)), aten.clamp_min.Tensor),
    aten.clamp_max.default: (frozenset((1,)), aten.clamp_max.Tensor),
}
_SPLITS: Final = frozenset((aten.split.Tensor, aten.chunk.default, aten.split_with_sizes.default))


class Run(Held):
    """Evaluates the calls of one program."""

    def __init__(self, algebra: Stacked, evaluator: Evaluator, program: Program) -> None:
        super().__init__(algebra, program)
        self._evaluator = evaluator

    def call(self, index: int) -> None:
        """Evaluate a call that is no collective."""
        node = self.program.graph.nodes[index]
        try:
            _check_followed(node)
            each = self.program.unlike.get(index)
            results = self._alike(index, node) if each is None else self._unlike(node, each)
            self._check_rounding(node, results)
        except KeyError:
            return
        except Unsupported as reason:
            self.lost.append(f"{node.op}: {reason}")
            return
        for out, value in zip(node.outs, results, strict=len(results) > 0):
            self.give(out, value)

    def _check_rounding(self, node: Node, results: Sequence[Stack]) -> None:
        """Raise ``Unsupported`` where a call rounds by its arithmetic what the specification is not seen to round."""
        narrowing, types = self._evaluator.narrowing, self.program.graph.types
        if not narrowing.active or not results:
            return
        values = {var: self.get(var).value for var in node.reads}
        if all(narrowing.rounds(node, types, values, each) for each in self._totals(results)):
            raise Unsupported("arithmetic in a narrower type")

    def check_total(self, node: Node, value: Stack, members: int) -> None:
        """Raise ``Unsupported`` where a collective rounds its total, and the specification is not seen to have it so."""
        dtype, narrowing = self.program.graph.types[node.outs[0]].dtype, self._evaluator.narrowing
        if not narrowing.active or not adds_coarsely(node, dtype):
            return
        if all(narrowing.adds(whole, dtype, members) for (whole,) in self._totals((value,))):
            raise Unsupported("a total in a narrower type")

    def _totals(self, results: Sequence[Stack]) -> Iterator[tuple[NormalValue, ...]]:
        """Values, and their sums over digits: parts of a sum are rounded as what has a part of the sum is, and only the sum is a number of the specification's."""
        yield tuple(value.value for value in results)
        alike = set(range(len(self.algebra.sizes))).intersection(*map(self.algebra.alike, results))
        others = [digit for digit in range(len(self.algebra.sizes)) if digit not in alike]
        if all(value.kind == "float" for value in results):
            for count in range(1, len(others) + 1):
                for digits in itertools.combinations(others, count):
                    yield tuple(self.algebra.normal.sum(value.value, digits) for value in results)

    # -- calls that all ranks make alike

    def _alike(self, index: int, node: Node) -> Sequence[Stack]:
        real = self.is_real((*node.reads, *node.outs))
        if real and node.op in _SPLITS and self._split(index, node):
            return ()
        if real and node.op == aten.cat.default:
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

    def _evaluated(
        self, node: Node, values: Mapping[Var, Stack], types: Mapping[Var, TensorType] | None = None
    ) -> Sequence[Stack]:
        graph = self.program.graph
        if types:
            graph = replace(graph, types={**graph.types, **types})
        real = bool(types) or self.is_real((*node.reads, *node.outs))
        results = evaluate_node(self.algebra, node, graph, values, None, self._evaluator.traits, real=real)
        return [self.algebra.written_down(value) for value in results]

    def _split(self, index: int, node: Node) -> bool:
        """Whether a call cuts a tensor evenly, so that its results are one tensor with their place in front."""
        v = self.get(node.args[0])  # type: ignore[arg-type]
        shapes = {self.program.graph.types[out].shape for out in node.outs}
        if len(shapes) > 1 or len(node.outs) < 2 or node.kwargs:
            return False
        dim = dim_of(node, 2, len(v.shape))
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
        found = self.whole_list(each)
        return None if found is None else side_by_side(self.algebra, found, dim_of(node, 1, len(found.shape) - 1))

    # -- calls that differ between ranks

    def _unlike(self, node: Node, each: Sequence[Node]) -> Sequence[Stack]:
        if not self.is_real((*node.reads, *node.outs)):
            raise Unsupported("a call on complex numbers that differs between ranks")
        node, extra = self._one_result(node, each)
        differing = [
            at for at in range(len(node.args)) if any(not same_argument(call.args[at], node.args[at]) for call in each)
        ]
        differing = [at for at in differing if not (isinstance(node.args[at], Var) and node.args[at] in extra)]
        if not differing:
            return self._evaluated(
                node,
                {var: extra[var] if var in extra else self.get(var) for var in node.reads},
                self._like(extra, each),
            )
        if extra:
            raise Unsupported("a call that differs in tensors and numbers")
        follow = FOLLOWED.get(node.op)
        if follow is not None:
            return (follow(self, node, each, differing),)
        if node.op in _SCALARS and _SCALARS[node.op][0].issuperset(differing):
            return self._scalars(node, each, differing)
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

    def _like(self, extra: Mapping[Var, Stack], each: Sequence[Node]) -> dict[Var, TensorType]:
        types = self.program.graph.types
        found: dict[Var, TensorType] = {}
        for var in extra:
            kinds = {types[call.args[-1 - var.id]] for call in each}  # type: ignore[index]
            if len(kinds) != 1:
                raise Unsupported("ranks that read tensors of different types")
            found[var] = kinds.pop()
        return found

    def _scalars(self, node: Node, each: Sequence[Node], differing: Sequence[int]) -> Sequence[Stack]:
        """A call with whole numbers that differ: each as a tensor without dims."""
        read = node.args[0]
        if not isinstance(read, Var):
            raise Unsupported("a number in the place of a tensor")
        kind = self.program.graph.types[read].dtype
        if self.program.graph.types[node.outs[0]].dtype not in (kind, "bool") or kind == "bool":
            raise Unsupported("a number that changes the type of what it is added to")
        args, values = list(node.args), {var: self.get(var) for var in node.reads}
        fresh = {at: Var(-at) for at in differing}
        for at, var in fresh.items():
            value = coordinate(self.algebra, numbers_of(self, each, at))
            values[var] = self.algebra.number(value, "float") if self.get(read).kind == "float" else value
            args[at] = var
        call = replace(node, op=_SCALARS[node.op][1], args=tuple(args))
        return self._evaluated(call, values, dict.fromkeys(fresh.values(), TensorType((), kind)))


def _check_followed(node: Node) -> None:
    """Raise ``Unsupported`` for what is more than a function of its operands: memory that nobody wrote to is another on every rank."""
    if node.op in _SPECIAL or "empty" in node.op:
        raise Unsupported(f"{node.op} is not followed along digits")
