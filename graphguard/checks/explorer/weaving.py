"""Two sequences put into one order, so that what belongs together shares a row."""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias, TypeVar

A = TypeVar("A")
B = TypeVar("B")

Way: TypeAlias = Callable[[Sequence[A], Sequence[B]], Iterable[tuple[int, int]]]
"""Which of two sequences belong together, as pairs of positions."""


def woven(first: Sequence[A], second: Sequence[B], ways: Sequence[Way[A, B]]) -> list[tuple[A | None, B | None]]:
    """Both sequences in their order, in pairs; between what one way pairs the next one is tried.

    What stands alone in the first comes before what stands alone in the second.
    """
    if not first or not second or not ways:
        return [*((each, None) for each in first), *((None, each) for each in second)]
    rows: list[tuple[A | None, B | None]] = []
    above, beside = 0, 0
    for here, there in (*rising(ways[0](first, second)), (len(first), len(second))):
        between: list[tuple[A | None, B | None]] = woven(first[above:here], second[beside:there], ways[1:])
        rows += between
        if here < len(first):
            rows.append((first[here], second[there]))
        above, beside = here + 1, there + 1
    return rows


def alike(first: Callable[[A], Iterable[Hashable]], second: Callable[[B], Hashable]) -> Way[A, B]:
    """Pairs the members with equal keys, the first with the first and so on; members of the first sequence may have several keys."""

    def way(above: Sequence[A], beside: Sequence[B]) -> Iterable[tuple[int, int]]:
        places: dict[Hashable, deque[int]] = defaultdict(deque)
        for position, each in enumerate(above):
            for key in first(each):
                places[key].append(position)
        for position, one in enumerate(beside):
            if left := places.get(second(one)):
                yield left.popleft(), position

    return way


def rising(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most pairs that cross no other, by patience sorting."""
    ordered = sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for position, (_, there) in enumerate(ordered):
        pile = bisect.bisect_left(ends, there)
        ends[pile : pile + 1] = [there]
        last[pile : pile + 1] = [position]
        before.append(last[pile - 1] if pile else -1)
    chain = []
    position = last[-1] if last else -1
    while position >= 0:
        chain.append(ordered[position])
        position = before[position]
    return chain[::-1]
