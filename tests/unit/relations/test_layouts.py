"""Layouts in DTensor's words."""

from __future__ import annotations

from fractions import Fraction

import pytest

from graphguard.ir import Placement
from graphguard.relations.layouts import layout, layout_of
from graphguard.relations.relation import Concat, Expression, Held, Relation, Same, Sliced


@pytest.mark.parametrize(
    ("mesh", "texts", "layout"),
    [
        ({"tp": 2}, ["gelu[:, :, 0:8]", "gelu[:, :, 8:16]"], "Shard(2) over tp"),
        ({"tp": 2}, ["x", "x"], "Replicate"),
        ({"tp": 2}, ["partial sum of down.mm", "partial sum of down.mm"], "Partial(sum) over tp"),
        ({"tp": 2}, ["2 * partial sum of h", "2 * partial sum of h"], "2 * Partial(sum) over tp"),
        ({"dp": 2, "tp": 2}, ["h[0:1]", "h[0:1]", "h[1:2]", "h[1:2]"], "Shard(0) over dp"),
        ({"dp": 2, "tp": 2}, ["h[0:1]", "h[1:2]", "h[0:1]", "h[1:2]"], "Shard(0) over tp"),
        (
            {"dp": 2, "tp": 2},
            ["h[0:1, 0:3]", "h[0:1, 3:6]", "h[1:2, 0:3]", "h[1:2, 3:6]"],
            "Shard(0) over dp, Shard(1) over tp",
        ),
        ({"dp": 2, "tp": 2}, ["h[0:1]", "h[1:2]", "h[2:3]", "h[3:4]"], "Shard(0) over dp, tp"),
        (
            {"dp": 2, "tp": 2},
            ["partial sum of h[0:1]"] * 2 + ["partial sum of h[1:2]"] * 2,
            "Partial(sum) over tp, Shard(0) over dp",
        ),
        ({"dp": 2, "tp": 2}, ["partial sum of h"] * 4, "Partial(sum)"),
        ({"tp": 2}, ["h[0:4]", "h[0:4]"], ""),  # a cut is no shard
        ({"tp": 2}, ["h", "g"], ""),
        ({"tp": 2}, ["h"], ""),
        ({"tp": 2}, ["rearrangement of h", "rearrangement of h"], ""),
        ({"tp": 2}, ["not on the relation to the specification"] * 2, ""),
        ({"tp": 2}, ["sum(h@0, h@1)"] * 2, ""),
        ({}, ["h"], "Replicate"),
    ],
)
def test_layout(mesh: dict[str, int], texts: list[str], layout: str) -> None:
    assert layout_of(dict(enumerate(texts)), mesh) == layout


H0, H1 = Held("h", 0), Held("h", 1)


@pytest.mark.parametrize(
    ("expression", "placements", "words"),
    [
        (Same((H0, H1)), {"tp": Placement("replicate")}, "Replicate"),
        (Concat((H0, H1), 1), {"dp": Placement("replicate"), "tp": Placement("shard", 1)}, "Shard(1) over tp"),
        (
            Concat((H0, H1), 0),
            {"dp": Placement("shard", 0), "tp": Placement("partial")},
            "Shard(0) over dp, Partial(sum) over tp",
        ),
        (Held("h", 3), None, "whole on rank 3"),
        (Same((H0, H1)), None, "the same on ranks 0, 1"),
        (Sliced(H1, ((0, 2),)), None, "part of rank 1"),
        (Concat((H0, Sliced(H1, ((0, 2),))), 0), None, "made of ranks 0, 1"),
    ],
)
def test_layout_of_a_relation(expression: Expression, placements: dict[str, Placement] | None, words: str) -> None:
    assert layout(Relation("h", expression, placements)) == words
    assert layout(Relation("h", expression, placements, Fraction(1, 2))) == f"1/2 * {words}"
