"""Elements put one after the other where a mask holds: images among the tokens of a text.

The k-th place that the mask chooses gets element k of the source, so a place gets the element whose number is the count of chosen places up to it, less one (zero for places before the first, which get none).  A mask that is the same along the last dims chooses rows of the source.
A source that is too short is an error of the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import broadcast_shape, chosen, expanded, full, larger, minus, times
from graphguard.rules.basis.casting import convert
from graphguard.rules.basis.registry import rule

ENOUGH: Final = "masked_scatter has as many elements as its mask chooses, on every rank and every time: where it has fewer, the program raises"


@rule("aten.masked_scatter.default", casts=True)
def masked_scatter(a: Algebra[V], self: V, mask: V, source: V) -> V:
    """out[i] = source[(how many of mask[: i + 1] hold) - 1] where mask[i] holds, else self[i]"""
    shape = broadcast_shape(self.shape, mask.shape)
    places, width = _places(a, expanded(a, convert(a, mask, "bool"), shape), math.prod(source.shape))
    kind = source.kind
    if kind != "float":
        places, source = a.number(a.truth(places), "int"), convert(a, source, "int")
    rows = a.reshape(source, (math.prod(source.shape),))
    count = rows.shape[0] // width
    table = a.reshape(a.slice(rows, 0, 0, count * width), (count, width))
    put: V = convert(a, a.contract([(places, "tn"), (table, "nw")], "tw"), kind)
    return chosen(a, expanded(a, mask, shape), a.reshape(put, shape), expanded(a, self, shape))


@rule("aten.masked_scatter_backward.default")
def masked_scatter_backward(a: Algebra[V], grad_output: V, mask: V, sizes: Sequence[int]) -> V:
    """out[n] = grad_output at the n-th place that the mask chooses"""
    shape, extent = grad_output.shape, math.prod(sizes)
    holds = expanded(a, convert(a, mask, "bool"), shape)
    places, width = _places(a, holds, extent)
    count = extent // width
    kept = times(a, a.number(holds, "float"), grad_output)
    found = a.contract([(places, "tn"), (a.reshape(kept, (places.shape[0], width)), "tw")], "nw")
    rest = full(a, (extent - count * width,), 0, "float")
    return a.reshape(a.concat([a.reshape(found, (count * width,)), rest], 0), tuple(sizes))


def _places(a: Algebra[V], mask: V, extent: int) -> tuple[V, int]:
    """Which row of the source goes to which row of the places, as a mask, and how wide rows are."""
    if not extent or 0 in mask.shape:
        raise Unsupported("masked_scatter of nothing")
    kept = len(mask.shape)
    while kept and a.repeats(mask, kept - 1) and extent >= math.prod(mask.shape[kept - 1 :]):
        kept -= 1
    width = math.prod(mask.shape[kept:])
    line = mask
    for dim in range(kept, len(mask.shape)):
        line = a.slice(line, dim, 0, 1)
    chosen_here = a.number(a.reshape(line, (math.prod(mask.shape[:kept]),)), "int")
    a.assume(ENOUGH)
    before = larger(a, minus(a, _running(a, chosen_here), 1), 0)  # as programs that look the rows up themselves say it
    return a.one_hot(before, extent // width), width


def _running(a: Algebra[V], v: V) -> V:
    """Sums over all places up to each."""
    count = v.shape[0]
    columns = a.expand(a.iota(count), (count, count))
    rows = a.expand(a.reshape(a.iota(count), (count, 1)), (count, count))
    return a.contract([(a.number(a.compare("le", columns, rows), "int"), "ij"), (v, "j")], "i")
