"""Where in the user's own code something happens."""

from __future__ import annotations

import linecache
import sys
from types import FrameType

from graphguard.ir import Span
from graphguard.trace.source.provenance import frame_at, is_shown
from graphguard.trace.source.sources import is_own_code


def own_place() -> Span | None:
    """The innermost line of the user's own code that is running; else that of a library; None where there is none."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - who calls is what counts
    shown: Span | None = None
    while frame is not None:
        code = frame.f_code
        if is_shown(code):
            if is_own_code(code.co_filename):
                return _first_line(frame_at(code, frame.f_lasti).span)
            shown = shown or frame_at(code, frame.f_lasti).span
        frame = frame.f_back
    return shown


def _first_line(span: Span) -> Span:
    """Of a loop, of which an instruction says that it is all of it, the line where it stands."""
    if span.end_line == span.line:
        return span
    text = linecache.getline(span.file, span.line).rstrip()
    return Span(span.file, span.line, span.column, span.line, max(len(text) + 1, span.column))
