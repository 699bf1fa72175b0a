"""What calls of modules, and the engine, go through while layers may be copied; and what would show that they were."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from graphguard.trace.calls.engine import replace_engine
from graphguard.trace.elide.repeats import Repeats
from graphguard.trace.elide.templates import grad_fn_of


@contextmanager
def watching(repeats: Repeats | None) -> Iterator[None]:
    """Inside, a recording's modules are called through it, and it is told what the engine is asked, and when a program looks at the autograd graph."""
    if repeats is None:
        yield
        return
    usual = nn.Module.__call__
    nn.Module.__call__ = _called(repeats, usual)
    undo = replace_engine(functools.partial(_differentiated, repeats))
    FakeTensor.grad_fn = property(functools.partial(_watched, repeats))
    repeats.called = nn.Module.__call__
    try:
        yield
    finally:
        nn.Module.__call__ = usual
        undo()
        del FakeTensor.grad_fn


def _called(repeats: Repeats, usual: Any) -> Any:
    @functools.wraps(usual)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return repeats.call(usual, self, args, kwargs)

    return call


def _differentiated(repeats: Repeats, usual: Any) -> Any:
    @functools.wraps(usual)
    def run(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        # after the gradients: whether the graph is kept, whether one of the gradients is made, and what they are wanted of
        plain = len(args) == 4 and not any(args[1:]) and kwargs == {"allow_unreachable": True, "accumulate_grad": True}
        wanted = args[3] if len(args) > 3 else kwargs.get("inputs", ())
        with repeats.differentiating(tensors, wanted, plain=plain):
            return usual(tensors, *args, **kwargs)

    return run


def _watched(repeats: Repeats, tensor: Any) -> Any:
    if not _only_checks(sys._getframe(1)):  # noqa: SLF001
        repeats.shows("the program looks at the autograd graph")
    return grad_fn_of(tensor)


def _only_checks(frame: FrameType) -> bool:
    """Whether code of PyTorch's only asks whether a parameter, or a gradient, is made of others; or it is ours."""
    name = frame.f_globals.get("__name__", "")
    asks = frame.f_code.co_name in ("register_parameter", "zero_grad") and name.startswith(
        ("torch.nn.modules.", "torch.optim.")
    )
    return asks or name.startswith("graphguard.")
