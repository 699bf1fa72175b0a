"""Extents under an operator that no rule knows: what PyTorch itself makes of other shapes says which extents may change.

Equal extents of the call are taken to belong together.  One of them after the other is doubled in tensors without memory; where the results have the shapes
that follow, the extent may change, otherwise it stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import torch

from graphguard.confirm.reduced.extent_layout import literal_counts
from graphguard.confirm.reduced.extents import Arguments, Facts, Rewrite, Scaled
from graphguard.confirm.run.elements import DTYPES, UnrunnableError
from graphguard.confirm.run.operators import function_of
from graphguard.ir import DType, Var
from graphguard.ir.graph import Arg

_FEW: Final = (
    8  # a whole number up to this names a dim, or counts what there are at least as many of in any dim that shrinks
)


def tried(f: Facts) -> Rewrite | None:
    """The extents of a call of PyTorch's, as trials on other shapes tell them; as they are where there are none."""
    tensors = (*f.operands, *f.node.outs)
    extents = frozenset(size for var in tensors for size in f.shape(var) if size > 1)
    for var in tensors:
        if f.indexes(var):
            f.program.keep([f.values(var)])
    if not _may_change(f, extents):
        f.keep_all()
        return None
    for extent in sorted(extents):
        places = [f.dims(var)[dim] for var in tensors for dim, size in enumerate(f.shape(var)) if size == extent]
        if not _follows(f, extent):
            f.program.keep(places)
            continue
        for other in places[1:]:
            f.scales.same(places[0], other)
    for arg in (*f.node.args, *f.node.kwargs.values()):
        if isinstance(arg, float):
            f.program.literals |= literal_counts(arg)
    return _resized(f)


def _may_change(f: Facts, extents: Collection[int]) -> bool:
    """Whether a call is one of PyTorch's that computes, whose literals are extents or too small to count what shrinks."""
    sizes = [size for var in (*f.operands, *f.node.outs) for size in f.graph.types[var].shape]
    return (
        f.node.op.startswith("aten.")
        and f.node.draw is None
        and bool(f.operands)
        and all(isinstance(size, int) for size in sizes)
        and all(
            number in extents or abs(number) <= _FEW for number in _numbers((*f.node.args, *f.node.kwargs.values()))
        )
    )


def _numbers(args: Iterable[Arg]) -> Iterator[int]:
    for arg in args:
        if isinstance(arg, tuple):
            yield from _numbers(arg)
        elif isinstance(arg, int) and not isinstance(arg, bool):
            yield arg


def _follows(f: Facts, extent: int) -> bool:
    """Whether results have twice an extent wherever operands, and literals, have it."""

    def grown(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(2 * size if size == extent else size for size in shape)

    def meant(arg: Arg) -> Any:
        if isinstance(arg, Var):
            return torch.empty(grown(f.shape(arg)), dtype=DTYPES[f.graph.types[arg].dtype], device="meta")
        if isinstance(arg, DType):
            return DTYPES[arg.name]
        if isinstance(arg, tuple):
            return [meant(item) for item in arg]
        return _with_size(arg, {extent: 2 * extent})

    try:
        kwargs = {name: meant(arg) for name, arg in f.node.kwargs.items()}
        with torch.no_grad():
            made = function_of(f.node.op)(*map(meant, f.node.args), **kwargs)
    except (RuntimeError, KeyError, TypeError, ValueError, IndexError, NotImplementedError, UnrunnableError):
        return False  # a shape that the operator does not take, or one that only its elements decide
    results = made if isinstance(made, tuple | list) else (made,)
    found = [(tuple(one.shape), one.dtype) if isinstance(one, torch.Tensor) else ((), None) for one in results]
    wanted = [(grown(f.shape(out)), DTYPES.get(f.graph.types[out].dtype)) for out in f.node.outs]
    return found[: len(f.node.outs)] == wanted


def _resized(f: Facts) -> Rewrite:
    """The call with its literals that are extents at the new ones."""
    first: dict[int, tuple[Var, int]] = {}
    for var in (*f.operands, *f.node.outs):
        for dim, size in enumerate(f.shape(var)):
            first.setdefault(size, (var, dim))

    def rewrite(scaled: Scaled) -> Arguments:
        sizes = {size: scaled.shape(var)[dim] for size, (var, dim) in first.items()}
        return tuple(_with_size(arg, sizes) for arg in f.node.args), f.node.kwargs

    return rewrite


def _with_size(arg: Arg, sizes: Mapping[int, int]) -> Arg:
    """An argument with the whole numbers in it that are extents replaced; small ones are none, as dims, flags and counts of neighbours are small."""
    if isinstance(arg, tuple):
        return tuple(_with_size(item, sizes) for item in arg)
    return sizes.get(arg, arg) if isinstance(arg, int) and not isinstance(arg, bool) and arg > _FEW else arg
