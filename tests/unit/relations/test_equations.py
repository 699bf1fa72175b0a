"""Equations on positions: parts of a convolution, cut anywhere, add up to the whole, and denote what numpy computes."""

from fractions import Fraction

import numpy as np
import pytest

from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.layers.convolution import reach

LENGTH = 12


def convolved(a: NormalForm, x: NormalValue, weight: NormalValue, first: int, last: int, stride: int) -> NormalValue:
    """Outputs first to last of a convolution padded by 1, of the inputs that they reach: those outside are zeros that are joined on."""
    kernel = weight.shape[0]
    low, high = first * stride - 1, (last - 1) * stride + kernel - 1
    parts = [a.slice(x, 0, max(low, 0), min(high, LENGTH))]
    if low < 0:
        parts.insert(0, a.full((-low,), Fraction(0), "float"))
    if high > LENGTH:
        parts.append(a.full((high - LENGTH,), Fraction(0), "float"))
    inside = a.concat(parts, 0)
    places = reach(a, last - first, kernel, high - low, stride, 0, 1)
    return a.contract([(inside, "h"), (weight, "k"), (places, "ykh")], "y")


def outputs(kernel: int, stride: int) -> int:
    return (LENGTH + 2 - kernel) // stride + 1


@pytest.mark.parametrize(
    ("kernel", "stride", "parts"), [(3, 1, 1), (3, 1, 4), (4, 1, 3), (5, 1, 4), (3, 2, 3), (5, 3, 2)]
)
@pytest.mark.parametrize("by_weight", [False, True])
def test_parts_add_up(kernel: int, stride: int, parts: int, by_weight: bool) -> None:
    a = NormalForm()
    x, weight = a.leaf("x", (LENGTH,), "float"), a.leaf("w", (kernel,), "float")
    count = outputs(kernel, stride)
    places = reach(a, count, kernel, LENGTH, stride, 1, 1)
    scale = a.leaf("g", (count,), "float")

    def total(v: NormalValue, of: NormalValue) -> NormalValue:
        return a.sum(a.multiply(v, of), (0,)) if by_weight else a.sum(v, (0,))

    whole = total(a.contract([(x, "h"), (weight, "k"), (places, "ykh")], "y"), scale)
    a.universe.specifying = False
    cuts = np.array_split(np.arange(count), parts)
    spans = [(int(cut[0]), int(cut[-1]) + 1) for cut in cuts]
    sums = [total(convolved(a, x, weight, *span, stride), a.slice(scale, 0, *span)) for span in spans]
    assert a.add(sums).pieces == whole.pieces
    if len(spans) > 1:
        assert a.add(sums[1:]).pieces != whole.pieces


@pytest.mark.parametrize("seed", range(20))
def test_sums_denote_what_numpy_computes(seed: int) -> None:
    draw = np.random.default_rng(seed)
    kernel, stride = int(draw.integers(2, 6)), int(draw.integers(1, 4))
    data, taps = draw.normal(size=LENGTH), draw.normal(size=kernel)
    a = NormalForm()
    x, weight = a.leaf("x", (LENGTH,), "float"), a.leaf("w", (kernel,), "float")
    count = outputs(kernel, stride)
    chosen = sorted(draw.choice(count, size=min(count, 3), replace=False))
    sums = [a.sum(convolved(a, x, weight, int(i), int(i) + 1, stride), (0,)) for i in chosen]
    padded = np.pad(data, (1, kernel + stride))
    expected = sum(padded[i * stride : i * stride + kernel] @ taps for i in chosen)
    assert Denotation({"x": data, "w": taps}).value(a.add(sums)) == pytest.approx(expected)
