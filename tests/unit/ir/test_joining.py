"""Ranks in lockstep: what meets, in which order, and what never does."""

import pytest

from graphguard.ir import Frame, Graph, Node, Span, TensorType, Var
from graphguard.ir.joining import JoinedCall, join
from graphguard.ir.pruning import prune_prelude

F32 = TensorType((4,), "float32")


LEAF = Var(0)


class Rank:
    """A graph written call by call; each on a line of its own."""

    def __init__(self) -> None:
        self.types = {Var(0): F32}
        self.nodes: list[Node] = []
        self.outputs: dict[str, Var] = {}

    def call(
        self, op: str, *args: object, outs: int = 1, kind: TensorType = F32, phase: str = "forward", **kwargs: object
    ) -> Var:
        results = tuple(Var(len(self.types) + i) for i in range(outs))
        self.types.update(dict.fromkeys(results, kind))
        self.nodes.append(Node(op, args, kwargs, results, stack=len(self.nodes), phase=phase))  # type: ignore[arg-type]
        return results[0] if results else Var(0)

    def all_reduce(self, x: Var = LEAF, group: tuple[int, ...] = (0, 1), reduce: str = "sum", **how: object) -> Var:
        return self.call("gg.all_reduce", x, reduce, group, **how)  # type: ignore[arg-type]

    def send(self, x: Var, to: int, blocking: bool = False) -> None:
        self.call("gg.send", x, to, 0, (0, 1), outs=0, **({"blocking": True} if blocking else {}))

    def receive(self, source: int, blocking: bool = False, kind: TensorType = F32) -> Var:
        return self.call("gg.recv", source, 0, (0, 1), kind=kind, **({"blocking": True} if blocking else {}))

    def graph(self) -> Graph:
        frames = tuple(Frame(Span("model.py", line + 1), "step") for line in range(len(self.nodes)))
        stacks = tuple((line,) for line in range(len(self.nodes)))
        return Graph({Var(0): "x"}, {}, tuple(self.nodes), self.types, self.outputs, frames=frames, stacks=stacks)


def two() -> tuple[Rank, Rank]:
    return Rank(), Rank()


def joined(*ranks: Rank):
    return join(tuple(rank.graph() for rank in ranks))


def test_everything_comes_after_what_it_reads() -> None:
    a, b = two()
    for rank in (a, b):
        y = rank.call("aten.neg.default", Var(0))
        rank.call("aten.neg.default", rank.all_reduce(y))
    result = joined(a, b)
    assert not result.mismatches
    position = {step if isinstance(step, tuple) else "call": i for i, step in enumerate(result.order)}
    assert all(position[(rank, 0)] < position["call"] < position[(rank, 2)] for rank in (0, 1))
    assert result.collectives == (JoinedCall("gg.all_reduce", (0, 1), {0: 1, 1: 1}),)


def test_groups_meet_on_their_own() -> None:
    ranks = [Rank() for _ in range(4)]
    for i, rank in enumerate(ranks):
        rank.all_reduce(group=(0, 1) if i < 2 else (2, 3))
        rank.all_reduce(group=(0, 2) if i % 2 == 0 else (1, 3))
    result = joined(*ranks)
    assert not result.mismatches
    assert sorted(call.group for call in result.collectives) == [(0, 1), (0, 2), (1, 3), (2, 3)]


def test_opposite_order_of_two_groups_hangs() -> None:
    a, b = two()
    a.all_reduce(group=(0, 1))
    a.all_reduce(group=(1, 0))
    b.all_reduce(group=(1, 0))
    b.all_reduce(group=(0, 1))
    (trouble,) = joined(a, b).mismatches
    assert trouble.rule == "collective-mismatch"
    assert "neither goes on" in trouble.message
    assert trouble.span is not None
    assert trouble.related[0][0].line == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rank: rank.call("gg.broadcast", Var(0), 0, (0, 1)), "calls all_reduce where rank 1 calls broadcast"),
        (lambda rank: rank.all_reduce(reduce="max"), "called with sum on rank 0 and with max on rank 1"),
        (
            lambda rank: rank.all_reduce(rank.call("aten.view", Var(0), kind=TensorType((2, 2), "float32"))),
            "shape (2, 2)",
        ),
        (lambda rank: rank.all_reduce(rank.call("aten.to", Var(0), kind=TensorType((4,), "bfloat16"))), "bfloat16"),
    ],
)
def test_calls_that_do_not_fit(change, says: str) -> None:
    a, b = two()
    a.all_reduce()
    change(b)
    (trouble,) = joined(a, b).mismatches
    assert says in trouble.message
    assert (trouble.rank, trouble.span) == (0, Span("model.py", 1))
    assert trouble.related[0][1].startswith("rank 1: ")


