"""What guesses ask of the sites around one."""

from graphguard.ir import Capture, CheckRef, Node, Span
from graphguard.ops import aten, gg
from graphguard.repair.graph.neighbours import Neighbours
from graphguard.repair.graph.slices import Site

CHECK = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))


def site(number: int, op: str, *operands: int) -> Site:
    return Site(number, {}, Node(op, (), {}, ()), {}, "off", None, operands)


def test_ranks_that_read_of_each_other_are_walked_once() -> None:
    ring = [
        site(0, aten.neg.default, 2),
        site(1, gg.all_gather, 0),
        site(2, aten.view.default, 1),
        site(3, aten.mm.default, 2),
    ]
    around = Neighbours.of(Capture(CHECK, {}, (), None, (), ()), {each.number: each for each in ring})
    passed = {aten.neg.default, gg.all_gather, aten.view.default}
    assert [each.number for each in around.through([ring[0]], around.readers_of, passed)] == [0, 1, 2, 3]
    assert [each.number for each in around.through([ring[3]], around.operands, passed)] == [3]
