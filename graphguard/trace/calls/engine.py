"""Autograd's engine, called through Python: ``backward`` and ``grad`` ask it, and so do programs that call it themselves, as Megatron does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.autograd import Variable


class _Engine:
    """The engine, whose ``run_backward`` is another."""

    def __init__(self, engine: Any, run_backward: Callable[..., Any]) -> None:
        self._engine = engine
        self.run_backward = run_backward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def replace_engine(around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Have every differentiation go through what ``around`` makes of the usual ``run_backward``; returns what undoes it."""
    usual = Variable._execution_engine  # noqa: SLF001 - the one way to the engine

    def undo() -> None:
        Variable._execution_engine = usual  # noqa: SLF001

    Variable._execution_engine = _Engine(usual, around(usual.run_backward))  # noqa: SLF001
    return undo
