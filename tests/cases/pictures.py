"""Terminal output as a picture: text with colour codes becomes an SVG of a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

from graphguard.report.layout import width

COLUMN, LINE, MARGIN = 8.4, 20, 16
_CODE = re.compile(r"\x1b\[([0-9;]*)m")
_COLOURS = {"31": "#f47067", "32": "#57ab5a", "33": "#c69026", "34": "#539bf5", "36": "#39c5cf"}
_PLAIN, _FAINT, _GROUND = "#d5d9de", "#8b949e", "#1c2128"


def picture(text: str) -> str:
    """The SVG of a terminal that shows a text; colours are those of the codes in it."""
    rows = text.rstrip("\n").split("\n")
    columns = max(width(_CODE.sub("", row)) for row in rows)
    wide, high = round(columns * COLUMN + 2 * MARGIN), len(rows) * LINE + 2 * MARGIN
    lines = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + LINE * number + 15}" xml:space="preserve">{"".join(_spans(row))}</text>'
        for number, row in enumerate(rows)
    )
    style = "font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">\n'
        f'<rect width="{wide}" height="{high}" rx="8" fill="{_GROUND}"/>\n'
        f'<g style="{style}" fill="{_PLAIN}">\n{lines}\n</g>\n</svg>\n'
    )


def _spans(row: str) -> Iterator[str]:
    """The pieces of a line, each in its colour."""
    codes: list[str] = []
    position = 0
    for match in [*_CODE.finditer(row), None]:
        piece = row[position : match.start() if match else len(row)]
        if piece:
            yield f"<tspan{_look(codes)}>{escape(piece)}</tspan>" if codes else escape(piece)
        if match:
            codes = [] if match[1] in ("", "0") else match[1].split(";")
            position = match.end()


def _look(codes: list[str]) -> str:
    colour = next((_COLOURS[code] for code in codes if code in _COLOURS), _FAINT if "2" in codes else "")
    return (f' fill="{colour}"' if colour else "") + (' font-weight="bold"' if "1" in codes else "")
