"""Tensors of one fused projection that are the same function of it: kernels of the specification meet each other, too."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe

TOKENS, GROUPS, HEADS, DIM = 3, 2, 2, 4
WIDTH = (HEADS + 2) * DIM  # of a group: its queries, its key, its value


def turned(a: Any, x: Any, cos: Any, sin: Any) -> Any:
    """A rotation in the plane of the halves of the last dim."""
    half = DIM // 2
    other = a.concat([a.scale(a.slice(x, 2, half, DIM), Fraction(-1)), a.slice(x, 2, 0, half)], 2)
    tables = (a.expand(a.reshape(t, (TOKENS, 1, DIM)), x.shape) for t in (cos, sin))
    return a.add([a.multiply(part, table) for part, table in zip((x, other), tables, strict=True)])


def scores(a: Any, fused: Any, tables: tuple[Any, Any], key_first: bool) -> Any:
    """Scores of every query head with the key of its group: (heads, tokens, tokens)."""
    groups = fused.shape[1] // WIDTH
    heads = groups * HEADS
    fused = a.reshape(fused, (TOKENS, groups, WIDTH))
    query = a.reshape(a.slice(fused, 2, 0, HEADS * DIM), (TOKENS, heads, DIM))
    key = a.slice(fused, 2, HEADS * DIM, HEADS * DIM + DIM)
    if key_first:
        key, query = turned(a, key, *tables), turned(a, query, *tables)
    else:
        query, key = turned(a, query, *tables), turned(a, key, *tables)
    key = a.expand(a.reshape(key, (TOKENS, groups, 1, DIM)), (TOKENS, groups, HEADS, DIM))
    return a.contract([(query, "qhd"), (a.reshape(key, (TOKENS, heads, DIM)), "khd")], "hqk")


@pytest.mark.parametrize("key_first", [False, True])
def test_one_group_a_rank(key_first: bool) -> None:
    """A rank's only key head has lost its dim: it could be a window of what queries or of what keys were made of."""
    universe = Universe()
    a = NormalForm(universe)
    fused = a.leaf("fused", (TOKENS, GROUPS * WIDTH), "float")
    tables = (a.leaf("cos", (TOKENS, DIM), "float"), a.leaf("sin", (TOKENS, DIM), "float"))
    whole = scores(a, fused, tables, key_first)
    universe.specifying = False
    parts = [scores(a, a.slice(fused, 1, g * WIDTH, (g + 1) * WIDTH), tables, key_first) for g in range(GROUPS)]
    assert equal(universe, a.concat(parts, 0), whole)
    assert not equal(universe, a.concat(parts[::-1], 0), whole)
