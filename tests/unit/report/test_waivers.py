from dataclasses import replace

import pytest

from graphguard.report.waivers import Waivers, waivers

from .reports import BROKEN, FILE, REFINES, TEXT, UNKNOWN, sources


def with_comment(comment, line="        return self.down(h)"):
    return sources(TEXT.replace(line, f"{line}  {comment}"))


def test_a_waiver_on_the_line_silences_its_rule():
    report = Waivers(with_comment("# graphguard: ignore[missing-reduction]")).apply(BROKEN)
    assert report.diagnostics == ()
    assert report.waived == BROKEN.diagnostics


@pytest.mark.parametrize(
    "comment",
    [
        "# graphguard: ignore[wrong-scale, missing-reduction]",
        "#graphguard:ignore[missing-reduction]",
        "# noqa  # graphguard: ignore[ missing-reduction ] because ...",
    ],
)
def test_forms_of_a_waiver(comment):
    assert Waivers(with_comment(comment)).apply(BROKEN).diagnostics == ()


@pytest.mark.parametrize(
    "comment",
    ["# graphguard: ignore[wrong-scale]", "# graphguard: ignore", "# ignore[missing-reduction]", "# missing-reduction"],
)
def test_what_waives_nothing(comment):
    assert Waivers(with_comment(comment)).apply(BROKEN) == BROKEN


def test_a_waiver_on_another_line_waives_nothing():
    assert (
        Waivers(with_comment("# graphguard: ignore[missing-reduction]", "        h = gelu(self.up(x))")).apply(BROKEN)
        == BROKEN
    )


def test_a_waiver_inside_a_string_is_none():
    assert waivers(FILE, "x = '# graphguard: ignore[unproved]'\n") == ()


def test_a_waiver_on_the_last_line_of_a_range():
    (diagnostic,) = BROKEN.diagnostics
    longer = replace(diagnostic, span=replace(diagnostic.span, line=9))
    report = replace(BROKEN, diagnostics=(longer,))
    assert Waivers(with_comment("# graphguard: ignore[missing-reduction]")).apply(report).diagnostics == ()


def test_an_unused_waiver_is_reported_where_it_stands():
    silenced = Waivers(with_comment("# graphguard: ignore[wrong-scale]"))
    silenced.apply(BROKEN)
    (unused,) = silenced.unused([FILE])
    assert unused.headline == "unused waiver: no 'wrong-scale' is found on this line"
    assert (unused.span.line, unused.span.column, unused.span.end_column) == (10, 30, 63)
    assert unused.severity == "warning"


def test_a_used_waiver_is_not_reported():
    silenced = Waivers(with_comment("# graphguard: ignore[missing-reduction]"))
    silenced.apply(BROKEN)
    silenced.apply(REFINES)
    assert silenced.unused([FILE]) == []


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("# graphguard: ignore", "names no rule"),
        ("# graphguard: ignore[]", "names no rule"),
        ("# graphguard: ignore[typo]", "which is no rule"),
    ],
)
def test_a_waiver_that_cannot_work_says_why(comment, message):
    (unused,) = Waivers(with_comment(comment)).unused([FILE])
    assert message in unused.message


def test_a_rule_can_be_turned_off():
    report = Waivers(sources(), {"unproved": "off"}).apply(UNKNOWN)
    assert report.waived == UNKNOWN.diagnostics


def test_waivers_of_a_file_that_does_not_parse():
    assert [waiver.rule for waiver in waivers(FILE, "x = 1  # graphguard: ignore[unproved]\ny = (\n")] == ["unproved"]
