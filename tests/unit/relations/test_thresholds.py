"""Step functions of an integer beside positions, against all integers and positions."""

import itertools

import pytest

from graphguard.relations.facts.thresholds import Step, threshold

KNOWN = (1, 9)


def steps_of(heights):
    return [Step(n, n + 1, 0, height) for n, height in enumerate(heights, KNOWN[0])]


def holds(line, n, share):
    above = n + line.factor * share > line.start
    return above if line.rises else not above


def right(function, digits):
    heights = [function(n) for n in range(*KNOWN)]
    line = threshold(steps_of(heights), KNOWN, [digits])
    places = itertools.product(*(range(size) for _, _, size in digits))
    shares = {sum(stride * place for (_, stride, _), place in zip(digits, at, strict=True)) for at in places}
    return line is not None and all(
        holds(line, n, share) is (function(n) + share > 0) for n in range(*KNOWN) for share in shares
    )


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("positions", [((0, -1, 4),), ((0, 1, 4),), ((0, -3, 2), (0, -1, 3)), ((0, 2, 3),)])
@pytest.mark.parametrize(
    "function",
    [
        lambda n: min(max(n - 3, 0), 3),
        lambda n: min(n, 4),
        lambda n: max(n - 2, 0),
        lambda n: n // 2,
        lambda n: (n + 2) // 3,
        lambda n: 5,
        lambda n: n - 20,
    ],
)
def test_step_functions(function, positions, sign):
    line = threshold(steps_of([sign * function(n) for n in range(*KNOWN)]), KNOWN, [positions])
    assert line is None or right(lambda n: sign * function(n), positions)


@pytest.mark.parametrize(
    ("function", "positions"),
    [
        (lambda n: min(max(n - 3, 0), 4), ((0, -1, 4),)),
        (lambda n: 1 - min(max(n - 3, 0), 4), ((0, 1, 4),)),
        (lambda n: n // 2, ((0, -1, 4),)),
        (lambda n: -((n + 2) // 3), ((0, 1, 3),)),
    ],
)
def test_lines_that_exist_are_found(function, positions):
    assert right(function, positions)


def test_functions_that_rise_and_fall_have_none():
    assert threshold(steps_of([0, 2, 1, 3, 4, 5, 6, 7]), KNOWN, [((0, -1, 4),)]) is None


def test_bent_lines_are_none():
    """``n // 2`` up to four, and n beyond: the integers past which positions 0, 1, 2, 3 are met are no even distance apart."""
    assert threshold(steps_of([0, 1, 1, 2, 5, 6, 7, 8]), KNOWN, [((0, -1, 8),)]) is None


@pytest.mark.parametrize("steps", [[Step(1, 4, 1, 0), Step(5, 9, 0, 4)], [Step(1, 5, 1, 0)], []])
def test_all_integers_of_the_range_are_told(steps):
    assert threshold(steps, KNOWN, [((0, -1, 4),)]) is None
