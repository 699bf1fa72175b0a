"""Texts that numbers are put into: as Python does it, but for numbers that a recording does not have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from programs import record

from graphguard.trace.replace.number_calls import SHOWN, called

VALUES = [
    ("%d of %d", (3, 4)),
    ("%5.2f%%", 1.25),
    ("%s", "a"),
    ("%s", ((1, 2),)),
    ("%(loss).3f, %(step)d", {"loss": 0.5, "step": 2}),
    ("%-*d|", (5, 3)),
    ("%r", [1]),
    ("%x", 255),
    ("none %% at all", ()),
]


@pytest.mark.parametrize(("text", "values"), VALUES)
def test_plain_values_are_shown_as_ever(text: str, values: Any) -> None:
    assert called(None, text, values) == text % values


def test_too_few_values_are_an_error_as_ever() -> None:
    with pytest.raises(TypeError, match="not enough arguments"):
        called(None, "%d %d", (1,))


def test_numbers_that_the_data_decides_are_words_and_listed() -> None:
    shown: list[str] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        loss, rows = x.sum().item(), x.nonzero().shape[0]
        shown.append(called(None, "%s: %5.3f, %d rows, %d%%", ("loss", loss, rows, 7)))
        shown.append(called(None, "%(loss).2f after %(step)d", {"loss": loss, "step": 3}))
        shown.append(f"{loss:.2f}")
        return x

    trace = record(program, [torch.ones(2, 3)])
    assert SHOWN in trace.assumed
    assert shown[0].startswith("loss: ")
    assert shown[0].endswith(" rows, 7%")
    assert shown[1].endswith(" after 3")
    for text in (shown[0].split()[1].rstrip(","), shown[1].split()[0], shown[2]):
        with pytest.raises(ValueError, match="could not convert"):
            float(text)


def test_a_program_without_such_texts_rests_on_nothing() -> None:
    assert SHOWN not in record(lambda x: x * float(called(None, "%.1f", 2.5)), [torch.ones(2)]).assumed
