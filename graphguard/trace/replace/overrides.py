"""What replaces one of PyTorch's functions is the function to those who ask: to programs that override it (``__torch_function__``, modes), and to TorchScript."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.jit import _builtins
from torch.overrides import handle_torch_function, has_torch_function


def overridable(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement of PyTorch's ``original``, which overriding code is given in its place, so that ``func is F.dropout`` holds there."""

    @functools.wraps(original)
    def public(*args: Any, **kwargs: Any) -> Any:
        given = tuple(arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor))
        if has_torch_function(given):
            return handle_torch_function(public, given, *args, **kwargs)
        return replacement(*args, **kwargs)

    return known_to_scripts(original, public)


def known_to_scripts(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement, which TorchScript takes for the operator that ``original`` is, or else compiles as ``original``: PyTorch itself scripts optimizers and
    formulas for gradients when they are first wanted, and programs script functions while they are imported."""
    if isinstance(original, FunctionType) and isinstance(replacement, FunctionType):
        replacement.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
    if _builtins._builtin_table is None:  # noqa: SLF001 - a table that is made later has what it finds
        return replacement
    operator = _builtins._find_builtin(original)  # noqa: SLF001
    if operator is not None:
        _builtins._register_builtin(replacement, operator)  # noqa: SLF001
    return replacement
