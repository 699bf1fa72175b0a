"""Ranks that stand at calls until the others come: who is answered, with what, and who is not kept waiting for what will not come."""

import torch

from graphguard.ir.graph import Constant
from graphguard.trace.calls.constants import constant_of
from graphguard.trace.calls.lockstep import Ledger, Meeting, Offer, Stand

BOTH = (0, 1)


def number(value: int) -> tuple[Constant, ...]:
    return (constant_of(torch.tensor(value)),)


def stand(rank: int, call: str, value: int, passed: tuple[str, ...] = ()) -> Stand:
    return Stand(rank, call, BOTH, (Offer(call, BOTH, number(value)),), passed)


def settled(meeting: Meeting[str], *, stuck: bool = False) -> dict[str, object]:
    return dict(meeting.settled(stuck=stuck))


def meeting() -> Meeting[str]:
    made: Meeting[str] = Meeting()
    for rank in BOTH:
        made.begin(rank)
    return made


def test_all_that_decide_a_call_are_waited_for() -> None:
    here = meeting()
    here.come("first", stand(0, "call", 3))
    assert settled(here) == {}
    here.come("second", stand(1, "call", 4))
    assert settled(here) == {who: {0: number(3), 1: number(4)} for who in ("first", "second")}
    assert not here.standing


def test_what_was_offered_before_counts_whoever_stands_elsewhere() -> None:
    here = meeting()
    here.come("second", Stand(1, "later", (1,), (Offer("call", BOTH, number(4)),), ()))
    here.come("first", stand(0, "call", 3))
    assert settled(here)["first"] == {0: number(3), 1: number(4)}


def test_nobody_waits_for_one_that_has_nothing_to_offer() -> None:
    here = meeting()
    here.come("first", stand(0, "call", 3))
    here.come("second", stand(1, "later", 4, passed=("call",)))
    assert settled(here) == {"first": None}
    assert list(here.standing) == [1]


def test_nobody_waits_for_one_that_has_ended() -> None:
    here = meeting()
    here.come("first", stand(0, "call", 3))
    here.leave(1, (Offer("earlier", BOTH, number(1)),))
    assert settled(here) == {"first": None}
    here.come("first", stand(0, "earlier", 2))
    assert settled(here) == {"first": {0: number(2), 1: number(1)}}


def test_where_nobody_moves_all_go_on_without() -> None:
    here = meeting()
    here.come("first", stand(0, "one call", 3))
    here.come("second", stand(1, "another", 4))
    assert settled(here) == {}
    assert settled(here, stuck=True) == {"first": None, "second": None}


def test_a_ledger_tells_once_what_it_offers_and_passes() -> None:
    told: list[Stand] = []

    def ask(one: Stand) -> None:
        told.append(one)

    ledger = Ledger(0, ask=ask)
    ledger.offer("call", BOTH, number(3))
    ledger.go_past("unknown")
    assert ledger.answer("call", BOTH) is None
    assert ledger.answer("call", BOTH) is None
    assert [(len(one.offers), one.passed) for one in told] == [(1, ("unknown",)), (0, ())]
