"""Extents under layout and elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from graphguard.confirm.reduced.extents import Arguments, Facts, Rewrite, Scaled, extents_of
from graphguard.ir import Var
from graphguard.ir.graph import Arg
from graphguard.ops import aten, operators, traits_of


def elementwise(f: Facts) -> Rewrite | None:
    """Equal extents; integers keep what they index, and so do the literals they meet."""
    out = f.node.outs[0]
    for var in f.operands:
        f.aligned(var, out)
    integers = [var for var in (*f.operands, out) if f.indexes(var)]
    if not integers and traits_of(f.node.op).symbol == "/" and (share := _share(f)) is not None:
        return share
    if not integers:
        if f.node.op not in _COUNTLESS:
            f.program.literals |= {count for arg in f.node.args for count in literal_counts(arg)}
        return None
    if f.node.op not in _BESIDE and len(integers) > 1:
        f.program.keep(f.values(var) for var in integers)
        return None
    for var in integers[1:]:
        f.scales.window(f.values(integers[0]), 0, f.values(var))
    if f.node.op in _BLIND:
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
    """The extents that a literal may stand for: itself, its inverse and, where it is a root, the squares of both.

    Tiny and huge powers of ten are bounds and masks that nobody counts with.
    """
    if not isinstance(arg, int | float) or isinstance(arg, bool) or not arg or not math.isfinite(arg):
        return set()
    size = abs(arg)
    exponent = math.log10(size)
    if abs(exponent) >= 4 and math.isclose(exponent, round(exponent), abs_tol=1e-9):
        return set()
    plain = {round(value) for value in (size, 1 / size) if _whole(value)}
    return plain or {round(value) for value in (size * size, 1 / (size * size)) if _whole(value)}


def _whole(value: float) -> bool:
    return math.isfinite(value) and round(value) > 1 and math.isclose(round(value), value, rel_tol=1e-6)


def _share(f: Facts) -> Rewrite | None:
    """Division by the number of copies that an expansion has just made, as in the gradient of a mean: it follows the extents."""
    x, count = f.node.args[:2]
    made = f.producer(x) if isinstance(x, Var) else None
    if made is None or made.op != aten.expand.default or not isinstance(made.args[0], Var) or not isinstance(x, Var):
        return None
    source = f.shape(made.args[0])
    padded = (1,) * (len(f.shape(x)) - len(source)) + source
    copied = [dim for dim, size in enumerate(f.shape(x)) if size != padded[dim]]
    if count != math.prod(f.shape(x)[dim] for dim in copied):
        return None
    kind = type(count)
    return f.replaced({1: lambda scaled: kind(math.prod(scaled.shape(x)[dim] for dim in copied))})


# Elementwise operators of integers that go by no other number.
_BLIND: Final = operators(lambda op: op.casts or op.moves == "same") | {
    aten.copy.default,
    aten.abs.default,
    aten.neg.default,
}
# Such whose result lies among, or beside, their operands' values.
_BESIDE: Final = _BLIND | operators(
    lambda op: (
        op.shifts or op.compares or op.bounds or op.mask_at is not None or (op.pointwise and op.exact == "chosen")
    )
)
# Literals of these cannot be a count: exponents, bounds, masks.
_COUNTLESS: Final = operators(lambda op: op.compares or op.bounds or op.mask_at is not None) | {
    aten.pow.Tensor_Scalar,
    aten.pow.Scalar,
    aten.pow.Tensor_Tensor,
}


@extents_of("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "_to_copy")
def _copying(f: Facts) -> None:
    out = f.node.outs[0]
    f.aligned(f.tensor(0), out)
    f.pass_values(f.tensor(0), out)


@extents_of("view", "_unsafe_view", "reshape")
def _view(f: Facts) -> Rewrite:
    x, out = f.tensor(0), f.node.outs[0]
    if not _exchanged(f, x, out):
        alike = _leading(f.shape(x), f.shape(out))
        for mine, theirs in zip(f.dims(x)[:alike], f.dims(out)[:alike], strict=True):
            f.scales.same(mine, theirs)
        f.scales.same([d for dim in f.dims(x)[alike:] for d in dim], [d for dim in f.dims(out)[alike:] for d in dim])
    f.pass_values(x, out)
    return f.replaced({1: lambda scaled: scaled.shape(out)})


def _leading(before: Sequence[object], after: Sequence[object]) -> int:
    """How many dims a view leaves as they are before it regroups the others."""
    return next(
        (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )


def _exchanged(f: Facts, x: Var, out: Var) -> bool:
    """A view where a transpose is meant: the extents stay whatever they are, which of the elements lie where depends on them."""
    before, after = f.shape(x), f.shape(out)
    if before == after or sorted(before) != sorted(after) or len(set(before)) < len(before) or 1 in before:
        return False
    for at, extent in enumerate(before):
        f.scales.same(f.dims(x)[at], f.dims(out)[after.index(extent)])
    return True


@extents_of("unsqueeze", "squeeze")
def _flatten_like(f: Facts) -> None:
    """Dims of extent one come or go."""
    x, out = f.tensor(0), f.node.outs[0]
    f.scales.same([d for dim in f.dims(x) for d in dim], [d for dim in f.dims(out) for d in dim])
    f.pass_values(x, out)


@extents_of("expand")
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


@extents_of("permute")
def _permute(f: Facts) -> None:
    order = f.node.args[1]
    assert isinstance(order, tuple)
    rank = len(f.shape(f.tensor(0)))
    _moved(f, [d % rank for d in order if isinstance(d, int)])


@extents_of("transpose", "t")
def _transpose(f: Facts) -> None:
    rank = len(f.shape(f.tensor(0)))
    order = list(range(rank))
    if rank > 1 or f.node.op != aten.t.default:
        a, b = (0, 1) if f.node.op == aten.t.default else (f.dim(1, 0, rank), f.dim(2, 1, rank))
        if rank > 1:
            order[a], order[b] = order[b], order[a]
    _moved(f, order)


@extents_of("slice")
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


@extents_of("slice_scatter")
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


@extents_of("select")
def _select(f: Facts) -> None:
    x, out = f.tensor(0), f.node.outs[0]
    dim = f.dim(1, 0, len(f.shape(x)))
    f.program.keep([f.dims(x)[dim]])
    rest = [digits for at, digits in enumerate(f.dims(x)) if at != dim]
    for mine, theirs in zip(rest, f.dims(out), strict=True):
        f.scales.same(theirs, mine)
    f.pass_values(x, out)


@extents_of("cat")
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


@extents_of("constant_pad_nd")
def _pad(f: Facts) -> Rewrite | None:
    """Positions before and after, from the last dim on."""
    x, out, pads = f.tensor(0), f.node.outs[0], f.node.args[1]
    assert isinstance(pads, tuple)
    if not all(isinstance(pad, int) and pad >= 0 for pad in pads):
        f.keep_all()
        return None
    before = [pads[at] for at in range(0, len(pads), 2)][::-1]
    starts = (*(0 for _ in range(len(f.shape(x)) - len(before))), *(pad for pad in before if isinstance(pad, int)))
    for start, whole, part in zip(starts, f.dims(out), f.dims(x), strict=True):
        f.scales.window(whole, start, part)
    f.pass_values(x, out)

    def rewrite(scaled: Scaled) -> Arguments:
        made: list[int] = []
        for dim in reversed(range(len(starts) - len(before), len(starts))):
            first = scaled.position(starts[dim], f.dims(out)[dim])
            made += (first, scaled.shape(out)[dim] - scaled.shape(x)[dim] - first)
        return (x, tuple(made), *f.node.args[2:]), f.node.kwargs

    return rewrite


@extents_of("split_with_sizes", "split")
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


@extents_of("chunk")
def _chunk(f: Facts) -> None:
    _split(f)


@extents_of("full", "zeros", "ones", "empty")
def _made(f: Facts) -> Rewrite:
    """A tensor made from its shape, the first argument."""
    out = f.node.outs[0]
    return f.replaced({0: lambda scaled: scaled.shape(out)})


@extents_of("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")
def _made_like(f: Facts) -> Rewrite | None:
    out = f.node.outs[0]
    if f.node.op.split(".")[1].endswith("_like"):
        f.aligned(f.tensor(0), out)
        return None
    return f.replaced({1: lambda scaled: scaled.shape(out)})


@extents_of("arange")
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


@extents_of("tril", "triu")
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
