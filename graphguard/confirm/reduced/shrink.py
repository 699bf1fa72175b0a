"""A capture at smaller extents: the same operators in the same order, so that numbers can be tried where the original is too large.

Extents that belong together shrink together (:mod:`graphguard.confirm.reduced.dimensions`).  An operator that is not known keeps the extents of all its tensors,
and so does every extent that a literal of the program may count: a mean written as a sum and a division stays what it is.
"""

from __future__ import annotations

from dataclasses import replace

from graphguard.confirm.reduced.dimensions import Digits, divided
from graphguard.confirm.reduced.extent_inference import infer
from graphguard.confirm.reduced.extents import Program
from graphguard.ir import Capture, Graph, Leaf, Node, TensorType, Var
from graphguard.ir.joining import join
from graphguard.ir.validity import well_formed


def shrunk(capture: Capture) -> Capture | None:
    """The capture at the smallest extents that keep its structure, or None where nothing can shrink."""
    joined = join(capture.ranks)
    if capture.spec is None or joined.mismatches:
        return None
    program = Program.of(capture)
    infer(program, joined)
    for name, promised in ((name, var) for name, var in capture.spec.outputs.items()):
        _compared(program, capture, name, promised)
    chosen = program.scales.divisors(program.literals)
    if all(divisor == 1 for divisor in chosen.values()):
        return None
    ratios = _Ratios(program, chosen)
    spec, *ranks = (ratios.graph(index) for index in range(len(program.graphs)))
    leaves = tuple(ratios.leaf(leaf) for leaf in capture.leaves)
    return well_formed(replace(capture, leaves=leaves, spec=spec, ranks=tuple(ranks)))


def _compared(program: Program, capture: Capture, name: str, promised: Var) -> None:
    """An output of the specification and a rank's of the same shape are compared element by element: they shrink alike."""
    for rank, graph in enumerate(capture.ranks):
        var = graph.outputs.get(name)
        if var is not None and graph.types[var].shape == program.graphs[0].types[promised].shape:
            for mine, theirs in zip(program.dims[rank + 1][var], program.dims[0][promised], strict=True):
                program.scales.same(mine, theirs)


class _Ratios:
    """A program rewritten with chosen divisors."""

    def __init__(self, program: Program, chosen: dict[int, int]) -> None:
        self.program = program
        self.chosen = chosen

    def divided(self, number: int, digits: Digits) -> int:
        """A number in units of a dim, after the dim has shrunk."""
        return divided(number, self.program.scales.divisor(digits, self.chosen))

    def graph(self, index: int) -> Graph:
        """One graph rewritten."""
        graph = self.program.graphs[index]
        scaled = _Scaled(self, index)
        types = {var: replace(kind, shape=scaled.shape(var)) for var, kind in graph.types.items()}
        nodes = tuple(self._node(index, number, node, scaled) for number, node in enumerate(graph.nodes))
        return replace(graph, types=types, nodes=nodes)

    def _node(self, index: int, number: int, node: Node, scaled: _Scaled) -> Node:
        rewrite = self.program.rewrites.get((index, number))
        if rewrite is None:
            return node
        args, kwargs = rewrite(scaled)
        return replace(node, args=args, kwargs=kwargs)

    def leaf(self, leaf: Leaf) -> Leaf:
        """A leaf at its new extents, its range scaled like the dim that it indexes."""
        dims, values = self.program.leaf_dims[leaf.name], self.program.leaf_values[leaf.name]
        sizes = zip(leaf.type.shape, dims, strict=True)
        shape = tuple(self.divided(size, digits) if isinstance(size, int) else size for size, digits in sizes)
        low, high = (None if bound is None else self.divided(bound, values) for bound in (leaf.low, leaf.high))
        return replace(leaf, type=TensorType(shape, leaf.type.dtype), low=low, high=high)


class _Scaled:
    """The new numbers of one graph."""

    def __init__(self, ratios: _Ratios, index: int) -> None:
        self._ratios = ratios
        self._index = index

    def shape(self, var: Var) -> tuple[int, ...]:
        """The new shape of a variable."""
        program = self._ratios.program
        sizes, dims = program.graphs[self._index].types[var].shape, program.dims[self._index][var]
        return tuple(
            self._ratios.divided(size, digits) if isinstance(size, int) else 1
            for size, digits in zip(sizes, dims, strict=True)
        )

    def position(self, number: int, dim: Digits) -> int:
        """A position along a dim, or a value that indexes it."""
        return self._ratios.divided(number, dim)
