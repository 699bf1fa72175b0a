import ast
from pathlib import Path

import pytest

from graphguard.report.catalogue import RULES
from graphguard.report.pages import pages, write
from graphguard.report.registry import UnknownRuleError, explain, listing, rule, severity_of

DOCS = Path(__file__).parents[3] / "docs" / "rules"
PROMISED = [
    "missing-reduction",
    "extra-reduction",
    "wrong-scale",
    "wrong-shard",
    "wrong-group",
    "nonlinear-on-partial",
    "gradient-not-reduced",
    "lower-precision",
    "dead-collective",
    "collective-mismatch",
    "missing-wait",
    "process-dependent",
    "wrong-relation",
    "conflicting-relations",
    "unproved",
    "unsupported-operator",
    "ambiguous-parameter",
    "trace-error",
]


def test_every_promised_rule_is_there():
    assert set(PROMISED) | {"unused-ignore"} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_explains_itself(name):
    shown = explain(name)
    for part in ("What it does", "Why it is bad", "Wrong", "Right"):
        assert f"\n{part}\n    " in shown
    assert RULES[name].summary in shown
    assert max(map(len, shown.splitlines())) <= 110


@pytest.mark.parametrize("name", RULES)
def test_examples_are_python(name):
    for example in (RULES[name].wrong, RULES[name].right):
        code = example if not example.startswith("in_relations") else f"f({example})"
        ast.parse(
            code if "return" not in code else "def f():\n" + "".join(f"    {line}\n" for line in code.splitlines())
        )


def test_an_unknown_rule_names_the_nearest():
    with pytest.raises(UnknownRuleError, match="did you mean 'wrong-scale'"):
        rule("wrong-scales")


def test_levels_of_the_configuration_win():
    assert severity_of("unproved", {}) == "warning"
    assert severity_of("unproved", {"unproved": "error"}) == "error"
    assert severity_of("missing-reduction", {"unproved": "hint"}) == "error"
    assert severity_of("missing-reduction", {"missing-reduction": "off"}) == "error"


def test_listing_has_one_line_for_every_rule():
    assert len(listing().splitlines()) == len(RULES)


def test_the_pages_of_the_documentation_are_up_to_date():
    """Run `python -m graphguard.report.pages docs/rules` after a change of the catalogue."""
    found = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    assert found == pages()


def test_pages_of_rules_that_are_gone_are_removed(tmp_path):
    (tmp_path / "old-rule.md").write_text("old")
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(pages())
