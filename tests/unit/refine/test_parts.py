"""The words for a part of a tensor: what they say is what the reference reads, element by element."""

from __future__ import annotations

import random
import re
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphguard.refine.found.parts import part_text
from graphguard.relations.terms.kernels import Ref
from graphguard.relations.terms.windows import split, whole


def kernel(*shape: int) -> Any:
    """What references of windows look at of a kernel that sums nothing."""
    return SimpleNamespace(shape=shape, reduced=())


def elements(ref: Ref) -> np.ndarray[Any, Any]:
    """The number of the kernel's element that each element of the tensor is."""
    shape = ref[0].shape
    weights = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    at = np.asarray(sum(offset * weight for offset, weight in zip(ref[1], weights, strict=True)))
    for digits in ref[2]:
        steps = np.zeros(1, dtype=int)
        for axis, stride, size in digits:
            steps = np.add.outer(steps, np.arange(size) * stride * (weights[axis] if axis >= 0 else 0)).reshape(-1)
        at = np.add.outer(at, steps)
    return at


def sliced(ref: Ref, dim: int, low: int, high: int, step: int = 1) -> Ref:
    """A slice of a dim of one digit."""
    ((axis, stride, _),) = ref[2][dim]
    count = len(range(low, high, step))
    digits = ((axis, stride * step, count),) if count > 1 else ()
    offsets = tuple(at + low * stride * (number == axis) for number, at in enumerate(ref[1]))
    return ref[0], offsets, (*ref[2][:dim], digits, *ref[2][dim + 1 :]), ref[3]


def reshaped(ref: Ref, *shape: int) -> Ref:
    """The same elements in the same order in dims of these extents."""
    dims = split(tuple(digit for digits in ref[2] for digit in digits), list(shape))
    assert dims is not None
    return ref[0], ref[1], tuple(dims), ref[3]


def permuted(ref: Ref, *order: int) -> Ref:
    return ref[0], ref[1], tuple(ref[2][dim] for dim in order), ref[3]


Q = whole(kernel(2, 12, 5))
HEADS = reshaped(Q, 2, 4, 3, 5)


@pytest.mark.parametrize(
    ("ref", "target", "words"),
    [
        (Q, Q, "q"),
        (sliced(Q, 1, 3, 6), Q, "q[:, 3:6, :]"),
        (sliced(Q, 1, 1, 12, 2), Q, "q[:, 1:12:2, :]"),
        (permuted(Q, 1, 0, 2), Q, "rearrangement of q"),
        (reshaped(sliced(HEADS, 1, 2, 4), 4, 3, 5), HEADS, "rearrangement of q[:, 2:4, :, :]"),
        (reshaped(sliced(HEADS, 1, 2, 4), 4, 3, 5), Q, "rearrangement of q[:, 6:12, :]"),
        (sliced(Q, 1, 3, 9), HEADS, "rearrangement of q[:, 1:3, :, :]"),
        (sliced(Q, 1, 2, 7), HEADS, "part of q (50 of 120 elements)"),
        (sliced(HEADS, 2, 0, 2), Q, "part of q (80 of 120 elements)"),
        (sliced(HEADS, 2, 1, 2), Q, "rearrangement of q[:, 1:11:3, :]"),
    ],
)
def test_words(ref: Ref, target: Ref, words: str) -> None:
    assert part_text("q", ref, target) == words


def test_the_words_name_the_elements_that_are_read() -> None:
    """Slices of reshaped and permuted tensors, described by other reshapes: taken by the words, the whole gives the same elements, and in the same order where no rearrangement is said."""
    random.seed(7)
    told = {"slice": 0, "rearrangement": 0, "part": 0}
    shapes = [(2, 12, 5), (2, 4, 3, 5), (8, 3, 5), (24, 5), (2, 2, 6, 5), (120,)]
    for _ in range(3000):
        root = whole(kernel(*random.choice(shapes[:4:3])))
        target, ref = (reshaped(root, *random.choice(shapes)) for _ in range(2))
        for _ in range(random.randint(0, 2)):
            dim = random.randrange(len(ref[2]))
            if len(ref[2][dim]) == 1:
                size = ref[2][dim][0][2]
                low = random.randrange(size)
                ref = sliced(ref, dim, low, random.randint(low + 1, size), random.randint(1, 3))
        if random.random() < 0.3:
            ref = permuted(ref, *random.sample(range(len(ref[2])), len(ref[2])))
        text = part_text("q", ref, target)
        whole_q, read = elements(target), elements(ref)
        if text.startswith("part of "):
            told["part"] += 1
            assert text == f"part of q ({read.size} of {whole_q.size} elements)"
            continue
        found = re.fullmatch(r"(rearrangement of )?q(?:\[(.*)\])?", text)
        assert found is not None
        ranges = [slice(*(int(n) if n else None for n in each.split(":"))) for each in (found[2] or ":").split(", ")]
        taken = whole_q[tuple(ranges)]
        if found[1]:
            told["rearrangement"] += 1
            assert sorted(taken.flat) == sorted(read.flat)
        else:
            told["slice"] += 1
            assert taken.tolist() == read.tolist()
    assert min(told.values()) > 100
