import io

import pytest

from graphguard.report.layout import page_for, printable, width, wrapped


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "colour", "environment", "expected"),
    [
        (Terminal(), "auto", {}, True),
        (io.StringIO(), "auto", {}, False),
        (Terminal(), "auto", {"NO_COLOR": "1"}, False),
        (Terminal(), "auto", {"NO_COLOR": ""}, True),
        (io.StringIO(), "auto", {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), "auto", {"FORCE_COLOR": "0"}, False),
        (io.StringIO(), "auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (Terminal(), "auto", {"TERM": "dumb"}, False),
        (Terminal(), "never", {}, False),
        (io.StringIO(), "always", {"NO_COLOR": "1"}, True),
    ],
)
def test_colour(stream, colour, environment, expected):
    assert page_for(stream, colour, environment).colour is expected


@pytest.mark.parametrize(("columns", "expected"), [("72", 72), ("3", 40), ("many", 100), ("", 100)])
def test_width_of_a_page(columns, expected):
    assert page_for(io.StringIO(), environment={"COLUMNS": columns}).width == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("a\u200bb", 2), ("ｗ", 2), ("", 0)]
)
def test_width_of_text(text, expected):
    assert width(text) == expected


def test_tabs_go_to_the_next_stop():
    assert printable("\tx\ty") == "    x   y"


def test_control_characters_are_pictures():
    assert printable("a\x1b[0m\x07\x9b") == "a\u241b[0m\u2407\ufffd"


def test_wrapped_keeps_words_whole():
    assert wrapped("aa " * 20, "* ", "  ", 40) == ["* " + " ".join(["aa"] * 13), "  " + " ".join(["aa"] * 7)]
    assert wrapped("x" * 70, "* ", "  ", 40) == ["* " + "x" * 70]


def test_what_an_encoding_lacks_is_escaped_in_its_width():
    assert printable("größe\t日", "ascii") == r"gr\xf6\xdfe \u65e5"
    assert printable("größe", "latin-1") == "größe"
