"""What a hover says of tensors: layouts that all ranks share, by the user's expressions."""

from __future__ import annotations

from dataclasses import replace

from graphguard_server.features.language.tensors import Line, lines_of
from graphguard_server.texts.places import Operand, Place

from graphguard.ir.spans import Span

HERE = Span("m.py", 2, 5, 2, 20)
UP = Span("m.py", 1, 9, 1, 18)
TP = {"tp": 2}


def of_rank(text: str, rank: int, *operands: Operand, phase: str = "forward") -> Place:
    return Place(HERE, "implementation", "aten.mm.default", (2, 8), text, (rank,), phase, operands=operands)


def called(span: Span) -> str:
    return {UP: "h"}.get(span, "")


def test_ranks_that_hold_the_parts_of_a_tensor_are_one_layout() -> None:
    places = [
        of_rank("mm[:, 0:8]", 0, Operand("x", "x"), Operand("w", "up.weight[0:8, :]", span=UP)),
        of_rank("mm[:, 8:16]", 1, Operand("x", "x"), Operand("w", "up.weight[8:16, :]", span=UP)),
    ]
    made_of = ("x: Replicate", "h: Shard(0) over tp")
    assert list(lines_of(places, TP, called)) == [Line("every rank", "2×8", "Shard(1) over tp", made_of)]


def test_ranks_that_hold_no_layout_are_told_one_by_one() -> None:
    places = [of_rank("mm[:, 0:8]", 0), of_rank("not on the relation to the specification", 1)]
    assert [(line.whose, line.words) for line in lines_of(places, TP, called)] == [
        ("rank 0", "mm[:, 0:8]"),
        ("rank 1", "not on the relation to the specification"),
    ]


def test_what_ranks_read_is_left_out_where_they_read_different_things() -> None:
    places = [of_rank("mm", 0, Operand("x", "x")), of_rank("mm", 1, Operand("z", "z"))]
    (line,) = lines_of(places, TP, called)
    assert (line.words, line.made_of) == ("Replicate", ())


def test_one_program_for_both_is_told_once_with_both_shapes() -> None:
    spec = Place(
        HERE, "specification", "aten.mm.default", (2, 16), "concat(mm@0, mm@1; dim=1)", layout="Shard(1) over tp"
    )
    parts = [of_rank("mm[:, 0:8]", 0), of_rank("mm[:, 8:16]", 1)]
    assert list(lines_of([spec, *parts], TP, called)) == [Line("", "2×16 on each rank 2×8", "Shard(1) over tp")]
    whole = [of_rank("partial sum of mm", 0), of_rank("partial sum of mm", 1)]
    told = [(line.whose, line.words) for line in lines_of([spec, *whole], TP, called)]
    assert told == [("specification", "Shard(1) over tp"), ("every rank", "Partial(sum) over tp")]


def test_a_layout_that_the_ranks_have_together_says_more_than_their_texts() -> None:
    mesh = {"dp": 2, "tp": 2}
    texts = [of_rank("partial sum of mm", rank) for rank in range(4)]
    assert [line.words for line in lines_of(texts, mesh, called)] == ["Partial(sum)"]
    known = [replace(place, layout="Partial(sum) over tp") for place in texts]
    assert [line.words for line in lines_of(known, mesh, called)] == ["Partial(sum) over tp"]


def test_gradients_follow_and_say_so() -> None:
    places = [
        of_rank("partial sum of g", 0, phase="backward"),
        of_rank("partial sum of g", 1, phase="backward"),
        of_rank("mm", 0),
        of_rank("mm", 1),
    ]
    told = [(line.whose, line.words) for line in lines_of(places, TP, called)]
    assert told == [("every rank", "Replicate"), ("gradient, every rank", "Partial(sum) over tp")]


def test_a_relation_that_is_no_layout_stays_a_formula() -> None:
    spec = Place(HERE, "specification", "aten.mm.default", (2, 16), "concat(mm@1, mm@0; dim=1)")
    assert [line.words for line in lines_of([spec], TP, called)] == ["concat(mm@1, mm@0; dim=1)"]
