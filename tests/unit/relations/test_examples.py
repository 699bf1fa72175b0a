"""The examples of the rules of rewriting, which docs/engine.md shows, are proved as it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import graphguard as gg
from graphguard.relations.simplify.document import rules

FORM = re.compile(r"`([^`]+)` = `([^`]+)`(?: for `([^`=<>]+) = ([^`]+)`| for `[^`]+`)?")
EXAMPLES = {rule.name: found.groups() for rule in rules() if (found := FORM.fullmatch(rule.example))}
IN_WORDS = {rule.name for rule in rules()} - set(EXAMPLES)
ALONE = {
    "differences of quotients",
    "sigmoids as exponentials",
}  # proved where the two programs are spelt differently in them alone


def inputs() -> tuple[Any, ...]:
    indices = {"dtype": torch.int64}
    return (
        gg.tensor(4, 6),
        gg.tensor(4, 6),
        gg.tensor(6, 5),
        gg.tensor(5, 3),
        gg.tensor(8, 6),
        gg.tensor(4, **indices, high=8),
        gg.tensor(4, **indices, low=-8, high=8),
        gg.tensor(4, 1, **indices, high=9),
        gg.tensor(4),
        gg.tensor(4, **indices, high=6),
    )


def sides(names: list[str], side: int) -> Callable[..., dict[str, Tensor]]:
    def program(*values: Tensor) -> dict[str, Tensor]:
        known: dict[str, Any] = dict(
            zip(("x", "y", "w", "v", "t", "ids", "i", "n", "keys", "lengths"), values, strict=True)
        )
        known |= {"torch": torch, "F": F, "relu": torch.relu, "a": known["x"], "b": known["y"], "j": torch.arange(3)}
        found = {}
        for name in names:
            where, text = EXAMPLES[name][2:]
            if where:
                known[where] = eval(text, known)
            found[name] = eval(EXAMPLES[name][side], known)
        return found

    return program


@pytest.mark.parametrize("names", [sorted(set(EXAMPLES) - ALONE), *([name] for name in sorted(ALONE))], ids=len)
def test_examples_are_proved(names: list[str]) -> None:
    report = gg.verify(sides(names, 1), lambda mesh: sides(names, 0), inputs=inputs(), mesh={"tp": 2})
    assert report.verdict is gg.Verdict.REFINES, report.diagnostics


def test_most_examples_are_programs() -> None:
    assert len(EXAMPLES) > 3 * len(IN_WORDS)
