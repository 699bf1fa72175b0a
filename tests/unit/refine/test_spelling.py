"""Rows of programs: equal for programs that differ in names and numbers alone, different wherever the prover may tell two calls apart."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from graphguard.ir import Capture, DType, Graph, Leaf, Node, TensorType, Var
from graphguard.ir.graph import Arg, Constant
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.programs import spelt
from graphguard.refine.proving.prove import prove
from tests.unit.refine.stacks import stack

X, Y = Var(0), Var(1)
SQUARE = TensorType((2, 2), "float32")
#: Arguments that are not the same, many of which are equal in Python.
ARGUMENTS: list[Arg] = [
    *(None, 0, 1, False, True, 0.0, -0.0, 1.0, "0", "1", "tensor", "(", "int8", DType("int8"), X, Y),
    *((), (0,), (1,), (False,), (True,), (0.0,), (-0.0,), (1.0,), (None,), ((),), ((1,),), ((True,),), (1, 1), (X,), (Y,)),
    *(("tensor",), ("(",), ("dtype", "int8"), ("bool", 1), ("float", "0x0.0p+0"), ("kwargs",), ("gives", 2)),
]  # fmt: skip


def program(*nodes: Node, **changes: object) -> Capture:
    """A specification of calls on ``x`` and ``y`` that one rank has as well; its outputs are not looked at."""
    made = {out: SQUARE for node in nodes for out in node.outs}
    capture = stack(1, backward=False)
    leaves = (Leaf("x", "input", SQUARE), Leaf("y", "input", SQUARE))
    graph = replace(Graph({X: "x", Y: "y"}, {}, nodes, {X: SQUARE, Y: SQUARE, **made}, {}), **changes)  # type: ignore[arg-type]
    return replace(capture, mesh={"tp": 1}, leaves=leaves, spec=graph, ranks=(graph,), promises=())


def called(*args: Arg, outs: int = 1, first: int = 2, **kwargs: Arg) -> Node:
    return Node("own.call", args, kwargs, tuple(Var(first + index) for index in range(outs)))


def rows(capture: Capture) -> object:
    spelling = spelt(capture, Memo())
    assert spelling is not None
    assert repr(spelling.rows) == repr(eval(repr(spelling.rows)))  # a shelf knows rows by their text
    return spelling.rows


def differ(captures: list[Capture]) -> bool:
    """Whether no two have the same rows, in memory or as text."""
    spellings = [rows(capture) for capture in captures]
    return all(one != other and repr(one) != repr(other) for one, other in combinations(spellings, 2))


def test_arguments_are_told_apart() -> None:
    assert differ([program(called(X, argument)) for argument in ARGUMENTS])


def test_keywords_are_told_apart() -> None:
    assert differ([program(called(X, value=argument)) for argument in ARGUMENTS])
    assert differ([program(called(X, a=1)), program(called(X, b=1)), program(called(X, 1)), program(called(X, "a", 1))])


def test_places_of_tensors_are_told_apart() -> None:
    assert differ([program(called(X, 1)), program(called(1, X)), program(called((X, 1))), program(called((X,), 1))])
    assert differ([program(called(X, "tensor")), program(called("tensor", X))])
    assert differ([program(called(X, Y)), program(called(Y, X)), program(called(X, X)), program(called((X, Y)))])


def test_which_call_reads_and_makes_what_is_told_apart() -> None:
    pairs = [((X, Y), (Y,)), ((X,), (Y, Y)), ((X, Y, Y), ())]
    assert differ([program(called(*one), called(*other, first=3)) for one, other in pairs])
    numbers = [(1, 2), (2, 1), (3, 0)]
    assert differ([program(called(X, outs=a), called(Y, outs=b, first=2 + a)) for a, b in numbers])
    assert differ([program(called(X), called(Var(2), first=3)), program(called(X), called(X, first=3))])


def test_draws_are_told_apart() -> None:
    def drawn(*draws: tuple[str, int] | None) -> Capture:
        return program(*[replace(called(X, first=2 + place), draw=draw) for place, draw in enumerate(draws)])

    one, other = ("seed", 0), ("seed", 1)
    assert differ([drawn(None, None), drawn(one, None), drawn(None, one), drawn(one, one), drawn(one, other)])
    assert rows(drawn(one, other)) == rows(drawn(other, one))


def test_types_are_told_apart() -> None:
    def of(kind: TensorType) -> Capture:
        return program(called(X), types={X: SQUARE, Y: SQUARE, Var(2): kind})

    kinds = [SQUARE, TensorType((2, 2), "bfloat16"), TensorType((4,), "float32"), TensorType((1, 4), "float32")]
    assert differ([of(kind) for kind in kinds])


def test_leaves_and_literals_are_told_apart() -> None:
    capture = program(called(X))
    assert capture.spec is not None
    literals = [Constant(SQUARE, digest, None) for digest in "ab"]
    constants = [program(called(X), inputs={Y: "y"}, constants={X: literal}) for literal in literals]
    x, y = capture.leaves
    leaves = [(replace(x, low=0, high=high), y) for high in (2, 3)]
    ranges = [replace(capture, leaves=mine) for mine in leaves]
    assert differ([capture, *constants, *ranges, program(called(X), inputs={X: "y", Y: "x"})])


def test_numbers_of_tensors_do_not_matter() -> None:
    one = program(called(X, 1), called(Var(2), Y, first=3))
    other = program(called(X, 1, first=7), called(Var(7), Y, first=5))
    assert rows(one) == rows(other)


def test_ranks_are_told_apart_by_what_they_say() -> None:
    """One rank of a stack says another argument than its twin: no stage of the one is taken for the other's."""
    memo = Memo()
    assert prove(stack(3), memo).outcome.proved
    for argument in (True, 1.0, -1, (1,)):
        for rank in (0, 1):
            capture = with_argument(stack(3), rank, argument)
            assert prove(capture, memo, effort="hasty").evaluated > 0


def with_argument(capture: Capture, rank: int, argument: Arg) -> Capture:
    """One more argument of the relu of a rank's second layer."""
    graph = capture.ranks[rank]
    place = [index for index, node in enumerate(graph.nodes) if node.op == "aten.relu.default"][1]
    node = replace(graph.nodes[place], args=(*graph.nodes[place].args, argument))
    ranks = list(capture.ranks)
    ranks[rank] = replace(graph, nodes=(*graph.nodes[:place], node, *graph.nodes[place + 1 :]))
    return replace(capture, ranks=tuple(ranks))
