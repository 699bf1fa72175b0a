"""What only all ranks together have, against each rank's own numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphguard.refine.digits.algebra import Stacked
from graphguard.refine.digits.moves import Numbers, at_place, exchanged, gathered, put, scattered, total, window
from graphguard.refine.digits.stacks import Stack
from graphguard.refine.evaluation.evaluate import OneEach
from graphguard.relations.algebra import Unsupported
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation

Array = np.ndarray[Any, Any]
TRIALS = 32


class Job:
    """Ranks on a mesh of a few axes, with tensors that differ along some of them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sizes = tuple(self.chance.choice([2, 3, 4]) for _ in range(self.chance.choice([1, 2, 3])))
        self.algebra = Stacked(NormalForm(), self.sizes, OneEach())
        self.digits = sorted(self.chance.sample(range(len(self.sizes)), self.chance.randint(1, len(self.sizes))))
        self.shape = tuple(self.chance.choice([2, 3, 6, 8, 12]) for _ in range(self.chance.choice([1, 2])))
        self._leaves: dict[str, Array] = {}

    def tensor(self, shape: tuple[int, ...]) -> tuple[Stack, Array]:
        lead = tuple(size if self.chance.random() < 0.5 else 1 for size in self.sizes)
        name = f"x{len(self._leaves)}"
        self._leaves[name] = np.random.default_rng(len(self._leaves)).random(lead + shape)
        leaf = self.algebra.normal.leaf(name, lead + shape, "float")
        whole = (*self.sizes, *shape)
        return self.algebra.of(self.algebra.normal.expand(leaf, whole)), np.broadcast_to(self._leaves[name], whole)

    def places(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.sizes))

    def group(self, place: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The ranks that differ from one along the chosen digits alone, in order."""
        rows = itertools.product(*(range(self.sizes[digit]) for digit in self.digits))
        return [
            tuple(dict(zip(self.digits, row, strict=True)).get(d, at) for d, at in enumerate(place)) for row in rows
        ]

    def starts(self) -> Numbers:
        """Affine in the coordinates, side by side or not, or of no form."""
        steps = [self.chance.choice([0, 0, 1, 2, 3, 4, 6, -1]) for _ in self.sizes]
        if self.chance.random() < 0.5:
            steps, step = [0] * len(self.sizes), self.chance.choice([1, 2, 3])
            for digit in self.chance.sample(self.digits, len(self.digits)):
                steps[digit], step = step, step * self.sizes[digit]
        base = self.chance.randint(0, 2)
        found = [base + sum(k * at for k, at in zip(steps, place, strict=True)) for place in self.places()]
        return Numbers.of(
            found if self.chance.random() < 0.9 else [self.chance.randint(0, 3) for _ in found], self.sizes
        )

    def assert_is(self, found: Stack, wanted: dict[tuple[int, ...], Array]) -> None:
        tables = {kernel.id: table for kernel, table in self.algebra.normal.universe.tables}
        value = Denotation(self._leaves, None, tables).value(found.value)
        for place, own in wanted.items():
            np.testing.assert_allclose(value[place], own)


@pytest.mark.parametrize("seed", range(TRIALS))
def test_windows(seed: int) -> None:
    job = Job(seed)
    x, numbers = job.tensor(job.shape)
    dim, length, starts = job.chance.randrange(len(job.shape)), job.chance.randint(1, 3), job.starts()
    last = int(starts.table.max()) + length
    try:
        found = window(job.algebra, x, dim, starts, length)
    except Unsupported:
        assert last > job.shape[dim] or starts.table.min() < 0
        return
    rows = {place: range(starts.table[place], starts.table[place] + length) for place in job.places()}
    job.assert_is(found, {place: np.take(numbers[place], row, axis=dim) for place, row in rows.items()})


@pytest.mark.parametrize("seed", range(TRIALS))
def test_gradients_of_windows(seed: int) -> None:
    job = Job(seed)
    x, numbers = job.tensor(job.shape)
    dim, starts = job.chance.randrange(len(job.shape)), job.starts()
    extent = job.shape[dim] + job.chance.randint(0, 12)
    try:
        found = put(job.algebra, x, dim, starts, extent)
    except Unsupported:
        assert int(starts.table.max()) + job.shape[dim] > extent or starts.table.min() < 0
        return
    wanted = {}
    for place in job.places():
        first = starts.table[place]
        widths = [(first, extent - first - job.shape[dim]) if d == dim else (0, 0) for d in range(len(job.shape))]
        wanted[place] = np.pad(numbers[place], widths)
    job.assert_is(found, wanted)


@pytest.mark.parametrize("how", ["sum", "avg", "max", "min"])
@pytest.mark.parametrize("seed", range(TRIALS // 4))
def test_totals(seed: int, how: str) -> None:
    job = Job(seed)
    x, numbers = job.tensor(job.shape)
    act = {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min}[how]
    found = total(job.algebra, x, job.digits, how)
    job.assert_is(found, {place: act([numbers[at] for at in job.group(place)], axis=0) for place in job.places()})


@pytest.mark.parametrize("seed", range(TRIALS))
def test_exchanges(seed: int) -> None:
    job = Job(seed)
    x, numbers = job.tensor(job.shape)
    gained = {place: np.stack([numbers[at] for at in job.group(place)]) for place in job.places()}
    job.assert_is(gathered(job.algebra, x, job.digits), gained)
    members = math.prod(job.sizes[digit] for digit in job.digits)
    xs, lists = job.tensor((members, *job.shape))
    sent = {
        place: np.stack([lists[at][job.group(place).index(place)] for at in job.group(place)]) for place in job.places()
    }
    job.assert_is(exchanged(job.algebra, xs, job.digits), sent)
    job.assert_is(scattered(job.algebra, xs, job.digits, "sum"), {at: each.sum(0) for at, each in sent.items()})
    job.assert_is(scattered(job.algebra, xs, job.digits, "avg"), {at: each.mean(0) for at, each in sent.items()})
    root = {digit: job.chance.randrange(job.sizes[digit]) for digit in job.digits}
    given = {place: numbers[tuple(root.get(d, at) for d, at in enumerate(place))] for place in job.places()}
    job.assert_is(at_place(job.algebra, x, root), given)
