"""Where a place of an older text is in a newer one, and which edits change no meaning."""

from __future__ import annotations

import pytest
from graphguard_server.texts.shifts import moved, shift
from graphguard_server.texts.source import meaning
from hypothesis import given, settings
from hypothesis import strategies as st

from graphguard.ir.spans import Span

TEXT = "a = 1\nb = f(a,\n      2)\nc = b\n"


@pytest.mark.parametrize(
    "same",
    [
        "# first\n" + TEXT,
        TEXT.replace("a = 1", "a  =  1  # one"),
        TEXT.replace("f(a,\n      2)", "f(a, 2)"),
        TEXT.replace("c = b", "c = (b)"),
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("f(a,\n      2)", "f(\n    a,\n    2,\n)"),
    ],
)
def test_comments_and_layout_have_no_meaning(same: str) -> None:
    assert meaning(same) == meaning(TEXT)


@pytest.mark.parametrize(
    "other",
    [
        TEXT.replace("2", "3"),
        TEXT + "d = 1\n",
        TEXT.replace("c = b", "c = b  # graphguard: ignore[wrong-scale]"),
        '"""A docstring is a value."""\n' + TEXT,
    ],
)
def test_code_and_pragmas_have(other: str) -> None:
    assert meaning(other) != meaning(TEXT)


def test_what_does_not_parse_has_no_meaning() -> None:
    assert meaning("def f(:\n") is None
    assert meaning("x = '\0'") is None


def test_places_follow_their_tokens_through_layout() -> None:
    new = "# why\n\na = 1\nb = f(a, 2)  # joined\nc = b\n"
    span = Span("f", 2, 5, 3, 9)
    assert moved(span, shift(TEXT, new)) == Span("f", 4, 5, 4, 12)


def test_places_behind_an_edit_move_with_their_lines() -> None:
    new = TEXT.replace("b = f", "new = 1\nnewer = 2\nb = f").replace("2)", "3)")
    assert moved(Span("f", 4, 5, 4, 6), shift(TEXT, new)) == Span("f", 6, 5, 6, 6)


def test_a_place_in_a_changed_line_stays_in_it() -> None:
    new = TEXT.replace("c = b", "c = g(b)")
    assert moved(Span("f", 4, 1, 4, 2), shift(TEXT, new)) == Span("f", 4, 1, 4, 2)


def test_a_place_in_a_removed_line_stays_in_the_text() -> None:
    found = moved(Span("f", 4, 5, 4, 6), shift(TEXT, "a = 1\n"))
    assert 1 <= found.line <= 2


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="ab(\n#\r x=1,)", max_size=60),
    st.text(alphabet="ab(\n#\r x=1,)", max_size=60),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_every_place_has_a_place_in_any_other_text(old: str, new: str, line: int, column: int) -> None:
    found_line, found_column = shift(old, new)(line, column)
    assert found_line >= 0
    assert found_column >= 0
