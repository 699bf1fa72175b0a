"""Tensors that a program makes of numbers that it read from others: ``torch.tensor([loss.item(), rows])`` asks PyTorch for the numbers, which a recording does not have."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from graphguard.trace.calls import state
from graphguard.trace.replace.overrides import known_to_scripts
from graphguard.trace.replace.shown_arrays import is_shown, refuse

_NUMBERS = (torch.SymInt, torch.SymFloat)


def install() -> None:
    """Let ``torch.tensor`` and its kin put such numbers together as tensors while a program is recorded."""
    for name in ("tensor", "as_tensor", "from_numpy"):
        original = getattr(torch, name)
        setattr(torch, name, known_to_scripts(original, functools.wraps(original)(_made_of(original))))


def _made_of(original: Any) -> Any:
    def tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
        elements = () if state.current_recorder() is None else list(_elements(data))
        if any(map(is_shown, elements)):
            refuse()
        if not any(isinstance(each, _NUMBERS) for each in elements):
            return original(data, *args, **kwargs)
        dtype = kwargs.get("dtype", args[0] if args else None)
        made = _joined(data, dtype or _type_of(data), kwargs.get("device"))
        return made.requires_grad_() if kwargs.get("requires_grad") else made

    return tensor


def _elements(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for item in data:
            yield from _elements(item)
    else:
        yield data


def _type_of(data: Any) -> torch.dtype:
    """What PyTorch makes of such numbers: the default type where any has a fraction."""
    whole = all(
        isinstance(each, int | torch.SymInt) or (isinstance(each, torch.Tensor) and not each.is_floating_point())
        for each in _elements(data)
    )
    return torch.int64 if whole else torch.get_default_dtype()


def _joined(data: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    if isinstance(data, list | tuple):
        return torch.stack([_joined(item, dtype, device) for item in data])
    if isinstance(data, torch.Tensor):
        return data.detach().reshape(()).to(device=device, dtype=dtype)
    return torch.scalar_tensor(data, dtype=dtype, device=device)
