"""Tensors that a program makes of numbers that it read from others: ``torch.tensor([loss.item(), rows])`` and ``torch.tensor(norms)`` ask PyTorch for the numbers, which a recording does not have."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

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
        if not any(isinstance(each, _NUMBERS) or _is_listed(each, data) for each in elements):
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


def _is_listed(element: Any, data: Any) -> bool:
    """Whether an element is a tensor in a list, which PyTorch asks for its one number."""
    return element is not data and isinstance(element, FakeTensor) and element.numel() == 1


def _type_of(data: Any) -> torch.dtype:
    """What PyTorch makes of such numbers: the type that all of theirs fit in."""
    return functools.reduce(torch.promote_types, map(_type_of_one, _elements(data)))


def _type_of_one(element: Any) -> torch.dtype:
    if isinstance(element, torch.Tensor):
        return element.dtype
    if isinstance(element, bool):
        return torch.bool
    return torch.int64 if isinstance(element, int | torch.SymInt) else torch.get_default_dtype()


def _joined(data: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    if isinstance(data, list | tuple):
        return torch.stack([_joined(item, dtype, device) for item in data])
    if isinstance(data, torch.Tensor):
        return data.detach().reshape(()).to(device=device, dtype=dtype)
    return torch.scalar_tensor(data, dtype=dtype, device=device)
