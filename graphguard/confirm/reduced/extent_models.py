"""Extents under contractions, reductions, norms, look-ups, losses and attention."""

from __future__ import annotations

import math

from graphguard.confirm.reduced.extent_layout import literal_counts
from graphguard.confirm.reduced.extents import Facts, Rewrite, extents_of
from graphguard.ir import Var
from graphguard.ir.graph import Arg


@extents_of("mm", "bmm", "addmm", "baddbmm")
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


@extents_of("sum", "mean", "amax", "amin", "logsumexp", "any", "all", "var", "prod")
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


@extents_of("max", "min")
def _extreme(f: Facts) -> None:
    """A reduction by an order; with a dim it gives positions along it, too."""
    _reduced(f)
    if len(f.node.outs) == 2:
        dim = f.dim(1, 0, len(f.shape(f.tensor(0))))
        f.scales.window(f.dims(f.tensor(0))[dim], 0, f.values(f.node.outs[1]))


@extents_of("argmax", "argmin")
def _argument(f: Facts) -> None:
    """Positions along a dim: the dim stays."""
    _reduced(f)
    f.program.keep(f.dims(f.tensor(0)))


@extents_of(
    "_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "native_dropout",
    "cumsum",
    "dropout",
)
def _all_alike(f: Facts) -> None:
    """Every operand broadcasts to the first result; further results of the same shape are like it."""
    for var in (*f.operands, *f.node.outs[1:]):
        f.aligned(var, f.node.outs[0])


@extents_of("native_layer_norm")
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


@extents_of("native_group_norm", "native_group_norm_backward")
def _group_norm(f: Facts) -> Rewrite:
    """Channels are groups of equal size; the batch, the channels, what lies behind them and the groups are named as numbers."""
    backward = f.node.op.split(".")[1].endswith("backward")
    x, mean = (f.tensor(1), f.tensor(2)) if backward else (f.tensor(0), f.node.outs[1])
    at, channels, groups = (5 if backward else 3), f.shape(x)[1], f.shape(mean)[1]
    f.scales.same(f.dims(x)[1], (*f.dims(mean)[1], *f.scales.fresh(channels // groups)))
    for var in (*f.operands, *f.node.outs):
        if len(f.shape(var)) == len(f.shape(x)) and f.shape(var) == f.shape(x):
            f.aligned(var, x)
        elif f.shape(var) == f.shape(mean) and len(f.shape(var)) == 2:
            f.aligned(var, mean)
        elif len(f.shape(var)) == 1:
            f.scales.same(f.dims(var)[0], f.dims(x)[1])
    f.scales.same(f.dims(mean)[0], f.dims(x)[0])
    return f.replaced(
        {
            at: lambda scaled: scaled.shape(x)[0],
            at + 1: lambda scaled: scaled.shape(x)[1],
            at + 2: lambda scaled: math.prod(scaled.shape(x)[2:]),
            at + 3: lambda scaled: scaled.shape(mean)[1],
        }
    )


@extents_of("embedding")
def _embedding(f: Facts) -> None:
    table, index, out = f.tensor(0), f.tensor(1), f.node.outs[0]
    f.scales.window(f.dims(table)[0], 0, f.values(index))
    for mine, theirs in zip((*f.dims(index), f.dims(table)[1]), f.dims(out), strict=True):
        f.scales.same(theirs, mine)


@extents_of("embedding_dense_backward")
def _embedding_backward(f: Facts) -> Rewrite:
    grad, index, out = f.tensor(0), f.tensor(1), f.node.outs[0]
    f.scales.window(f.dims(out)[0], 0, f.values(index))
    for mine, theirs in zip((*f.dims(index), f.dims(out)[1]), f.dims(grad), strict=True):
        f.scales.same(theirs, mine)
    return f.replaced({2: lambda scaled: scaled.shape(out)[0]})


@extents_of("index_select")
def _index_select(f: Facts) -> None:
    x, index, out = f.tensor(0), f.tensor(2), f.node.outs[0]
    dim = f.dim(1, 0, len(f.shape(x)))
    f.scales.window(f.dims(x)[dim], 0, f.values(index))
    if f.shape(index):
        f.scales.same(f.dims(out)[dim], f.dims(index)[0])
    for at, digits in enumerate(f.dims(x)):
        if at != dim:
            f.scales.same(f.dims(out)[at], digits)


@extents_of("index")
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


@extents_of("index_put")
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


@extents_of("nll_loss_forward", "nll_loss_backward")
def _class_loss(f: Facts) -> None:
    """A loss of (rows, classes) at integer targets of (rows,), or its gradient with respect to the first."""
    backward = f.node.op.split(".")[1].endswith("backward")
    x, target = f.tensor(1 if backward else 0), f.tensor(2 if backward else 1)
    f.scales.window(f.dims(x)[-1], 0, f.values(target))
    for mine, theirs in zip(f.dims(target), f.dims(x), strict=False):
        f.scales.same(theirs, mine)
    rows = f.node.outs[:1] if f.shape(f.node.outs[0]) else ()
    for out in rows:
        for mine, theirs in zip(f.dims(out), f.dims(x), strict=False):
            f.scales.same(theirs, mine)


@extents_of("gather")
def _gather(f: Facts) -> None:
    x, index, out = f.tensor(0), f.tensor(2), f.node.outs[0]
    dim = f.dim(1, 0, len(f.shape(x)))
    f.scales.window(f.dims(x)[dim], 0, f.values(index))
    f.aligned(index, out)
    f.aligned(x, index, skip=(dim,)) if len(f.shape(x)) == len(f.shape(index)) else f.keep_all()


@extents_of("sdpa")
def _sdpa(f: Facts) -> None:
    query, key, value = (f.tensor(i) for i in range(3))
    mask = f.node.args[3] if len(f.node.args) > 3 else f.node.kwargs.get("attn_mask")
    _attention(f, (query, key, value, f.node.outs[0]), mask, 5)


def _attention(f: Facts, tensors: tuple[Var, Var, Var, Var], mask: Arg, causal_at: int) -> None:
    """Query heads in equal groups over key heads; masks broadcast."""
    query, key, value, out = tensors
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
    if f.node.args[causal_at : causal_at + 1] == (True,) or f.node.kwargs.get("is_causal"):
        f.scales.window(f.dims(key)[-2], 0, f.dims(query)[-2])
    if isinstance(mask, Var):
        for offset, digits in ((1, f.dims(key)[-2]), (2, f.dims(query)[-2])):
            if len(f.shape(mask)) >= offset and f.shape(mask)[-offset] != 1:
                f.scales.same(f.dims(mask)[-offset], digits)


@extents_of("sdpa_backward")
def _sdpa_backward(f: Facts) -> None:
    """Gradients are like what they are gradients of."""
    grad, query, key, value, out = (f.tensor(i) for i in range(5))
    _attention(f, (query, key, value, out), f.node.args[5] if len(f.node.args) > 5 else None, 7)
    for mine, theirs in ((grad, out), *zip(f.node.outs, (query, key, value), strict=False)):
        f.aligned(mine, theirs)
