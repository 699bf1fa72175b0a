"""Layouts in DTensor's words."""

from __future__ import annotations

import pytest
from graphguard_server.layouts import layout_of


@pytest.mark.parametrize(
    ("mesh", "texts", "layout"),
    [
        ({"tp": 2}, ["gelu[:, :, 0:8]", "gelu[:, :, 8:16]"], "Shard(2) over tp"),
        ({"tp": 2}, ["x", "x"], "Replicate"),
        ({"tp": 2}, ["partial sum of down.mm", "partial sum of down.mm"], "Partial"),
        ({"tp": 2}, ["2 * partial sum of h", "2 * partial sum of h"], "2 * Partial"),
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
            "Partial, Shard(0) over dp",
        ),
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
