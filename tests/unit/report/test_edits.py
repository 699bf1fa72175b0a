import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphguard.ir import Span
from graphguard.report.diagnostics import TextEdit
from graphguard.report.edits import EditError, apply_edits, changed_lines

TEXT = "one\ntwo\nthree\n"


def edit(line, column, end_line, end_column, text):
    return TextEdit(Span("f", line, column, end_line, end_column), text)


def test_replacement_insertion_and_deletion_together():
    edits = (edit(1, 1, 1, 4, "1"), edit(2, 1, 0, 0, "new\n"), edit(3, 1, 4, 1, ""))
    assert apply_edits(TEXT, edits) == "1\nnew\ntwo\n"


def test_insertions_at_one_place_keep_their_order():
    assert apply_edits("x", (edit(1, 1, 0, 0, "a"), edit(1, 1, 0, 0, "b"))) == "abx"


def test_at_the_end_of_a_file():
    assert apply_edits(TEXT, (edit(4, 1, 0, 0, "four\n"),)) == TEXT + "four\n"
    assert apply_edits("one", (edit(1, 4, 0, 0, "\n"),)) == "one\n"


@pytest.mark.parametrize("bad", [edit(9, 1, 0, 0, ""), edit(1, 99, 0, 0, "x"), edit(2, 1, 1, 1, "")])
def test_outside_of_the_text(bad):
    if bad.span.column == 99:
        bad = edit(4, 99, 0, 0, "x")
    with pytest.raises(EditError, match="outside"):
        apply_edits(TEXT, (bad,))


def test_overlap():
    with pytest.raises(EditError, match="overlap"):
        apply_edits(TEXT, (edit(1, 1, 1, 3, "x"), edit(1, 2, 1, 4, "y")))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_are_kept(end):
    text = TEXT.replace("\n", end)
    assert apply_edits(text, (edit(2, 1, 2, 4, "2"),)) == text.replace("two", "2")


def test_a_form_feed_ends_no_line():
    assert apply_edits("a\x0cb\nc\n", (edit(2, 1, 2, 2, "C"),)) == "a\x0cb\nC\n"


@given(st.text(alphabet="ab\n\r\x0c日", max_size=30), st.data())
def test_an_edit_at_any_offset(text, data):
    """A position counted by hand is where the edit goes."""
    offset = data.draw(st.integers(0, len(text)))
    if text[offset - 1 : offset + 1] == "\r\n":
        return
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    assert apply_edits(text, (edit(line, column, 0, 0, "X"),)) == text[:offset] + "X" + text[offset:]


def test_changed_lines():
    (hunk,) = changed_lines(TEXT, "one\n2\n2b\nthree\n")
    assert [(line.kind, line.number, line.text) for line in hunk] == [
        ("kept", 1, "one"),
        ("removed", 2, "two"),
        ("added", 2, "2"),
        ("added", 3, "2b"),
        ("kept", 4, "three"),
    ]
