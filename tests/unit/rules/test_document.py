"""docs/operators.md is what the rules say."""

from __future__ import annotations

from pathlib import Path

from graphguard.rules import RULES
from graphguard.rules.document import operators_page

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == operators_page(), "python -m graphguard.rules.document > docs/operators.md"


def test_every_rule_states_its_equation() -> None:
    assert [rule.name for rule in RULES.values() if not rule.equation] == []


def test_every_family_is_on_the_page() -> None:
    page = operators_page()
    assert [name for name in RULES if f"`{name.removesuffix('.default')}`" not in page] == []
