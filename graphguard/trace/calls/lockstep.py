"""Ranks in lockstep where every rank's value is known, without any rank waiting for another.

A rank that calls a collective on constants *offers* its operands and goes on; the result is pending.  When the program needs
the value after all (``.item()``), the recording ends with :class:`NeedsAnswers`; once every member has offered, the rank is recorded again with
the offers of all members as *answers*.  Recording is deterministic, so calls are named by their group and number.
A rank that takes long to be recorded again, as a script does, *stands* at such a call instead until the others have made it too (:class:`Meeting`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from graphguard.ir.graph import Constant
from graphguard.trace.source.errors import raised


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
W = TypeVar("W")


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


Ask: TypeAlias = Callable[["Stand"], Mapping[int, tuple[Constant, ...]] | None]


@dataclass(frozen=True, slots=True)
class Stand:
    """A rank that stands at a call which ranks ``needed`` decide, with the offers that it made since it last stood, and the calls that it made without one."""

    rank: int
    call: str
    needed: tuple[int, ...]
    offers: tuple[Offer, ...]
    passed: tuple[str, ...]


class Meeting(Generic[W]):
    """Ranks that stand at calls, each with whom to answer."""

    def __init__(self) -> None:
        self.standing: dict[int, tuple[W, Stand]] = {}
        self._offers: dict[int, dict[str, tuple[Constant, ...]]] = {}
        self._passed: dict[int, set[str]] = {}
        self._gone: set[int] = set()

    def begin(self, rank: int) -> None:
        """A rank is recorded, from its beginning."""
        self._offers[rank], self._passed[rank] = {}, set()
        self._gone.discard(rank)

    def come(self, whom: W, stand: Stand) -> None:
        """A rank stands at a call from now on."""
        self._offers.setdefault(stand.rank, {}).update((offer.call, offer.operands) for offer in stand.offers)
        self._passed.setdefault(stand.rank, set()).update(stand.passed)
        self.standing[stand.rank] = whom, stand

    def leave(self, rank: int, offers: Sequence[Offer]) -> None:
        """A rank's recording ended, after these offers."""
        self._offers.setdefault(rank, {}).update((offer.call, offer.operands) for offer in offers)
        self._gone.add(rank)
        self.standing.pop(rank, None)

    def settled(self, *, stuck: bool) -> Iterator[tuple[W, Mapping[int, tuple[Constant, ...]] | None]]:
        """Those that need not stand any longer, with their answer: None where somebody will not make the call with an offer, or where nobody moves (``stuck``)."""
        found = [(rank, *self._verdict(stand)) for rank, (_, stand) in self.standing.items()]
        over = [(rank, answers) for rank, is_over, answers in found if is_over]
        if stuck and not over:
            over = [(rank, None) for rank, *_ in found]
        for rank, answers in over:
            yield self.standing.pop(rank)[0], answers

    def _verdict(self, stand: Stand) -> tuple[bool, Mapping[int, tuple[Constant, ...]] | None]:
        missing = [rank for rank in stand.needed if stand.call not in self._offers.get(rank, {})]
        if not missing:
            return True, {rank: self._offers[rank][stand.call] for rank in stand.needed}
        hopeless = any(rank in self._gone or stand.call in self._passed.get(rank, ()) for rank in missing)
        return hopeless, None


class Ledger:
    """Numbers a rank's collectives and keeps its offers; ``ask`` has it stand at a call until the others come."""

    def __init__(self, rank: int, answers: Answers | None = None, ask: Ask | None = None) -> None:
        self.rank = rank
        self.answers = answers or {}
        self.offers: list[Offer] = []
        self._ask = ask
        self._told = 0
        self._passed: list[str] = []
        self._count: Counter[str] = Counter()

    def answer(self, call: str, needed: tuple[int, ...]) -> Mapping[int, tuple[Constant, ...]] | None:
        """What all that decide a call put into it; None where that is not known."""
        if call not in self.answers and self._ask is not None:
            offers, passed = tuple(self.offers[self._told :]), tuple(self._passed)
            self._told = len(self.offers)
            self._passed.clear()
            found = self._ask(Stand(self.rank, call, needed, offers, passed))
            if found is not None:
                self.answers[call] = dict(found)
        return self.answers.get(call)

    def go_past(self, call: str) -> None:
        """This rank makes a call that it decides too, and has nothing to offer."""
        if self._ask is not None:
            self._passed.append(call)

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
        error = NeedsAnswers()
        raised(error)
        raise error
