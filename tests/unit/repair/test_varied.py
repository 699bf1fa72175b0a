"""Numbers of a program written otherwise, to see whether a fix fits them by chance."""

import pytest

from graphguard.ir import Span
from graphguard.repair.writing.applied import edited
from graphguard.repair.writing.varied import brings_numbers, varied
from graphguard.report.diagnostics import TextEdit

SOURCE = """RATE, DECAY = 0.5, 0.25
STEPS = 3
名 = 0.125; MOMENTUM = 0.75

def step(weight, gradient):
    return weight - RATE * gradient
"""
PATH = "train.py"


def edit(line: int, text: str, to: str) -> TextEdit:
    """The edit that writes another text in place of one on a line."""
    at = SOURCE.splitlines()[line - 1].index(text) + 1
    return TextEdit(Span(PATH, line, at, line, at + len(text)), to)


@pytest.mark.parametrize(
    ("change", "first_lines"),
    [
        (edit(6, "gradient", "(gradient / 2)"), None),  # it touches no constant
        (
            edit(6, "RATE * gradient", "gradient"),
            ["RATE, DECAY = 0.40625, 0.25", "STEPS = 3", "名 = 0.125; MOMENTUM = 0.75"],
        ),
        (edit(6, "RATE", "DECAY"), ["RATE, DECAY = 0.40625, 0.203125", "STEPS = 3", "名 = 0.125; MOMENTUM = 0.75"]),
        (edit(6, "RATE", "MOMENTUM"), ["RATE, DECAY = 0.40625, 0.25", "STEPS = 3", "名 = 0.125; MOMENTUM = 0.609375"]),
        (
            edit(6, "gradient", "gradient * (4 / 3)"),  # the momentum, said in numbers
            ["RATE, DECAY = 0.5, 0.25", "STEPS = 3", "名 = 0.125; MOMENTUM = 0.609375"],
        ),
        (edit(6, "RATE", "1.5"), ["RATE, DECAY = 0.40625, 0.25", "STEPS = 3", "名 = 0.125; MOMENTUM = 0.75"]),
        (edit(6, "gradient", "gradient / STEPS"), None),  # a count is no factor that may be any
    ],
)
def test_the_constants_that_an_edit_touches_are_others(change, first_lines):
    texts = {PATH: edited(SOURCE, [change])}
    found = varied((change,), texts, {PATH: SOURCE}.get)
    assert (found and found[PATH].splitlines()[:3]) == first_lines


def test_what_the_specification_says_in_numbers_stays():
    change = edit(6, "gradient", "gradient * 0.75")
    texts = {PATH: edited(SOURCE, [change])}
    assert varied((change,), texts, {PATH: SOURCE}.get) is not None
    assert varied((change,), texts, {PATH: SOURCE}.get, "x * 0.75") is None


@pytest.mark.parametrize(
    ("change", "brings"),
    [
        (edit(6, "gradient", "(gradient * 3)"), True),
        (edit(6, "gradient", "(gradient / 2)"), False),  # two are as many as there are ranks, mostly
        (edit(6, "gradient", "gradient.view(3, -1)"), True),
        (edit(2, "3", "3 + 0"), False),  # three stands there
        (edit(6, "gradient", "x3"), False),  # a name
        (edit(6, "gradient", "gradient * 1.5e-3"), True),
    ],
)
def test_a_number_that_an_edit_brings_in(change, brings):
    assert brings_numbers((change,), {PATH: SOURCE}.get) == brings
    assert not brings_numbers((change,), {PATH: SOURCE}.get, "x * 3 + 1.5e-3")


def test_the_program_without_the_edit_is_varied_likewise():
    change = edit(6, "RATE * gradient", "gradient")
    found = varied((change,), {PATH: SOURCE}, {PATH: SOURCE}.get)
    assert found == {PATH: SOURCE.replace("RATE, DECAY = 0.5", "RATE, DECAY = 0.40625")}
