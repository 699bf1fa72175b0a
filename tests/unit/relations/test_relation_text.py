"""Relations as text that a person reads at a glance."""

from __future__ import annotations

from fractions import Fraction

from graphguard.ir import Placement
from graphguard.relations.relation import Concat, Held, Relation, Same, Sliced, Sum

H = [Held("h", rank) for rank in range(16)]


def test_small_meshes_show_every_tensor() -> None:
    assert str(Relation("h", Concat((H[0], H[1]), 2))) == "concat(h@0, h@1; dim=2)"
    assert str(Relation("h", Same((H[0], H[1])))) == "h@0 = h@1"
    assert str(Relation("h", Sum((H[0], H[1])))) == "sum(h@0, h@1)"
    assert str(Relation("h", Sliced(H[1], ((0, 2), None)))) == "h@1[0:2, :]"
    assert (
        str(Relation("h", Concat((Same((H[0], H[1])), Same((H[2], H[3]))), 0)))
        == "concat((h@0 = h@1), (h@2 = h@3); dim=0)"
    )


def test_factors_are_named() -> None:
    assert str(Relation("h", Same((H[0], H[1])), factor=Fraction(1, 2))) == "1/2 * (h@0 = h@1)"


def test_large_meshes_are_described_by_axis() -> None:
    placements = {"dp": Placement("replicate"), "tp": Placement("shard", 2)}
    assert str(Relation("h", Concat(tuple(H), 2), placements)) == "h: Shard(2) over tp"
