"""Graphs with holes: what two ranks share, and what fills the holes of a third."""

import pytest

from graphguard.ir.graph import Graph, Node, TensorType, Var
from graphguard.trace.classes.predictions import Class, Mapped
from graphguard.trace.classes.templates import Template, UnlikeError

RANKS = 6
LEAF, PARTS, ZERO = Var(0), tuple(Var(1 + at) for at in range(RANKS)), 20


def program(rank: int, factor: float | None = None, peer: int | None = None, name: str | None = None) -> Graph:
    """A slice, a part of a chunk, a list with one's own tensor among others, a shift."""
    types = {LEAF: TensorType((12, 4), "float32")}
    types.update(dict.fromkeys(PARTS, TensorType((2, 4), "float32")))
    rows, others, own, joined, sent = (
        Var(10),
        tuple(Var(ZERO + at) for at in range(RANKS - 1)),
        Var(11),
        Var(12),
        Var(13),
    )
    types.update(dict.fromkeys((rows, own, sent, *others), TensorType((2, 4), "float32")))
    types[joined] = TensorType((12, 4), "float32")
    group = tuple(range(RANKS))
    listed = (*others[:rank], own, *others[rank:])
    nodes = (
        Node("aten.slice.Tensor", (LEAF, 0, 2 * rank, 2 * rank + 2, 1), {}, (rows,)),
        Node("aten.split.Tensor", (LEAF, 2), {}, PARTS),
        Node("aten.mul.Tensor", (PARTS[rank], 0.5 * rank if factor is None else factor), {}, (own,)),
        *(Node("aten.zeros.default", ((2, 4),), {}, (other,)) for other in others),
        Node("aten.cat.default", (listed, 0), {}, (joined,)),
        Node(
            "gg.send", (rows, (rank + 1) % RANKS if peer is None else peer, 0, group), {}, (), module=f"layers.{rank}"
        ),
    )
    return Graph({LEAF: name or f"experts.{rank}.weight"}, {}, nodes, types, {f"grad({rank})": joined})


MESH = Mapped((RANKS,))


def of(*ranks: int) -> Class:
    return Class({rank: Template.of(program(rank)) for rank in ranks}, MESH)


def test_the_others_follow() -> None:
    found = of(0, 1, 2, 5)
    for rank in range(RANKS):
        assert found.graph(rank) == (program(rank), ())
        assert found.foretells(rank, Template.of(program(rank)))


@pytest.mark.parametrize(
    "unlike", [{"factor": 7.0}, {"peer": 0}, {"name": "experts.weight"}, {"name": "experts.3.bias"}]
)
def test_a_rank_that_is_unlike_is_not_foretold(unlike: dict[str, object]) -> None:
    assert not of(0, 1, 2, 5).foretells(3, Template.of(program(3, **unlike)))  # type: ignore[arg-type]


@pytest.mark.parametrize("unlike", [{"factor": 7.0}, {"peer": 0}, {"name": "experts.weight"}])
def test_what_does_not_fit_is_refused(unlike: dict[str, object]) -> None:
    templates = {rank: Template.of(program(rank)) for rank in (0, 1, 2, 5)}
    with pytest.raises(UnlikeError):
        Class({**templates, 3: Template.of(program(3, **unlike))}, MESH)  # type: ignore[arg-type]


def test_too_few_ranks_tell_nothing() -> None:
    with pytest.raises(UnlikeError):
        of(0, 5)
