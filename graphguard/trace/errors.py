"""What stops a capture and is the program's fault, or the limits of tracing: it becomes one diagnostic."""

from __future__ import annotations

from graphguard.ir import Span


class TracingError(Exception):
    """Why a program cannot be captured: a rule of the registry, a message for the user, the place where that is known, and further places."""

    def __init__(
        self, rule: str, message: str, span: Span | None = None, related: tuple[tuple[Span, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.span = span
        self.related = related


DATA_DEPENDENT = (
    "the program needs a number that depends on its inputs, here\n"
    "a recording holds for all inputs: branch on shapes and constants, or compute with tensors (torch.where)"
)
_DEPENDENCE = frozenset(("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException"))


def is_data_dependence(error: BaseException) -> bool:
    """Whether PyTorch says that the program needs a value, such as for a branch, that only the data decides."""
    return type(error).__name__ in _DEPENDENCE
