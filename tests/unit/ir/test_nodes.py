"""What a call reads, gathered once."""

import pickle
from dataclasses import replace

from graphguard.ir import Node, Var

A, B, C = Var(0), Var(1), Var(2)


def test_what_a_call_reads_is_in_argument_order_with_repeats():
    node = Node("op", (A, (B, 2, (A,))), {"bias": C, "dim": 1}, (Var(3),))
    assert node.reads == tuple(node.operands()) == (A, B, A, C)


def test_a_changed_call_reads_what_it_is_changed_to():
    node = Node("op", (A, B), {}, (Var(3),))
    assert node.reads == (A, B)
    assert replace(node, args=(C, B)).reads == (C, B)


def test_calls_are_equal_whether_or_not_they_were_asked():
    asked, other = Node("op", (A,), {}, (B,)), Node("op", (A,), {}, (B,))
    assert asked.reads == (A,)
    assert asked == other
    assert pickle.loads(pickle.dumps(asked)) == other
