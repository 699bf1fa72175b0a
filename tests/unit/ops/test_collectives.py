"""What every collective gives is declared once: compared with what PyTorch says of it, by example."""

from __future__ import annotations

import pytest

from graphguard.ops import COLLECTIVE, EXCHANGES, exchanged, gg, linked
from graphguard.ops.collectives import Place

ONE = [["a"], ["b"], ["c"]]
PARTS = [["a0", "a1", "a2"], ["b0", "b1", "b2"], ["c0", "c1", "c2"]]
# What three members give, and what each gets; + is the reduction. The root, where there is one, is the second member.
MEANINGS = {
    gg.all_reduce: (ONE, [["a+b+c"]] * 3),
    gg.all_gather: (ONE, [["a", "b", "c"]] * 3),
    gg.reduce_scatter: (PARTS, [["a0+b0+c0"], ["a1+b1+c1"], ["a2+b2+c2"]]),
    gg.all_to_all: (PARTS, [["a0", "b0", "c0"], ["a1", "b1", "c1"], ["a2", "b2", "c2"]]),
    gg.broadcast: (ONE, [["b"]] * 3),
    gg.reduce: (ONE, [["a"], ["a+b+c"], ["c"]]),
    gg.gather: (ONE, [[], ["a", "b", "c"], []]),
    gg.scatter: ([[], ["b0", "b1", "b2"], []], [["b0"], ["b1"], ["b2"]]),
    gg.barrier: ([[]] * 3, [[]] * 3),
}


@pytest.mark.parametrize("op", MEANINGS)
def test_members_receive(op):
    given, received = MEANINGS[op]
    root = 1 if COLLECTIVE[op].names("root") else 0
    found = exchanged(op, 3, root, lambda member, at: given[member][at], lambda _, parts: "+".join(parts))
    assert found == received


@pytest.mark.parametrize("op", [gg.send, gg.recv])
def test_the_destination_receives(op):
    assert exchanged(op, 2, 0, lambda member, _: f"from {member}", lambda _, parts: "") == [[], ["from 0"]]


def test_every_collective_is_tried():
    assert MEANINGS.keys() | {gg.send, gg.recv} == COLLECTIVE.keys()


@pytest.mark.parametrize("op", MEANINGS)
def test_what_one_member_gets_is_linked_to_what_it_is_made_of(op):
    """Linked tensors are of one shape, so what is made of several is linked to each of them, directly or by another."""
    root = 1 if COLLECTIVE[op].names("root") else 0
    near: dict[Place, set[Place]] = {}
    for one, other in linked(op, 3, root):
        near[one] = near[other] = near.get(one, {one}) | near.get(other, {other})
        for place in near[one]:
            near[place] = near[one]
    for member in range(3):
        for position, (places, _) in enumerate(COLLECTIVE[op].made(member, 3, root)):
            assert set(places) <= near[Place(member, position, taken=True)]


def test_each_of_every_member():
    assert {gg.all_gather, gg.all_to_all} == EXCHANGES


def test_a_root_is_counted_in_its_group():
    assert COLLECTIVE[gg.broadcast].root(("x", 6, (2, 6, 4)), (2, 6, 4)) == 1
    with pytest.raises(AttributeError, match=r"gg\.all_reduced is no collective"):
        _ = gg.all_reduced
