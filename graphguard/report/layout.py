"""How text lies on a terminal: colours, the width of characters, tabs, wrapping."""

from __future__ import annotations

import os
import textwrap
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

TAB = 4
NARROWEST = 40

_CODES = {
    "error": "1;31",
    "warning": "1;33",
    "information": "1;36",
    "hint": "1;36",
    "refines": "1;32",
    "broken": "1;31",
    "unknown": "1;33",
    "frame": "1;34",
    "note": "1",
    "added": "32",
    "removed": "31",
    "faint": "2",
}


@dataclass(frozen=True, slots=True)
class Page:
    """What text is laid out for: a width in columns, whether colours are understood, and the characters that can be written."""

    width: int = 100
    colour: bool = False
    encoding: str = "utf-8"

    def paint(self, kind: str, text: str) -> str:
        """Text in the colour of its kind."""
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.colour and text else text


def page_for(stream: TextIO, colour: str = "auto", environment: Mapping[str, str] = os.environ) -> Page:
    """The page of an output stream; ``colour`` is ``auto``, ``always`` or ``never``."""
    encoding = stream.encoding or "utf-8"
    return Page(_columns(stream, environment), _wants_colour(stream, colour, environment), encoding)


def _wants_colour(stream: TextIO, colour: str, environment: Mapping[str, str]) -> bool:
    """NO_COLOR (no-color.org) wins over FORCE_COLOR, both over what the stream is."""
    if colour != "auto":
        return colour == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"


def _columns(stream: TextIO, environment: Mapping[str, str]) -> int:
    """COLUMNS, the terminal's own width, or 100 where there is none."""
    declared = environment.get("COLUMNS", "")
    if declared.isdecimal() and int(declared) > 0:
        return max(NARROWEST, int(declared))
    try:
        return max(NARROWEST, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return 100


def width(text: str) -> int:
    """Columns that text takes on a terminal: wide characters two, combining and invisible ones none."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def printable(text: str, encoding: str = "utf-8") -> str:
    """Source text as it is shown: tabs as spaces, control characters as their pictures, so that no escape sequence gets through.

    What the encoding lacks is escaped here and not by the stream, so that marks stand below what they mark.
    """
    shown = []
    column = 0
    for character in text:
        if character == "\t":
            piece = " " * (TAB - column % TAB)
        elif ord(character) < 32 or 127 <= ord(character) < 160:
            piece = _written(chr(0x2400 + ord(character)) if ord(character) < 32 else "\ufffd", encoding)
        else:
            piece = character if character.isascii() else _written(character, encoding)
        shown.append(piece)
        column += width(piece)
    return "".join(shown)


def _written(character: str, encoding: str) -> str:
    return character.encode(encoding, "backslashreplace").decode(encoding)


def wrapped(text: str, first: str, rest: str, columns: int) -> list[str]:
    """Text broken at spaces into lines of at most ``columns``, after the given prefixes; words stay whole."""
    lines = textwrap.wrap(
        text, max(NARROWEST, columns) - width(first), break_long_words=False, break_on_hyphens=False
    ) or [""]
    return [(first if number == 0 else rest) + line for number, line in enumerate(lines)]
