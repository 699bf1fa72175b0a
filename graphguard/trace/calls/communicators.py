"""Process groups as communicators: two of the same ranks are two, and all ranks make them in the same order.

PyTorch names a group by the number of those that its rank has called ``new_group`` for before, whether it is a member or not.  The members of one meet under its name, and wait there for each
other; ranks whose numbers differ meet strangers, or nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from graphguard.ir.capture import Trouble
from graphguard.ir.joining import RULE
from graphguard.ir.ranks import ranks_text
from graphguard.ir.spans import Frame
from graphguard.trace.calls.events import Members

_NEEDED = "needed: every rank calls new_group for every group, those that it is not in too, in the same order and with the same ranks"


@dataclass(frozen=True, slots=True)
class Formed:
    """A call that makes a group, which all ranks must make: its members, and where."""

    ranks: tuple[int, ...]
    stack: tuple[Frame, ...]


class Communicators:
    """The groups that a rank has made so far."""

    def __init__(self) -> None:
        self._made: Counter[tuple[int, ...]] = Counter()
        self._earlier: dict[str, int] = {}

    def begin(self, size: int) -> None:
        """There is the group of all ranks, and no other."""
        self._made = Counter([tuple(range(size))])
        self._earlier = {}

    def earlier(self, name: str) -> int:
        """How many groups of the same ranks were made before the one of this name."""
        return self._earlier.get(name, 0)

    def add(self, ranks: tuple[int, ...], name: str) -> Members:
        """A group is made."""
        earlier = self._earlier[name] = self._made[ranks]
        self._made[ranks] += 1
        return Members(ranks, name, earlier)


def disagreement(ranks: Sequence[tuple[Formed, ...]]) -> Trouble | None:
    """The first call to make a group that not every rank makes, or that ranks make in another order."""
    first = ranks[0] if ranks else ()
    for number in range(max(map(len, ranks), default=0)):
        for rank, calls in enumerate(ranks):
            if not _same(number, (0, first), (rank, calls)):
                return _trouble(number, (0, first), (rank, calls))
    return None


def _same(number: int, one: tuple[int, tuple[Formed, ...]], other: tuple[int, tuple[Formed, ...]]) -> bool:
    """Whether two ranks make the same group, or each one of itself alone, in which nobody else is looked for."""
    calls = [formed[number].ranks if number < len(formed) else () for _, formed in (one, other)]
    return calls[0] == calls[1] or calls == [(one[0],), (other[0],)]


def _trouble(number: int, *ranks: tuple[int, tuple[Formed, ...]]) -> Trouble:
    """Two ranks that do not make the same group next."""
    (a, mine), (b, theirs) = ranks if _lacks(number, *ranks) else ranks[::-1]
    here = mine[number]
    headline = f"rank {a} calls new_group for {ranks_text(here.ranks)} "
    if _lacks(number, (a, mine), (b, theirs)):
        headline += f"and rank {b} does not"
    else:
        headline += f"where rank {b} calls it for {ranks_text(theirs[number].ranks)}"
    span = here.stack[0].span if here.stack else None
    there = theirs[number] if number < len(theirs) else None
    related = ((there.stack[0].span, f"rank {b}: new_group"),) if there is not None and there.stack else ()
    found = "found: PyTorch tells groups by the number of the call, so the ranks of one look for each other under different names"
    return Trouble(RULE, f"{headline}\n{found}\n{_NEEDED}", span, a, here.stack, related)


def _lacks(number: int, one: tuple[int, tuple[Formed, ...]], other: tuple[int, tuple[Formed, ...]]) -> bool:
    """Whether the second rank never again makes the group that the first makes next."""
    (_, mine), (_, theirs) = one, other
    return number < len(mine) and all(call.ranks != mine[number].ranks for call in theirs[number:])
