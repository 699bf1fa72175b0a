"""Orders of symmetric labels: the least spelling is the same whatever the labels are called, and found in little time."""

import random
import time

import pytest

from graphguard.relations.terms.symmetry import orders

#: Eight factors over 19 labels, with 663,552 permutations of labels that are met alike: those of a product of maxima of a reduced tensor with itself.
FACTORS = (
    ((0, 1, 1), (1, 0, 1), (1, 6, 2), (2, 4, 1), (2, 8, 2)),
    ((0, 1, 1), (1, 0, 2), (1, 4, 1), (2, 6, 1), (2, 8, 2)),
    ((0, 2, 1), (1, 3, 1), (1, 7, 2), (2, 5, 1), (2, 9, 2)),
    ((0, 2, 1), (1, 3, 2), (1, 5, 1), (2, 7, 1), (2, 9, 2)),
    ((0, 10, 1), (1, 0, 1), (1, 15, 2), (2, 13, 1), (2, 17, 2)),
    ((0, 10, 1), (1, 0, 2), (1, 13, 1), (2, 15, 1), (2, 17, 2)),
    ((0, 11, 1), (1, 12, 1), (1, 16, 2), (2, 14, 1), (2, 18, 2)),
    ((0, 11, 1), (1, 12, 2), (1, 14, 1), (2, 16, 1), (2, 18, 2)),
)
CELLS = ([0], [1, 2, 10, 11], [3, 12], [4, 5, 13, 14], [6, 7, 15, 16], [8, 9, 17, 18])


def spelt(order, factors):
    number = {label: index for index, label in enumerate(order)}
    return tuple(sorted(tuple(sorted((axis, number[label], stride) for axis, label, stride in one)) for one in factors))


def least(cells, factors):
    return min(
        spelt(order, factors) for order in orders([list(cell) for cell in cells], [("f", one) for one in factors])
    )


def renamed(cells, factors, seed):
    rng = random.Random(seed)
    labels = [label for cell in cells for label in cell]
    name = dict(zip(labels, rng.sample(labels, len(labels)), strict=True))
    cells = [rng.sample([name[label] for label in cell], len(cell)) for cell in cells]
    factors = [tuple((axis, name[label], stride) for axis, label, stride in one) for one in factors]
    return cells, rng.sample(factors, len(factors))


@pytest.mark.parametrize("seed", range(20))
def test_the_names_of_labels_do_not_count(seed):
    assert least(*renamed(CELLS, FACTORS, seed)) == least(CELLS, FACTORS)


def test_other_factors_have_another_spelling():
    changed = (*FACTORS[:-1], ((0, 11, 1), (1, 12, 2), (1, 14, 1), (2, 16, 1), (2, 17, 2)))
    assert least(CELLS, changed) != least(CELLS, FACTORS)


def test_many_labels_that_nothing_tells_apart_end():
    start = time.perf_counter()
    tried = list(orders([list(range(30))], [("f", ((0, label, 1),)) for label in range(30)]))
    assert len(tried) == 500
    assert time.perf_counter() - start < 30
