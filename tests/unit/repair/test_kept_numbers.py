"""Numbers that a module keeps, over a number of ranks: by a true quotient where they are one, else whole."""

from __future__ import annotations

import ast

import pytest

from graphguard.repair.writing.kept_source import _is_quotient


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("alpha / self.rows.shape[0]", True),
        ("2 * alpha / rank", True),
        ("hidden // heads", False),
        ("(hidden // heads) ** -0.5", False),
        ("alpha / (hidden // heads)", False),
        ("hidden * heads", False),
    ],
)
def test_only_products_and_true_quotients_are_quotients(text: str, is_one: bool) -> None:
    assert _is_quotient(ast.parse(text, mode="eval").body) is is_one