def test_a_call_that_only_one_rank_makes() -> None:
    a, b = two()
    a.all_reduce()
    (trouble,) = joined(a, b).mismatches
    assert "rank 1 never calls it" in trouble.message


def test_messages_posted_before_they_are_needed() -> None:
    a, b = two()
    for rank, peer in ((a, 1), (b, 0)):
        received = rank.receive(peer)
        rank.send(Var(0), peer)
        rank.call("aten.neg.default", received)
    result = joined(a, b)
    assert not result.mismatches
    assert {call.group for call in result.collectives} == {(0, 1), (1, 0)}
    assert len(result.order) == 4


def test_a_chain_of_held_back_work_is_released_in_order() -> None:
    a, b = two()
    received = a.receive(1)
    a.send(a.call("aten.neg.default", received), 1)
    b.send(b.call("aten.neg.default", Var(0)), 0)
    b.call("aten.neg.default", b.receive(0))
    assert not joined(a, b).mismatches


def test_messages_do_not_overtake() -> None:
    """Rank 0's first message waits for what it receives; its second does not, and comes second all the same."""
    a, b = two()
    received = a.receive(1)
    a.send(received, 1)
    a.send(LEAF, 1)
    first, second = b.receive(0), b.receive(0)
    b.send(LEAF, 0)
    result = joined(a, b)
    assert not result.mismatches
    from_first = [call.nodes for call in result.collectives if call.group == (0, 1)]
    assert from_first == [{0: 1, 1: 0}, {0: 2, 1: 1}]
    assert first != second


@pytest.mark.parametrize("first", ["send", "receive"])
def test_both_ranks_wait_for_the_other(first: str) -> None:
    a, b = two()
    for rank, peer in ((a, 1), (b, 0)):
        if first == "send":
            rank.send(Var(0), peer, blocking=True)
            rank.receive(peer, blocking=True)
        else:
            rank.receive(peer, blocking=True)
            rank.send(Var(0), peer, blocking=True)
    (trouble,) = joined(a, b).mismatches
    assert "neither goes on" in trouble.message
    assert trouble.span == Span("model.py", 1)
    assert trouble.related[0][0] == Span("model.py", 1)


def test_blocking_messages_in_turn() -> None:
    a, b = two()
    a.send(Var(0), 1, blocking=True)
    a.call("aten.neg.default", a.receive(1, blocking=True))
    received = b.receive(0, blocking=True)
    b.send(received, 0, blocking=True)
    assert not joined(a, b).mismatches


def test_a_receive_without_a_send() -> None:
    a, b = two()
    a.receive(1)
    (trouble,) = joined(a, b).mismatches
    assert "waits for ever to receive from rank 1" in trouble.message


def test_a_message_that_nobody_receives() -> None:
    a, b = two()
    a.send(Var(0), 1)
    a.send(Var(0), 1)
    b.receive(0)
    (trouble,) = joined(a, b).mismatches
    assert "rank 0 sends to rank 1, which never receives it" in trouble.message
    assert trouble.span is not None
    assert trouble.span.line == 2
    b.receive(0)
    assert not joined(a, b).mismatches


def test_a_message_of_another_shape() -> None:
    a, b = two()
    a.send(Var(0), 1)
    b.receive(0, kind=TensorType((5,), "float32"))
    (trouble,) = joined(a, b).mismatches
    assert "rank 0 sends a float32 tensor of shape (4)" in trouble.message


