"""Rows that are cut by sizes and joined in another order are those that numpy cuts and joins, whatever was seen of keys and slots."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphguard.refine.ragged.orders import Names, Order, Orders, Rows
from graphguard.refine.ragged.sizes import Cutting
from graphguard.relations.algebra import Unsupported
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe

SLOTS, VALUES = 6, 3


def denoted(orders: Orders, rows: Rows) -> list[float]:
    """The elements in order, as :class:`Rows` says."""
    data, valid = (orders.algebra.known(value) for value in (rows.data, rows.order.valid))
    assert data is not None
    assert valid is not None
    columns = []
    for key in rows.order.keys:
        hot = orders.algebra.known(key.hot) if isinstance(key, Names) else None
        assert hot is not None
        columns.append(hot.argmax(1))
    order = np.lexsort([np.arange(rows.order.slots), *columns[::-1]])
    return [float(data[slot]) for slot in order if valid[slot]]


def some_rows(orders: Orders, draw: np.random.Generator) -> Rows:
    algebra = orders.algebra
    hots = [np.eye(VALUES)[draw.integers(0, VALUES, SLOTS)] for _ in range(draw.integers(0, 3))]
    if hots and draw.integers(0, 2):
        hots = [np.eye(VALUES)[np.sort(hots[0].argmax(1))]]  # slots that are in order already
    keys = tuple(Names(algebra.literal(hot), tuple(range(VALUES))) for hot in hots)
    valid = algebra.literal(draw.integers(0, 2, SLOTS).astype(float))
    return Rows(algebra.literal(draw.permutation(SLOTS).astype(float) + 1), Order(valid, keys))


@pytest.mark.parametrize("seed", range(100))
def test_cut_and_joined(seed: int) -> None:
    draw = np.random.default_rng(seed)
    orders = Orders(NormalForm(Universe()))
    cutting = Cutting(orders)
    rows = some_rows(orders, draw)
    whole = denoted(orders, rows)
    assert denoted(orders, orders.compacted(rows)) == whole
    ends = sorted(draw.integers(0, len(whole) + 1, draw.integers(0, 3)).tolist())
    pieces = [whole[low:high] for low, high in itertools.pairwise([0, *ends, len(whole)])]
    try:
        parts = cutting.split(rows, [orders.algebra.literal(np.asarray(float(len(piece)))) for piece in pieces])
    except Unsupported:
        assert whole == [], "every number is known, so it is seen which rows a size counts"
        return
    assert [denoted(orders, part) for part in parts] == pieces
    mixed = draw.permutation(len(parts))
    together = cutting.joined([parts[at] for at in mixed])
    assert denoted(orders, together) == [element for at in mixed for element in pieces[at]]
