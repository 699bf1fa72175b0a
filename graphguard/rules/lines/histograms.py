"""Histograms: how many elements lie in each of several bins.

Of whole numbers every bin holds a run of them, so that a count is a sum of one-hots; of other numbers it is a difference of two comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import Number, full, minus
from graphguard.rules.basis.registry import rule
from graphguard.rules.basis.scalars import exact

_MOST_BINS: Final = 512
_MOST_VALUES: Final = 1 << 16


@rule("aten.histc.default")
def histc(a: Algebra[V], self: V, bins: int = 100, min: Number = 0, max: Number = 0) -> V:
    """out[b] = how many elements are in bin b of ``bins`` equal ones from min to max; max itself is in the last"""
    low, high = exact(min), exact(max)
    if not isinstance(low, Fraction) or not isinstance(high, Fraction) or low >= high:
        raise Unsupported("a histogram between bounds that the data decides")
    edges = [low + (high - low) * place / bins for place in range(bins + 1)]
    flat = a.reshape(self, (math.prod(self.shape),))
    whole = _whole(a, flat)
    return _of_any(a, flat, edges) if whole is None else _of_whole(a, whole, edges)


def _whole(a: Algebra[V], v: V) -> V | None:
    """The elements as integers, where they are seen to be integers."""
    if v.kind == "int":
        return v
    truncated = a.number(v, "int")
    same = a.known(a.compare("eq", v, a.number(truncated, "float")))
    return truncated if same is not None and bool(same.all()) else None


def _of_whole(a: Algebra[V], v: V, edges: Sequence[Fraction]) -> V:
    starts = [math.ceil(edge) for edge in edges[:-1]]
    stops = [*starts[1:], math.floor(edges[-1]) + 1]
    first, count = starts[0], stops[-1] - starts[0]
    if count > _MOST_VALUES:
        raise Unsupported(f"a histogram of integers over more than {_MOST_VALUES} of them")
    counts = a.sum(a.one_hot(minus(a, v, first), count), [0])
    if stops == [start + 1 for start in starts]:
        return counts
    runs = zip(starts, stops, strict=True)
    return a.concat([_run(a, counts, start - first, stop - first) for start, stop in runs], 0)


def _run(a: Algebra[V], counts: V, start: int, stop: int) -> V:
    """One bin: the counts of a run of integers, of which there may be none."""
    if start == stop:
        return full(a, (1,), 0.0, "float")
    return a.reshape(a.sum(a.slice(counts, 0, start, stop), [0]), (1,))


def _of_any(a: Algebra[V], v: V, edges: Sequence[Fraction]) -> V:
    if len(edges) > _MOST_BINS:
        raise Unsupported(f"a histogram of more than {_MOST_BINS} bins")
    reached = [
        a.sum(a.number(a.compare("le", full(a, v.shape, edge, "float"), v), "float"), [0]) for edge in edges[:-1]
    ]
    above = a.sum(a.number(a.compare("lt", full(a, v.shape, edges[-1], "float"), v), "float"), [0])
    counts = [minus(a, here, there) for here, there in zip(reached, [*reached[1:], above], strict=True)]
    return a.concat([a.reshape(count, (1,)) for count in counts], 0)
