"""What every operator says about extents: which dims are one, which are windows, which arguments are extents or positions.

An operator that is not listed keeps the extents of all its tensors.  A rule states equations on :class:`Scales` and may return how the call's
arguments change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch

from graphguard.confirm.dimensions import Digits, Scales
from graphguard.ir import Capture, Graph, Node, Var
from graphguard.ir.graph import COLLECTIVES, Arg
from graphguard.ir.joining import Joined, JoinedCall

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
    rewrites: dict[tuple[int, int], Rewrite] = field(default_factory=dict)
    literals: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, capture: Capture) -> Program:
        """A program of which nothing is known: every dim on its own, leaves shared, literal tensors and unknown sizes fixed."""
        assert capture.spec is not None
        program = cls((capture.spec, *capture.ranks))
        for leaf in capture.leaves:
            program.leaf_dims[leaf.name] = [program.scales.fresh(_size(size)) for size in leaf.type.shape]
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
                dims[var] = [self.scales.fresh(_size(size)) for size in kind.shape]
                values[var] = self.scales.fresh(0)
            if var in graph.constants or not all(isinstance(size, int) for size in kind.shape):
                self.keep((*dims[var], values[var]))
        self.dims.append(dims)
        self.values.append(values)

    def keep(self, rows: Iterable[Digits]) -> None:
        """Leave dims as they are."""
        for digits in rows:
            self.scales.fix(digits)


def _size(size: object) -> int:
    return size if isinstance(size, int) else 1


def infer(program: Program, joined: Joined) -> None:
    """State every equation of a program."""
    for index, graph in enumerate(program.graphs):
        for number, node in enumerate(graph.nodes):
            if node.op not in COLLECTIVES:
                _infer_node(program, index, number, node)
    for step in joined.order:
        if isinstance(step, JoinedCall):
            _infer_collective(program, step)


def _infer_node(program: Program, index: int, number: int, node: Node) -> None:
    facts = Facts(program, index, node)
    rule = _RULES.get(node.op.split(".")[1]) if node.op.startswith(("aten.", "gg.", "peer.")) else None
    if rule is None and pointwise(node.op):
        rule = _pointwise
    if rule is None:
        facts.keep_all()
        return
    rewrite = rule(facts)
    if rewrite is not None:
        program.rewrites[index, number] = rewrite


def pointwise(op: str) -> bool:
    """Whether torch marks an operator as elementwise."""
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.partition(".")
    if op == "peer.dropout":
        return True
    if namespace != "aten":
        return False
    packet = getattr(torch.ops.aten, name, None)
    found = getattr(packet, overload or "default", None)
    return found is not None and torch.Tag.pointwise in found.tags


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
        return tuple(_size(size) for size in self.graph.types[var].shape)

    def indexes(self, var: Var) -> bool:
        """Whether a variable holds integers."""
        return self.graph.types[var].dtype.startswith(("int", "uint"))

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


def _pointwise(f: Facts) -> Rewrite | None:
    out = f.node.outs[0]
    for var in f.operands:
        f.aligned(var, out)
    name = f.node.op.split(".")[1]
    integers = [var for var in (*f.operands, out) if f.indexes(var)]
    if not integers:
        if name not in _COUNTLESS:
            f.program.literals |= {count for arg in f.node.args for count in literal_counts(arg)}
        return None
    if name not in _LINEAR and len(integers) > 1:
        f.program.keep(f.values(var) for var in integers)
        return None
    for var in integers[1:]:
        f.scales.window(f.values(integers[0]), 0, f.values(var))
    if name in _VALUE_BLIND:
        return None
    literals = [i for i, arg in enumerate(f.node.args) if isinstance(arg, int) and not isinstance(arg, bool)]
    values = f.values(integers[0])
    changes: dict[int, Callable[[Scaled], Arg]] = {}
    for i in literals:
        literal = f.node.args[i]
        assert isinstance(literal, int)
        f.scales.offset(values, abs(literal))
        changes[i] = lambda scaled, n=literal: scaled.position(abs(n), values) * (1 if n >= 0 else -1)  # type: ignore[misc]
    return f.replaced(changes) if changes else None


def literal_counts(arg: Arg) -> set[int]:
    """The extents that a literal may stand for: itself, its inverse, and the squares of both, where they are whole."""
    found: set[int] = set()
    if not isinstance(arg, int | float) or isinstance(arg, bool) or not arg or not math.isfinite(arg):
        return found
    for value in (arg, arg * arg):
        for candidate in (abs(value), 1 / abs(value)):
            if (
                math.isfinite(candidate)
                and round(candidate) > 1
                and math.isclose(round(candidate), candidate, rel_tol=1e-6)
            ):
                found.add(round(candidate))
    return found


# Elementwise operators of integers whose result lies among, or beside, their operands' values.
_LINEAR: Final = frozenset(
    (
        "add",
        "sub",
        "rsub",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "clamp",
        "clamp_min",
        "clamp_max",
        "maximum",
        "minimum",
        "neg",
        "masked_fill",
        "where",
        "_to_copy",
        "clone",
        "detach",
        "copy",
        "abs",
        "alias",
    )
)
_VALUE_BLIND: Final = frozenset(("_to_copy", "clone", "detach", "copy", "alias", "abs", "neg"))
# Literals that cannot be a count: exponents, bounds, masks.
_COUNTLESS: Final = frozenset(
    ("pow", "masked_fill", "clamp", "clamp_min", "clamp_max", "lt", "le", "gt", "ge", "eq", "ne", "where")
)


def _copying(f: Facts) -> None:
    out = f.node.outs[0]
    f.aligned(f.tensor(0), out)
    f.pass_values(f.tensor(0), out)


def _all_alike(f: Facts) -> None:
    """Every operand broadcasts to the first result; further results of the same shape are like it."""
    for var in (*f.operands, *f.node.outs[1:]):
        f.aligned(var, f.node.outs[0])


def _view(f: Facts) -> Rewrite:
    x, out = f.tensor(0), f.node.outs[0]
    f.scales.same([d for dim in f.dims(x) for d in dim], [d for dim in f.dims(out) for d in dim])
    f.pass_values(x, out)
    return f.replaced({1: lambda scaled: scaled.shape(out)})


def _flatten_like(f: Facts) -> None:
    """Dims of extent one come or go."""
    x, out = f.tensor(0), f.node.outs[0]
    f.scales.same([d for dim in f.dims(x) for d in dim], [d for dim in f.dims(out) for d in dim])
    f.pass_values(x, out)


def _expand(f: Facts) -> Rewrite:
    x, out = f.tensor(0), f.node.outs[0]
    f.aligned(x, out)
    f.pass_values(x, out)
    return f.replaced({1: lambda scaled: scaled.shape(out)})


def _moved(f: Facts, order: Sequence[int]) -> None:
    x, out = f.tensor(0), f.node.outs[0]
    for dim, source in enumerate(order):
        f.scales.same(f.dims(out)[dim], f.dims(x)[source])
    f.pass_values(x, out)


def _permute(f: Facts) -> None:
    order = f.node.args[1]
    assert isinstance(order, tuple)
    rank = len(f.shape(f.tensor(0)))
    _moved(f, [d % rank for d in order if isinstance(d, int)])


def _transpose(f: Facts) -> None:
    rank = len(f.shape(f.tensor(0)))
    order = list(range(rank))
    if rank > 1 or f.node.op != "aten.t.default":
        a, b = (0, 1) if f.node.op == "aten.t.default" else (f.dim(1, 0, rank), f.dim(2, 1, rank))
        if rank > 1:
            order[a], order[b] = order[b], order[a]
    _moved(f, order)


def _slice(f: Facts) -> Rewrite | None:
    x, out = f.tensor(0), f.node.outs[0]
    dim, extent = f.dim(1, 0, len(f.shape(x))), 0
    extent = f.shape(x)[dim]
    start = min(max(_from_end(f.number(2, 0), extent), 0), extent)
    if f.number(4, 1) != 1:
        f.keep_all()
        return None
    f.aligned(x, out, skip=(dim,))
    f.pass_values(x, out)
    whole, part = f.dims(x)[dim], f.dims(out)[dim]
    f.scales.window(whole, start, part)
    args = f.node.args

    def rewrite(scaled: Scaled) -> Arguments:
        first = scaled.position(start, whole)
        return (args[0], dim, first, first + scaled.shape(out)[dim]), f.node.kwargs

    return rewrite


def _from_end(number: int, extent: int) -> int:
    return number + extent if number < 0 else number


def _slice_scatter(f: Facts) -> Rewrite | None:
    x, part, out = f.tensor(0), f.tensor(1), f.node.outs[0]
    dim = f.dim(2, 0, len(f.shape(x)))
    start = min(max(_from_end(f.number(3, 0), f.shape(x)[dim]), 0), f.shape(x)[dim])
    if f.number(5, 1) != 1:
        f.keep_all()
        return None
    f.aligned(x, out)
    f.aligned(part, out, skip=(dim,))
    f.scales.window(f.dims(x)[dim], start, f.dims(part)[dim])

    def rewrite(scaled: Scaled) -> Arguments:
        first = scaled.position(start, f.dims(x)[dim])
        return (x, part, dim, first, first + scaled.shape(part)[dim]), f.node.kwargs

    return rewrite


def _select(f: Facts) -> None:
    x, out = f.tensor(0), f.node.outs[0]
    dim = f.dim(1, 0, len(f.shape(x)))
    f.program.keep([f.dims(x)[dim]])
    rest = [digits for at, digits in enumerate(f.dims(x)) if at != dim]
    for mine, theirs in zip(rest, f.dims(out), strict=True):
        f.scales.same(theirs, mine)
    f.pass_values(x, out)


def _cat(f: Facts) -> None:
    parts, out = f.node.args[0], f.node.outs[0]
    assert isinstance(parts, tuple)
    dim, at = f.dim(1, 0, len(f.shape(out))), 0
    for part in parts:
        if isinstance(part, Var) and len(f.shape(part)) == len(f.shape(out)):
            f.aligned(part, out, skip=(dim,))
            f.scales.window(f.dims(out)[dim], at, f.dims(part)[dim])
            f.pass_values(part, out)
            at += f.shape(part)[dim]


def _split(f: Facts) -> Rewrite:
    x = f.tensor(0)
    dim, at = f.dim(2, 0, len(f.shape(x))), 0
    for out in f.node.outs:
        f.aligned(x, out, skip=(dim,))
        f.scales.window(f.dims(x)[dim], at, f.dims(out)[dim])
        f.pass_values(x, out)
        at += f.shape(out)[dim]
    if isinstance(f.node.args[1], tuple):
        return f.replaced({1: lambda scaled: tuple(scaled.shape(out)[dim] for out in f.node.outs)})
    return f.replaced({1: lambda scaled: scaled.shape(f.node.outs[0])[dim]})


def _chunk(f: Facts) -> None:
    _split(f)


def _matmul(f: Facts) -> None:
    """The last two operands are matrices with the same batch dims; a first of three is added."""
    *added, a, b = f.operands
    out = f.node.outs[0]
    f.aligned(a, out, skip=(len(f.shape(out)) - 1,))
    f.scales.same(f.dims(out)[-1], f.dims(b)[-1])
    f.scales.same(f.dims(a)[-1], f.dims(b)[-2])
    for dim in range(len(f.shape(b)) - 2):
        f.scales.same(f.dims(out)[dim], f.dims(b)[dim])
    for var in added:
        f.aligned(var, out)
    for arg in f.node.kwargs.values():
        f.program.literals |= literal_counts(arg)


def _reduced(f: Facts) -> None:
    """Some dims go, or become one; all of them where none is named."""
    x, out = f.tensor(0), f.node.outs[0]
    named = f.node.args[1] if len(f.node.args) > 1 else None
    rank = len(f.shape(x))
    gone = (
        {named}
        if isinstance(named, int)
        else {d for d in named if isinstance(d, int)}
        if isinstance(named, tuple)
        else set()
    )
    gone = {d % max(rank, 1) for d in gone} or set(range(rank))
    kept = [d for d in range(rank) if d not in gone]
    targets = kept if len(f.shape(out)) == rank and rank else range(len(kept))
    if len(f.shape(out)) not in (rank, len(kept)):
        f.keep_all()
        return
    for source, target in zip(kept, targets, strict=True):
        for result in f.node.outs:
            f.scales.same(f.dims(result)[target], f.dims(x)[source])
    integer = [var for var in (x, *f.node.outs) if f.indexes(var) or f.graph.types[var].dtype == "bool"]
    if integer and f.node.op.split(".")[1] not in ("amax", "amin", "any", "all", "max", "min"):
        f.program.keep([*f.dims(x), *(f.values(var) for var in integer)])


def _argument(f: Facts) -> None:
    """Positions along a dim: the dim stays."""
    _reduced(f)
    f.program.keep(f.dims(f.tensor(0)))


def _last_dim_alike(f: Facts) -> None:
    _all_alike(f)


def _layer_norm(f: Facts) -> Rewrite:
    x, out, *statistics = f.tensor(0), *f.node.outs
    normal = f.node.args[1]
    assert isinstance(normal, tuple)
    for var in (*f.operands, *f.node.outs[:1]):
        f.aligned(var, x) if len(f.shape(var)) <= len(f.shape(x)) else None
    f.aligned(out, x)
    for result in statistics:
        for dim in range(len(f.shape(x)) - len(normal)):
            f.scales.same(f.dims(result)[dim], f.dims(x)[dim])
    return f.replaced({1: lambda scaled: scaled.shape(x)[len(f.shape(x)) - len(normal) :]})


def _embedding(f: Facts) -> None:
    table, index, out = f.tensor(0), f.tensor(1), f.node.outs[0]
    f.scales.window(f.dims(table)[0], 0, f.values(index))
    for mine, theirs in zip((*f.dims(index), f.dims(table)[1]), f.dims(out), strict=True):
        f.scales.same(theirs, mine)


def _index_select(f: Facts) -> None:
    x, index, out = f.tensor(0), f.tensor(2), f.node.outs[0]
    dim = f.dim(1, 0, len(f.shape(x)))
    f.scales.window(f.dims(x)[dim], 0, f.values(index))
    if f.shape(index):
        f.scales.same(f.dims(out)[dim], f.dims(index)[0])
    for at, digits in enumerate(f.dims(x)):
        if at != dim:
            f.scales.same(f.dims(out)[at], digits)


def _index(f: Facts) -> None:
    """Indices for the first dims, all integer and of one shape."""
    x, named, out = f.tensor(0), f.node.args[1], f.node.outs[0]
    assert isinstance(named, tuple)
    indices = [var for var in named if isinstance(var, Var)]
    if len(indices) != len(named) or not all(f.indexes(var) for var in indices):
        f.keep_all()
        return
    for dim, var in enumerate(indices):
        f.scales.window(f.dims(x)[dim], 0, f.values(var))
    width = len(f.shape(out)) - (len(f.shape(x)) - len(indices))
    for var in indices:
        shift = width - len(f.shape(var))
        for dim, digits in enumerate(f.dims(var)):
            if f.shape(var)[dim] != 1:
                f.scales.same(f.dims(out)[shift + dim], digits)
    for digits, theirs in zip(f.dims(x)[len(indices) :], f.dims(out)[width:], strict=True):
        f.scales.same(theirs, digits)
    f.pass_values(x, out)


def _index_put(f: Facts) -> None:
    """Indices as for a look-up, or one mask of the first dims."""
    x, named, new, out = f.tensor(0), f.node.args[1], f.tensor(2), f.node.outs[0]
    assert isinstance(named, tuple)
    f.aligned(x, out)
    f.pass_values(x, out)
    indices = [var for var in named if isinstance(var, Var)]
    if len(indices) != len(named):
        f.keep_all()
        return
    if len(indices) == 1 and f.graph.types[indices[0]].dtype == "bool" and not any(size != 1 for size in f.shape(new)):
        for mine, theirs in zip(f.dims(indices[0]), f.dims(x), strict=False):
            f.scales.same(theirs, mine)
        return
    if not all(f.indexes(var) for var in indices) or len({f.shape(var) for var in indices}) > 1:
        f.keep_all()
        return
    for dim, var in enumerate(indices):
        f.scales.window(f.dims(x)[dim], 0, f.values(var))
        for mine, theirs in zip(f.dims(var), f.dims(indices[0]), strict=True):
            f.scales.same(theirs, mine)
    rows = (*f.dims(indices[0]), *f.dims(x)[len(indices) :])
    for digits, theirs, size in zip(reversed(rows), reversed(f.dims(new)), reversed(f.shape(new)), strict=False):
        if size != 1:
            f.scales.same(digits, theirs)


def _gather(f: Facts) -> None:
    x, index, out = f.tensor(0), f.tensor(2), f.node.outs[0]
    dim = f.dim(1, 0, len(f.shape(x)))
    f.scales.window(f.dims(x)[dim], 0, f.values(index))
    f.aligned(index, out)
    f.aligned(x, index, skip=(dim,)) if len(f.shape(x)) == len(f.shape(index)) else f.keep_all()


def _made(f: Facts) -> Rewrite:
    """A tensor made from its shape, the first argument."""
    out = f.node.outs[0]
    return f.replaced({0: lambda scaled: scaled.shape(out)})


def _made_like(f: Facts) -> Rewrite | None:
    out = f.node.outs[0]
    if f.node.op.split(".")[1].endswith("_like"):
        f.aligned(f.tensor(0), out)
        return None
    return f.replaced({1: lambda scaled: scaled.shape(out)})


def _arange(f: Facts) -> Rewrite | None:
    """The positions along a dim, from a start."""
    out = f.node.outs[0]
    start, end = (0, f.number(0, 0)) if f.node.op.endswith(".default") else (f.number(0, 0), f.number(1, 0))
    whole = all(isinstance(arg, int) for arg in f.node.args) and f.indexes(out)
    if not whole or (f.node.op.endswith("step") and f.number(2, 1) != 1) or end - start != f.shape(out)[0]:
        f.keep_all()
        return None
    f.scales.window(f.values(out), start, f.dims(out)[0])

    def rewrite(scaled: Scaled) -> Arguments:
        first = scaled.position(start, f.values(out))
        last = first + scaled.shape(out)[0]
        return ((last,) if f.node.op.endswith(".default") else (first, last)), f.node.kwargs

    return rewrite


def _triangle(f: Facts) -> Rewrite | None:
    x, out = f.tensor(0), f.node.outs[0]
    f.aligned(x, out)
    f.scales.window(f.dims(x)[-2], 0, f.dims(x)[-1])
    diagonal = f.number(1, 0)
    f.scales.offset(f.dims(x)[-1], abs(diagonal)) if diagonal not in (0, 1) else None
    if diagonal in (0, 1):
        return None
    sign = 1 if diagonal > 0 else -1
    return f.replaced({1: lambda scaled: sign * scaled.position(abs(diagonal), f.dims(x)[-1])})


def _sdpa(f: Facts) -> None:
    """Query heads in equal groups over key heads; masks broadcast."""
    query, key, value = (f.tensor(i) for i in range(3))
    out = f.node.outs[0]
    for dim in range(len(f.shape(query)) - 1):
        f.scales.same(f.dims(out)[dim], f.dims(query)[dim])
    f.scales.same(f.dims(query)[-1], f.dims(key)[-1])
    f.scales.same(f.dims(value)[-1], f.dims(out)[-1])
    f.scales.same(f.dims(key)[-2], f.dims(value)[-2])
    for dim in range(len(f.shape(query)) - 2):
        f.scales.same(f.dims(key)[dim], f.dims(value)[dim])
        groups = f.shape(query)[dim] // max(f.shape(key)[dim], 1)
        repeats = f.scales.fresh(groups)
        f.scales.fix(repeats)
        f.scales.same(f.dims(query)[dim], (*f.dims(key)[dim], *repeats))
    # The default scale is a function of the head's width, and so is a literal that stands for it elsewhere.
    f.program.keep([f.dims(query)[-1]])
    if f.node.args[5:6] == (True,) or f.node.kwargs.get("is_causal"):
        f.scales.window(f.dims(key)[-2], 0, f.dims(query)[-2])
    masks = [arg for arg in (*f.node.args[3:4], f.node.kwargs.get("attn_mask")) if isinstance(arg, Var)]
    for mask in masks:
        for offset, digits in ((1, f.dims(key)[-2]), (2, f.dims(query)[-2])):
            if len(f.shape(mask)) >= offset and f.shape(mask)[-offset] != 1:
                f.scales.same(f.dims(mask)[-offset], digits)


_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), _view),
    **dict.fromkeys(("unsqueeze", "squeeze"), _flatten_like),
    **dict.fromkeys(("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "_to_copy"), _copying),
    **dict.fromkeys(("transpose", "t"), _transpose),
    **dict.fromkeys(("split_with_sizes", "split"), _split),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), _matmul),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "logsumexp", "any", "all", "var", "prod"), _reduced),
    **dict.fromkeys(("argmax", "argmin"), _argument),
    **dict.fromkeys(
        (
            "_softmax",
            "_log_softmax",
            "_softmax_backward_data",
            "_log_softmax_backward_data",
            "native_dropout",
            "cumsum",
            "dropout",
        ),
        _last_dim_alike,
    ),
    **dict.fromkeys(("full", "zeros", "ones", "empty"), _made),
    **dict.fromkeys(
        ("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"),
        _made_like,
    ),
    **dict.fromkeys(("tril", "triu"), _triangle),
    "expand": _expand,
    "permute": _permute,
    "slice": _slice,
    "slice_scatter": _slice_scatter,
    "select": _select,
    "cat": _cat,
    "chunk": _chunk,
    "native_layer_norm": _layer_norm,
    "embedding": _embedding,
    "index_select": _index_select,
    "index": _index,
    "index_put": _index_put,
    "gather": _gather,
    "arange": _arange,
    "sdpa": _sdpa,
}


def _infer_collective(program: Program, call: JoinedCall) -> None:
    """Every member's tensors stand in the relation that the collective defines."""
    facts = [Facts(program, rank + 1, program.graphs[rank + 1].nodes[call.nodes[rank]]) for rank in call.group]
    if call.kind in ("gg.all_reduce", "gg.broadcast", "gg.reduce"):
        pairs = [(f, f.tensor(0), facts[0], out) for f in facts for out in facts[0].node.outs]
        pairs += [(f, f.node.outs[0], facts[0], facts[0].node.outs[0]) for f in facts]
    elif call.kind in ("gg.all_gather", "gg.gather"):
        pairs = [(f, out, facts[at], facts[at].tensor(0)) for f in facts for at, out in enumerate(f.node.outs)]
    elif call.kind == "gg.reduce_scatter":
        pairs = [(f, piece, facts[at], facts[at].node.outs[0]) for f in facts for at, piece in enumerate(f.operands)]
    elif call.kind == "gg.all_to_all":
        pairs = [
            (f, out, facts[at], facts[at].operands[me])
            for me, f in enumerate(facts)
            for at, out in enumerate(f.node.outs)
        ]
    elif call.kind == "gg.send":
        pairs = [(facts[1], facts[1].node.outs[0], facts[0], facts[0].tensor(0))]
    else:
        for f in facts:
            f.keep_all()
        return
    for one, a, other, b in pairs:
        for mine, theirs in zip(one.dims(a), other.dims(b), strict=True):
            program.scales.same(mine, theirs)
        if one.indexes(a):
            program.scales.window(one.values(a), 0, other.values(b))
