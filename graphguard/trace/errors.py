"""What stops a capture and is the program's fault, or the limits of tracing: it becomes one diagnostic."""

from __future__ import annotations

from graphguard.ir import Span


class TracingError(Exception):
    """Why a program cannot be captured: a rule of the registry, a message for the user, and the place where that is known."""

    def __init__(self, rule: str, message: str, span: Span | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.span = span
