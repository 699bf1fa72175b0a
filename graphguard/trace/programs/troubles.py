"""Exceptions and endings as troubles: what went wrong in the user's words, at the line of the user's code that can mend it."""

from __future__ import annotations

import linecache
import os
import signal
import traceback
from types import TracebackType

from graphguard.ir import Frame, Span, Trouble
from graphguard.trace.process.children import Ending
from graphguard.trace.process.limits import Limits
from graphguard.trace.source.errors import DATA_DEPENDENT, TracingError, is_data_dependence
from graphguard.trace.source.misnamed import absent_package
from graphguard.trace.source.sources import in_project, is_ours, is_own_code, is_torch

_SHOWN_LINES = 12


def trouble_of(error: BaseException, doing: str, root: str, fallback: Span | None, rank: int | None = None) -> Trouble:
    """The trouble of an exception that escaped from user code while ``doing`` something, such as ``importing mlp.py``."""
    stack = _stack(error.__traceback__)
    span = _place(error, stack, root) or fallback
    rule, message = "trace-error", _message(error)
    if isinstance(error, TracingError):
        rule, message = error.rule, error.message
        span = error.span or span
    related: tuple[tuple[Span, str], ...] = ()
    raised = next((frame for frame in stack if not is_torch(frame.span.file)), None)
    if raised is not None and span is not None and (raised.span.file, raised.span.line) != (span.file, span.line):
        related = ((raised.span, f"raised here, in {raised.function}"),)
    if (cause := _cause(error)) is not None:
        message = f"{message}\nnote: caused by {_headline_of(cause)}"
        first = next((frame for frame in _stack(cause.__traceback__) if not is_torch(frame.span.file)), None)
        related = related if first is None else (*related, (first.span, f"the cause: raised here, in {first.function}"))
    return Trouble(rule, _with_second_line(message, f"while {doing}"), span, rank, stack, related)


def trouble_of_ending(
    ending: Ending, doing: str, root: str, fallback: Span | None, limits: Limits, rank: int | None = None
) -> Trouble:
    """The trouble of a child that ended without an answer."""
    stack = tuple(Frame(span, function) for span, function in ending.stack if is_own_code(span.file))
    span = next((frame.span for frame in stack if in_project(frame.span.file, root)), None)
    span = _whole_line(span or stack[0].span) if stack else fallback
    return Trouble("trace-error", f"{_headline(ending, limits)}\nwhile {doing}", span, rank, stack)


def _whole_line(span: Span) -> Span:
    text = linecache.getline(span.file, span.line).rstrip()
    indent = len(text) - len(text.lstrip())
    return Span(span.file, span.line, indent + 1, span.line, max(len(text), indent + 1) + 1) if text else span


def _headline(ending: Ending, limits: Limits) -> str:
    if ending.kind == "timeout":
        return f"the check did not finish in {limits.seconds:g} s and was stopped here; [tool.graphguard] timeout sets the limit"
    if ending.kind == "output":
        return f"the check printed more than {limits.output // 2**20} MiB and was stopped here"
    if ending.kind == "killed":
        name = signal.Signals(ending.status).name
        if ending.status == signal.SIGKILL:
            return "the process that ran the check was killed (SIGKILL); the system may have run out of memory"
        return f"the process that ran the check crashed ({name})"
    if ending.kind == "failed":
        return "GraphGuard itself failed on this check; the log has the traceback: please report it"
    return f"the process that ran the check ended by itself (exit status {ending.status}), as os._exit does"


def _cause(error: BaseException) -> BaseException | None:
    """What a program says that its error comes of (``raise ... from``), to the first of them."""
    cause = error.__cause__
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    return cause


def _headline_of(error: BaseException) -> str:
    return _message(error).partition("\n")[0]


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the check called sys.exit({'' if error.code is None else repr(error.code)})"
    if isinstance(error, KeyboardInterrupt):
        return "the check raised KeyboardInterrupt"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    if is_data_dependence(error):
        return DATA_DEPENDENT
    if isinstance(error, MemoryError):
        return "the check ran out of memory; [tool.graphguard] memory sets the limit"
    # a tensor is fake only to us
    lines = str(error).replace("'FakeTensor'", "'Tensor'").strip().splitlines()[:_SHOWN_LINES] or [_source_line(error)]
    headline = f"{type(error).__name__}: {lines[0]}" if lines[0] else type(error).__name__
    return "\n".join(line for line in (headline, *lines[1:], absent_package(error)) if line)


def _source_line(error: BaseException) -> str:
    """What an ``assert`` without a message asserted."""
    if not isinstance(error, AssertionError) or error.__traceback__ is None:
        return ""
    summary = traceback.extract_tb(error.__traceback__)[-1]
    return (summary.line or "").strip()


def _with_second_line(message: str, line: str) -> str:
    headline, _, rest = message.partition("\n")
    return "\n".join(part for part in (headline, line, rest) if part)


def _place(error: BaseException, stack: tuple[Frame, ...], root: str) -> Span | None:
    """The innermost line of the project, or else of other code of the user's; a syntax error has its own place."""
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno:
        column = max(error.offset or 1, 1)
        end_line = max(error.end_lineno or error.lineno, error.lineno)
        end_column = error.end_offset if error.end_offset and error.end_offset > 0 else column
        if (end_line, end_column) <= (error.lineno, column):
            end_line, end_column = error.lineno, column + 1
        return Span(os.path.abspath(error.filename), error.lineno, column, end_line, end_column)
    for accepts in (lambda path: in_project(path, root), is_own_code):
        for frame in stack:
            if accepts(frame.span.file):
                return frame.span
    return None


def _stack(trace: TracebackType | None) -> tuple[Frame, ...]:
    """The frames of a traceback that are not ours, innermost first."""
    frames = []
    for (frame, _), summary in zip(traceback.walk_tb(trace), traceback.extract_tb(trace), strict=True):
        if not summary.filename.startswith("<frozen") and not is_ours(summary.filename):
            frames.append(Frame(_span(summary), frame.f_code.co_qualname))
    return tuple(reversed(frames))


def _span(summary: traceback.FrameSummary) -> Span:
    first = summary.lineno or 1
    last = summary.end_lineno or first
    if summary.colno is None or summary.end_colno is None:
        return Span(summary.filename, first)
    return Span(
        summary.filename,
        first,
        _column(summary.filename, first, summary.colno),
        last,
        _column(summary.filename, last, summary.end_colno),
    )


def _column(file: str, line: int, offset: int) -> int:
    """A column in characters, from 1, of a byte offset into a line."""
    return len(linecache.getline(file, line).encode()[:offset].decode(errors="ignore")) + 1
