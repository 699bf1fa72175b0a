"""The audit reads every step of rewriting again: right ones hold, and a wrong rule is named by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from benchmarks.trust.fuzz import Program, Result
from graphguard.relations.audit.log import Audit, StepLog, audited
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.rewrite.rule import Outcome, Rule, Rules
from graphguard.relations.simplify.document import rewritten
from graphguard.relations.simplify.table import TABLE
from graphguard.relations.terms.kernels import Universe


def _audited(work: Callable[[NormalForm], Any], rules: Rules = TABLE) -> Audit:
    universe = Universe()
    a = NormalForm(universe)
    universe.rules = rules
    log = universe.log = StepLog()
    work(a)
    return audited(universe, log)


def test_steps_of_random_programs_hold() -> None:
    whole = Audit()
    for seed in range(700, 716):
        program = Program(seed, Result())
        log = program.forms.universe.log = StepLog()
        program.run()
        whole.add(audited(program.forms.universe, log))
    assert whole.wrong == []
    read, unread = sum(whole.checked.values()), sum(whole.unread.values())
    assert read > 1000
    assert unread < read / 20
    assert len(whole.checked) > 20


@pytest.mark.parametrize("seed", [41_046_500, 41_146_700])
def test_steps_are_read_where_their_indices_lie(seed: int) -> None:
    """A computed index that is assumed to lie in a table is not read outside of it; a sum over all integers reaches as far as the index under it does."""
    result = Result()
    Program(seed, result).run()  # of seeds that are audited
    assert result.wrong == []


def _attention(a: NormalForm) -> None:
    """Two halves of a causal softmax, merged, and a sum of slices."""
    x, w = a.leaf("x", (6, 4), "float"), a.leaf("w", (4, 8), "float")
    scores = a.contract([(x, "ik"), (w, "kj")], "ij")
    halves = [a.slice(scores, 1, 0, 4), a.slice(scores, 1, 4, 8)]
    tops = [a.max_over(half, (1,)) for half in halves]
    top = a.maximum(*tops)
    sums = [a.sum(a.exp(a.add([half, a.scale(a.expand(a.reshape(top, (6, 1)), (6, 4)), -1)])), (1,)) for half in halves]
    a.power(a.add(sums), Fraction(-1))
    mask = a.compare("le", a.expand(a.reshape(a.iota(6), (6, 1)), (6, 8)), a.expand(a.iota(8), (6, 8)))
    masked = a.where(mask, scores, a.full((6, 8), 0.0, "float"))
    a.add([scores, a.scale(masked, -1)])
    parts = [a.contract([(a.slice(x, 1, k, k + 2), "ik"), (a.slice(w, 0, k, k + 2), "kj")], "ij") for k in (0, 2)]
    a.add(parts)


def test_all_of_an_attention_is_read() -> None:
    found = _audited(_attention)
    assert found.wrong == []
    assert sum(found.unread.values()) == 0
    assert {"partial sums", "complement", "exponentials", "maxima over dims", "construction"} <= set(found.checked)


def _with(rule: Rule[Any, Any], act: Callable[..., Any]) -> Rules:
    """The table with another function in the place of one rule's."""
    wrong = replace(rule, act=act)
    stages = {
        stage: tuple(wrong if each is rule else each for each in getattr(TABLE, stage))
        for stage in ("products", "positions", "sums", "quotients", "divisors")
    }
    return replace(TABLE, **stages)


def _rule(stage: str, name: str) -> Rule[Any, Any]:
    return next(rule for rule in getattr(TABLE, stage) if rule.name == name)


def test_a_wrong_rule_for_sums_is_named() -> None:
    rule = _rule("sums", "partial sums")

    def shorter(universe: Universe, items: Any, extents: Any) -> Any:
        """Windows whose last index is forgotten."""
        joined = rule.act(universe, items, extents)
        return [
            (c, (kernel, offsets, dims, tuple((low, max(low + 1, high - 1)) for low, high in window)))
            for c, (kernel, offsets, dims, window) in joined
        ]

    found = _audited(_attention, _with(rule, shorter))
    assert {name for name, _ in found.wrong} == {"partial sums"}


def test_a_wrong_rule_for_products_is_named() -> None:
    rule = _rule("positions", "cases")

    def dropped(product: Any) -> Outcome:
        """Masks are 1, wherever one looks."""
        before = len(product.parts)
        product.parts = [part for part in product.parts if part.kernel.name != "gt0"]
        return Outcome.CHANGED if len(product.parts) < before else Outcome.SAME

    found = _audited(_attention, _with(rule, dropped))
    assert "cases" in {name for name, _ in found.wrong}


@pytest.mark.parametrize("stage", ["products", "positions", "sums", "quotients", "divisors"])
def test_every_rule_says_what_it_does(stage: str) -> None:
    for rule in getattr(TABLE, stage):
        assert rule.section
        assert "=" in rule.equation
        assert rule.example


def test_the_page_is_written_from_the_rules() -> None:
    page = (Path(__file__).parents[3] / "docs" / "engine.md").read_text()
    assert rewritten(page) == page, "run python -m graphguard.relations.simplify.document"
