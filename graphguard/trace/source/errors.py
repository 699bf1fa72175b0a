"""What stops a capture and is the program's fault, or the limits of tracing: it becomes one diagnostic."""

from __future__ import annotations

from graphguard.ir import Span
from graphguard.ir.capture import Mending


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
        self.mendings: tuple[Mending, ...] = ()


class UnfitMemoryError(TracingError):
    """A call that is given memory on which it does not do what it seems to do; the message is written where the place is known."""

    def tell(self, span: Span | None) -> None:
        """Take the place, and say in the program's words what is wrong there, and how it can be mended."""
        raise NotImplementedError


DATA_DEPENDENT = (
    "the program needs a number that depends on its inputs, here\n"
    "a recording holds for all inputs: branch on shapes and constants, or compute with tensors (torch.where)"
)
_DEPENDENCE = frozenset(("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException"))


def is_data_dependence(error: BaseException) -> bool:
    """Whether PyTorch says that the program needs a value, such as for a branch, that only the data decides."""
    return type(error).__name__ in _DEPENDENCE
