"""Ranks in lockstep where every rank's value is known, without any rank waiting for another.

A rank that calls a collective on constants *offers* its operands and goes on; the result is pending.  When the program needs
the value after all (``.item()``), the recording ends with :class:`NeedsAnswers`; once every member has offered, the rank is recorded again with
the offers of all members as *answers*.  Recording is deterministic, so calls are named by their group and number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from graphguard.ir.graph import Constant


@dataclass(frozen=True, slots=True)
class Offer:
    """What one rank put into one collective; ``needed`` are the ranks whose offers decide the result."""

    call: str
    needed: tuple[int, ...]
    operands: tuple[Constant, ...]


Answers: TypeAlias = dict[str, dict[int, tuple[Constant, ...]]]
"""For every call whose deciding ranks have all offered: the operands by rank."""


class NeedsAnswers(BaseException):
    """The program needs a value that other ranks must contribute to; not an ``Exception``, so user code does not catch it."""


class Offering(Protocol):
    """What this module needs of a rank's trace."""

    @property
    def published(self) -> tuple[Offer, ...]:
        """The offers the rank made, in order."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether the recording ended because an answer was missing."""
        ...


T = TypeVar("T", bound=Offering)


def answer(published: Sequence[Sequence[Offer]]) -> Answers:
    """The calls to which every deciding rank has made an offer; ``published`` by rank."""
    by_call: dict[str, dict[int, Offer]] = {}
    for rank, offers in enumerate(published):
        for offer in offers:
            by_call.setdefault(offer.call, {})[rank] = offer
    return {
        call: {rank: offer.operands for rank, offer in offers.items()}
        for call, offers in by_call.items()
        if offers.keys() >= set(next(iter(offers.values())).needed)
    }


def rounds(
    run: Callable[[list[int], Answers], list[T]], world_size: int, before: Mapping[int, T] | None = None
) -> list[T]:
    """Record all ranks, again and again those that wait, until none waits or nothing new is known.

    ``run(ranks, answers)`` records these ranks; ``before`` are those that were recorded without answers.  A rank still ``waiting`` in the result needs a value that is not constant on every rank.
    """
    answers: Answers = {}
    traces = dict(before or {})
    missing = [rank for rank in range(world_size) if rank not in traces]
    traces.update(zip(missing, run(missing, answers), strict=True))
    while waiting := [rank for rank, trace in traces.items() if trace.waiting]:
        known = answer([traces[rank].published for rank in range(world_size)])
        if known.keys() <= answers.keys():
            break
        answers = known
        traces.update(zip(waiting, run(waiting, answers), strict=True))
    return [traces[rank] for rank in range(world_size)]


class Ledger:
    """Numbers a rank's collectives and keeps its offers."""

    def __init__(self, rank: int, answers: Answers | None = None) -> None:
        self.rank = rank
        self.answers = answers or {}
        self.offers: list[Offer] = []
        self._count: Counter[str] = Counter()

    def name(self, kind: str, group: tuple[tuple[int, ...], int], peer: int, tag: int) -> str:
        """The name of the next call on a group, which is its ranks and how many of the same were made before; a send and its receive get the same one."""
        ranks, earlier = group
        stem = f"{','.join(map(str, ranks))} {earlier or ''}"
        if kind in ("send", "recv"):
            pair = (self.rank, peer) if kind == "send" else (peer, self.rank)
            stem += f" p2p {pair[0]}-{pair[1]} tag {tag}"
        self._count[stem] += 1
        return f"{stem} #{self._count[stem]}"

    def counts(self) -> Counter[str]:
        """How many calls there were of each kind that is numbered on its own."""
        return Counter(self._count)

    def count(self, calls: Mapping[str, int]) -> None:
        """Calls were made that nobody names: copies of others."""
        self._count.update(calls)

    def restore(self, counts: Counter[str]) -> None:
        """Calls that were made since were made before already."""
        self._count = Counter(counts)

    def offer(self, call: str, needed: tuple[int, ...], operands: tuple[Constant, ...]) -> None:
        """Contribute this rank's operands."""
        self.offers.append(Offer(call, needed, operands))

    def need(self) -> Any:
        """The program cannot go on without an answer."""
        raise NeedsAnswers
