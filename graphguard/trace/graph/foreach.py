"""``_foreach_*`` operators, which optimizers and clipping use, as one call per tensor."""

from __future__ import annotations

from typing import Any

import torch

from graphguard.trace.calls.events import Ref

_POW = {"Scalar": "Tensor_Scalar", "ScalarList": "Tensor_Scalar", "List": "Tensor_Tensor", "ScalarAndTensor": "Scalar"}
_BOUNDS = {"maximum": "clamp_min", "minimum": "clamp_max"}


def item(args: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    """The arguments for the tensor at ``index``: lists give their item, everything else is shared."""
    return tuple(arg[index] if isinstance(arg, tuple) else arg for arg in args)


def single(stem: str, overload: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The operator on one tensor that ``_foreach_<stem>.<overload>`` repeats, with its arguments."""
    aten = torch.ops.aten
    if stem == "norm":
        return aten.linalg_vector_norm.default, (args[0], args[1] if len(args) > 1 else 2), {}
    if stem == "pow":
        return getattr(aten.pow, _POW[overload]), tuple(args), kwargs
    if stem in ("addcmul", "addcdiv"):
        named = {"value": args[3]} if len(args) > 3 else kwargs
        return getattr(aten, stem).default, tuple(args[:3]), named
    if stem in _BOUNDS and overload != "List":
        return getattr(aten, _BOUNDS[stem]).default, tuple(args), kwargs
    packet = getattr(aten, stem)
    last = args[-1] if len(args) > 1 else None
    kind = "Tensor" if isinstance(last, Ref) else "Scalar"
    kind = kind if kind in packet.overloads() and last is not None else "default"
    return getattr(packet, kind), tuple(args), kwargs
