"""Which findings are told as one."""

from __future__ import annotations

from dataclasses import replace

from graphguard.checks.judging.together import together
from graphguard.ir import Span
from graphguard.refine.finding import Finding
from graphguard.repair.trying.alike import EVERYTHING, at_one_place
from graphguard.report.diagnostics import Diagnostic, Fix, RelatedPlace

HERE, THERE = Span("model.py", 9, 5, 9, 20), Span("model.py", 9, 25, 9, 30)
CHECK = Span("checks.py", 1)


def finding(headline: str, span: Span | None, alike: str = "") -> Finding:
    return Finding("wrong-relation", headline, span, alike=alike)


def told(one: Finding, *fixes: str) -> Diagnostic:
    shown = tuple(Fix(title, (), True) for title in fixes)
    return Diagnostic(one.rule, one.rule, one.headline, "error", one.span, fixes=shown)


def headlines(*findings: Finding) -> list[str]:
    """The messages of findings that nothing mends."""
    return [each.message for each in together([(one, told(one)) for one in at_one_place(findings)])]


def test_what_stands_at_one_expression_is_told_as_one_with_all_that_is_said_of_it() -> None:
    assert headlines(finding("a", HERE), finding("b", HERE)) == ["a\nand: b"]


def test_two_defects_on_one_line_stay_two() -> None:
    assert headlines(finding("a", HERE), finding("b", THERE), finding("c", None), finding("d", None)) == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_one_of_a_group_brings_the_others_with_it() -> None:
    assert headlines(finding("a", HERE), finding("b", HERE, "g"), finding("c", THERE, "g")) == ["a\nand: b\nand: c"]


def test_what_is_wrong_by_the_factor_of_everything_keeps_its_group() -> None:
    by = f"{EVERYTHING} 1/2"
    assert [each.alike for each in at_one_place([finding("a", HERE, by), finding("b", HERE)])] == [by, f"at {HERE}"]


def test_what_mends_only_one_of_them_is_no_fix_of_both() -> None:
    first, second = at_one_place([finding("a", HERE), finding("b", HERE)])
    assert [each.message for each in together([(first, told(first, "edit")), (second, told(second))])] == ["a", "b"]


def test_what_is_said_twice_is_told_once_unless_something_mends_it() -> None:
    first, second = finding("a", HERE, "g"), finding("a", HERE, "k")
    assert len(together([(first, told(first)), (second, told(second))])) == 1
    assert len(together([(first, told(first)), (second, told(second, "edit"))])) == 2


def test_the_check_is_shown_once_with_what_fails() -> None:
    first, second = at_one_place([finding("a", HERE), finding("b", HERE)])
    short, full = (RelatedPlace(CHECK, text) for text in ("the check that fails", "the check that fails: out"))
    (joined,) = together(
        [(first, replace(told(first), related=(short,))), (second, replace(told(second), related=(full,)))]
    )
    assert joined.related == (full,)
