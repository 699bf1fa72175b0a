"""Autograd's engine, called through Python: ``backward`` and ``grad`` ask it, and so do programs that call it themselves, as Megatron does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Variable

_graph = torch.autograd.graph
_DOOR = _graph._engine_run_backward.__code__  # noqa: SLF001 - what backward and grad call


class _Engine:
    """The engine, whose ``run_backward`` is another for whoever calls it without ``backward`` and ``grad``.

    Those two get its own, since what the engine warns of is attributed to who calls it.
    """

    def __init__(self, engine: Any, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._engine = engine
        self._run = around(engine.run_backward)

    @property
    def run_backward(self) -> Callable[..., Any]:
        asks_itself = sys._getframe(1).f_code is _DOOR  # noqa: SLF001 - who asks is what counts
        return self.own if asks_itself else self._run

    @property
    def own(self) -> Callable[..., Any]:
        """The engine's, whatever has replaced it since."""
        engine = self._engine
        return engine.own if isinstance(engine, _Engine) else engine.run_backward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def replace_engine(around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Have every differentiation go through what ``around`` makes of the usual ``run_backward``; returns what undoes it."""
    engine, differentiate = Variable._execution_engine, _graph._engine_run_backward  # noqa: SLF001 - the two ways to it

    def put(engine: Any, differentiate: Any) -> None:
        Variable._execution_engine = engine  # noqa: SLF001
        _graph._engine_run_backward = torch.autograd._engine_run_backward = differentiate  # noqa: SLF001

    put(_Engine(engine, around), around(differentiate))
    return lambda: put(engine, differentiate)
