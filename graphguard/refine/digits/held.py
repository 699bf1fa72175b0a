"""What the variables of a program are on all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from graphguard.ir import Node, Var
from graphguard.ir.graph import Arg
from graphguard.refine.digits.algebra import Stacked
from graphguard.refine.digits.moves import Numbers, window
from graphguard.refine.digits.programs import Program
from graphguard.refine.digits.stacks import Stack
from graphguard.refine.evaluation.evaluate import Evaluator, all_real, shape_of
from graphguard.refine.stages.constants import elements
from graphguard.relations.algebra import Unsupported


class Held:
    """The values of one program.  ``lists`` has the results of calls that give several, with their place along a dim in front; ``lost`` says what was not followed."""

    def __init__(self, algebra: Stacked, program: Program) -> None:
        self.algebra = algebra
        self.program = program
        self.values: dict[Var, Stack] = {}
        self.lists: dict[int, Stack] = {}
        self.lost: list[str] = []
        self._real = all_real(kind.dtype for kind in program.graph.types.values())
        self._results = {
            out: (index, at)
            for index, node in enumerate(program.graph.nodes)
            for at, out in enumerate(node.outs)
            if len(node.outs) > 1
        }

    def start(self, leaves: Mapping[str, Stack], evaluator: Evaluator) -> None:
        """Give leaves and literal tensors their values."""
        graph, a = self.program.graph, self.algebra
        for var, name in graph.inputs.items():
            self.values[var] = leaves[name]
        for var, constant in graph.constants.items():
            each = self.program.literals.get(var)
            if each is None:
                self.values[var] = a.lift(evaluator.constant(constant))
                continue
            try:
                rows = np.stack([elements(one, single=True) for one in each])
                self.values[var] = a.of(a.normal.literal(rows.reshape((*a.sizes, *rows.shape[1:]))))
            except Unsupported as reason:
                self.lost.append(str(reason))

    def is_real(self, variables: Iterable[Var]) -> bool:
        """Whether none of these is complex, which has a dim more than the program knows."""
        return self._real or all_real(self.program.graph.types[var].dtype for var in variables)

    def give(self, out: Var, value: Stack) -> None:
        """Keep a result, which must have the shape that it has in the program."""
        if value.shape != shape_of(self.program.graph.types[out]):
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
        found = self.whole_list(each)
        if found is not None:
            return found
        values = [self.get(var) for var in each if isinstance(var, Var)]
        return self.algebra.concat([self.algebra.reshape(value, (1, *value.shape)) for value in values], 0)

    def whole_list(self, each: Sequence[Arg]) -> Stack | None:
        """The results of one call where these are all of them, in order."""
        at = [self._results.get(var) if isinstance(var, Var) else None for var in each]
        if not at or at[0] is None or at[0][0] not in self.lists:
            return None
        index = at[0][0]
        return self.lists[index] if at == [(index, place) for place in range(self.lists[index].shape[0])] else None

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


def dim_of(node: Node, at: int, dims: int) -> int:
    """The dim that a call names at a place of its arguments, the first where it names none."""
    dim = node.args[at] if len(node.args) > at else 0
    if not isinstance(dim, int) or node.kwargs or not -dims <= dim < dims:
        raise Unsupported("a dim that is not known")
    return dim % dims


def side_by_side(a: Stacked, several: Stack, dim: int) -> Stack:
    """Tensors along a dim in front, joined along one of their own dims."""
    shape = several.shape[1:]
    moved = a.permute(several, (*range(1, dim + 1), 0, *range(dim + 1, len(several.shape))))
    return a.reshape(moved, (*shape[:dim], several.shape[0] * shape[dim], *shape[dim + 1 :]))
