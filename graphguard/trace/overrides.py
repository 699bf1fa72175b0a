"""Functions that programs may override, by ``__torch_function__`` or a mode: what replaces one of PyTorch's asks them as the function itself would."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function


def overridable(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement of PyTorch's ``original``, which overriding code is given in its place, so that ``func is F.dropout`` holds there."""

    @functools.wraps(original)
    def public(*args: Any, **kwargs: Any) -> Any:
        given = tuple(arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor))
        if has_torch_function(given):
            return handle_torch_function(public, given, *args, **kwargs)
        return replacement(*args, **kwargs)

    return public