def test_dead_initial_values_leave_with_their_collectives() -> None:
    a, b = two()
    for rank in (a, b):
        rank.all_reduce(rank.call("aten.rand", phase="prelude"), phase="prelude")
        rank.outputs["out"] = rank.call("aten.neg.default", Var(0))
    assert [[node.op for node in graph.nodes] for graph in prune_prelude((a.graph(), b.graph()))] == [
        ["aten.neg.default"]
    ] * 2


def test_a_collective_that_one_rank_uses_stays_on_all() -> None:
    a, b = two()
    for rank in (a, b):
        y = rank.all_reduce(rank.call("aten.rand", phase="prelude"), phase="prelude")
        rank.outputs["out"] = y if rank is a else Var(0)
    assert [len(graph.nodes) for graph in prune_prelude((a.graph(), b.graph()))] == [2, 2]


def test_two_groups_of_the_same_ranks_have_each_its_own_order() -> None:
    a, b = two()
    a.all_reduce(asynchronous=True)
    a.all_reduce(comm=2, asynchronous=True)
    b.all_reduce(comm=2, asynchronous=True)
    b.all_reduce(asynchronous=True)
    result = joined(a, b)
    assert not result.mismatches
    assert sorted(tuple(call.nodes.items()) for call in result.collectives) == [((0, 0), (1, 1)), ((0, 1), (1, 0))]


def test_a_rank_stands_at_the_first_of_two_groups() -> None:
    a, b = two()
    a.all_reduce()
    a.all_reduce(comm=2)
    b.all_reduce(comm=2)
    b.all_reduce()
    (trouble,) = joined(a, b).mismatches
    assert "over another group of ranks 0, 1" in trouble.message


def test_waiting_for_one_group_keeps_a_rank_from_the_other() -> None:
    """What is asynchronous holds nobody up until it is waited for."""
    a, b = two()
    for rank, order in ((a, (1, 2)), (b, (2, 1))):
        for number in order:
            rank.call("gg.wait", rank.all_reduce(comm=number, asynchronous=True), outs=0)
    (trouble,) = joined(a, b).mismatches
    assert "neither goes on" in trouble.message


def test_what_reads_an_asynchronous_result_comes_after_it() -> None:
    a, b = two()
    for rank, order in ((a, (1, 2)), (b, (2, 1))):
        results = [rank.all_reduce(comm=number, asynchronous=True) for number in order]
        for result in results:
            rank.call("aten.neg.default", result)
    whole = joined(a, b)
    assert not whole.mismatches
    made = {}
    for place, step in enumerate(whole.order):
        for rank, index in step.nodes.items() if isinstance(step, JoinedCall) else [step]:
            made[rank, index] = place
    assert all(made[rank, index] < made[rank, index + 2] for rank in (0, 1) for index in (0, 1))


def test_many_asynchronous_calls_do_not_nest() -> None:
    a, b = two()
    for rank in (a, b):
        x = Var(0)
        for _ in range(3000):
            x = rank.all_reduce(x, asynchronous=True)
            x = rank.call("aten.neg.default", x)
    assert not joined(a, b).mismatches


def test_an_asynchronous_call_that_only_one_rank_makes() -> None:
    a, b = two()
    a.all_reduce(asynchronous=True)
    (trouble,) = joined(a, b).mismatches
    assert "rank 1 never calls it" in trouble.message


def test_messages_of_two_groups_of_the_same_ranks() -> None:
    a, b = two()
    a.call("gg.send", Var(0), 1, 0, (0, 1), outs=0)
    a.call("gg.send", Var(0), 1, 0, (0, 1), outs=0, comm=2)
    b.call("gg.recv", 0, 0, (0, 1), comm=2)
    b.call("gg.recv", 0, 0, (0, 1))
    assert sorted(call.nodes[1] for call in joined(a, b).collectives if call.nodes[0] == 0) == [1]


def test_a_rank_that_reads_what_it_started_on_another_group() -> None:
    """Nobody waits for the first call, and the second reads what it makes."""
    a, b = two()
    for rank, number in ((a, 1), (b, 2)):
        rank.all_reduce(rank.all_reduce(comm=number, asynchronous=True), comm=number)
    (trouble,) = joined(a, b).mismatches
    assert trouble.message.startswith(
        "rank 0 waits in all_reduce over ranks 0, 1 while rank 1 waits in all_reduce over another group"
    )
