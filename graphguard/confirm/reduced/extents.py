"""A program whose extents are being worked out, and what a rule may state about one call.

An operator without a rule keeps the extents of all its tensors.  A rule states equations on :class:`Scales` and may return how the call's
arguments change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from graphguard.confirm.reduced.dimensions import Digits, Scales
from graphguard.confirm.run.elements import size_of
from graphguard.ir import Capture, Graph, Node, Var
from graphguard.ir.graph import Arg

Arguments = tuple[tuple[Arg, ...], dict[str, Arg]]


class Scaled(Protocol):
    """The new numbers of one graph, for the arguments that hold extents."""

    def shape(self, var: Var) -> tuple[int, ...]:
        """The new shape of a variable."""
        ...

    def position(self, number: int, dim: Digits) -> int:
        """A position along a dim, or a value that indexes it."""
        ...


Rewrite = Callable[[Scaled], Arguments]


@dataclass(slots=True)
class Program:
    """All graphs of a capture under inference: the specification is graph 0, rank r graph r + 1.

    ``dims`` are every variable's digits; ``values`` those of the dim that an integer tensor's elements index.
    """

    graphs: tuple[Graph, ...]
    scales: Scales = field(default_factory=Scales)
    dims: list[dict[Var, list[Digits]]] = field(default_factory=list)
    values: list[dict[Var, Digits]] = field(default_factory=list)
    leaf_dims: dict[str, list[Digits]] = field(default_factory=dict)
    leaf_values: dict[str, Digits] = field(default_factory=dict)
    producers: list[dict[Var, int]] = field(default_factory=list)
    rewrites: dict[tuple[int, int], Rewrite] = field(default_factory=dict)
    literals: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, capture: Capture) -> Program:
        """A program of which nothing is known: every dim on its own, leaves shared, literal tensors and unknown sizes fixed."""
        assert capture.spec is not None
        program = cls((capture.spec, *capture.ranks))
        for leaf in capture.leaves:
            program.leaf_dims[leaf.name] = [program.scales.fresh(size_of(size)) for size in leaf.type.shape]
            program.leaf_values[leaf.name] = program.scales.fresh(0)
            for bound in (leaf.low, leaf.high):
                if bound is not None:
                    program.scales.offset(program.leaf_values[leaf.name], bound)
            if leaf.value is not None:
                program.keep((*program.leaf_dims[leaf.name], program.leaf_values[leaf.name]))
        for graph in program.graphs:
            program._start(graph)
        return program

    def _start(self, graph: Graph) -> None:
        dims: dict[Var, list[Digits]] = {}
        values: dict[Var, Digits] = {}
        for var, kind in graph.types.items():
            if var in graph.inputs:
                dims[var], values[var] = self.leaf_dims[graph.inputs[var]], self.leaf_values[graph.inputs[var]]
            else:
                dims[var] = [self.scales.fresh(size_of(size)) for size in kind.shape]
                values[var] = self.scales.fresh(0)
            if var in graph.constants or not all(isinstance(size, int) for size in kind.shape):
                self.keep((*dims[var], values[var]))
        self.dims.append(dims)
        self.values.append(values)
        self.producers.append(graph.producers())

    def keep(self, rows: Iterable[Digits]) -> None:
        """Leave dims as they are."""
        for digits in rows:
            self.scales.fix(digits)


class Facts:
    """One call, and what a rule may state about it."""

    def __init__(self, program: Program, index: int, node: Node) -> None:
        self.program = program
        self.index = index
        self.node = node
        self.scales = program.scales
        self.graph = program.graphs[index]

    def dims(self, var: Var) -> list[Digits]:
        """The digits of a variable's dims."""
        return self.program.dims[self.index][var]

    def values(self, var: Var) -> Digits:
        """The digits of the dim that a variable's elements index."""
        return self.program.values[self.index][var]

    def shape(self, var: Var) -> tuple[int, ...]:
        """The extents of a variable."""
        return tuple(size_of(size) for size in self.graph.types[var].shape)

    def indexes(self, var: Var) -> bool:
        """Whether a variable holds integers."""
        return self.graph.types[var].dtype.startswith(("int", "uint"))

    def producer(self, var: Var) -> Node | None:
        """The call that makes a variable, if one does."""
        index = self.program.producers[self.index].get(var)
        return None if index is None else self.graph.nodes[index]

    @property
    def operands(self) -> list[Var]:
        """Every tensor the call reads."""
        return list(self.node.operands())

    def tensor(self, position: int) -> Var:
        """The operand at a position of the arguments."""
        found = self.node.args[position]
        assert isinstance(found, Var)
        return found

    def number(self, position: int, default: int) -> int:
        """The number at a position of the arguments."""
        found = self.node.args[position] if position < len(self.node.args) else default
        return found if isinstance(found, int) else default

    def dim(self, position: int, default: int, rank: int) -> int:
        """The dim named at a position of the arguments, from 0."""
        return self.number(position, default) % max(rank, 1)

    def keep_all(self) -> None:
        """Leave all extents of the call's tensors, and what they index, as they are."""
        for var in (*self.operands, *self.node.outs):
            self.program.keep((*self.dims(var), self.values(var)))

    def aligned(self, var: Var, out: Var, skip: Sequence[int] = ()) -> None:
        """Equal dims, aligned at the end; extents of one repeat; dims of ``out`` in ``skip`` are left out."""
        width = len(self.dims(out))
        shift = width - len(self.dims(var))
        for dim in range(max(shift, 0), width):
            if dim not in skip and self.shape(var)[dim - shift] != 1:
                self.scales.same(self.dims(out)[dim], self.dims(var)[dim - shift])

    def pass_values(self, var: Var, out: Var) -> None:
        """The result's elements are among the operand's."""
        if self.indexes(var) and self.indexes(out):
            self.scales.window(self.values(out), 0, self.values(var))

    def replaced(self, changes: dict[int, Callable[[Scaled], Arg]]) -> Rewrite:
        """The arguments with some of them computed anew."""
        node = self.node

        def rewrite(scaled: Scaled) -> Arguments:
            args = tuple(changes[i](scaled) if i in changes else arg for i, arg in enumerate(node.args))
            return args, node.kwargs

        return rewrite


Rule = Callable[[Facts], Rewrite | None]


#: By operator name, without namespace and overload.
RULES: Final[dict[str, Rule]] = {}


def extents_of(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register
