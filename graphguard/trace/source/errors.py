"""What stops a capture and is the program's fault, or the limits of tracing: it becomes one diagnostic.

What only a recording raises is noted where it is raised: a program whose handler catches it (``except Exception:``) goes on as no real program does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
        raised(self)


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


_first: list[BaseException] = []


def raised(error: BaseException) -> None:
    """Note what the program is to get, and would not get where nothing is recorded; the first since :func:`forgotten` counts."""
    if not _first:
        _first.append(error)


def first_raised() -> BaseException | None:
    """The first error that was noted."""
    return _first[0] if _first else None


@contextmanager
def handled() -> Iterator[None]:
    """What is raised inside is not for the program, but for who wrote this."""
    before = tuple(_first)
    try:
        yield
    finally:
        _first[:] = before


def forgotten() -> None:
    """Nothing was raised so far: a program begins."""
    _first.clear()
