"""What programs return, as plain data that processes can exchange and compare."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

Tree: TypeAlias = tuple[str, Any]
_CLOSE = 1e-9  # of the largest element: ranks may add up in another order


def tree(value: Any) -> Tree:
    """A result as it is now: later writes to its memory do not show."""
    if isinstance(value, torch.Tensor):
        return "numbers", value.detach().clone().numpy()
    if isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        return "numbers", np.array(value)
    if value is None or isinstance(value, str):
        return "word", value
    if isinstance(value, Mapping):
        return "named", {str(key): tree(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return "row", [tree(item) for item in value]
    if isinstance(value, set | frozenset):
        return "set", sorted((tree(item) for item in value), key=repr)
    if isinstance(value, types.SimpleNamespace):
        return "named", {key: tree(item) for key, item in vars(value).items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return "named", {field.name: tree(getattr(value, field.name)) for field in dataclasses.fields(value)}
    raise TypeError(f"a result of type {type(value).__name__}")


def differ(wanted: Tree, found: Tree) -> str:
    """How two results differ, in words; nothing where they do not."""
    if wanted[0] != found[0]:
        return f"{_title(found)} instead of {_title(wanted)}"
    kind, (first, second) = wanted[0], (wanted[1], found[1])
    if kind == "numbers":
        return _numbers(first, second)
    if kind == "word":
        return "" if first == second else f"{second!r} instead of {first!r}"
    if kind == "named":
        if set(first) != set(second):
            return f"names {sorted(second)} instead of {sorted(first)}"
        return next((text for key in first if (text := differ(first[key], second[key]))), "")
    if len(first) != len(second):
        return f"{len(second)} results instead of {len(first)}"
    return next((text for one, other in zip(first, second, strict=True) if (text := differ(one, other))), "")


def _numbers(first: np.ndarray, second: np.ndarray) -> str:
    if first.shape != second.shape:
        return f"shape {list(second.shape)} instead of {list(first.shape)}"
    if (first.dtype.kind == "b") != (second.dtype.kind == "b"):
        return f"{second.dtype} instead of {first.dtype}"
    if first.dtype.kind == "b":
        return "" if (first == second).all() else "other truths"
    scale = max(1.0, float(np.abs(first).max(initial=0.0)))
    off = float(np.abs(first - second).max(initial=0.0)) / scale
    return "" if off <= _CLOSE else f"off by {off:.3g}"


def _title(value: Tree) -> str:
    return repr(value[1]) if value[0] == "word" else value[0]


def combined(parts: list[Tree], placement: Any, mesh: dict[str, int]) -> tuple[Tree | None, str]:
    """What all ranks hold together under a promise; or why they hold nothing: copies that differ, or that are not there.

    ``placement`` maps axes to placements; the parts are those of the ranks in order.
    """
    for axis in reversed(mesh):
        count = mesh[axis]
        groups = [parts[start : start + count] for start in range(0, len(parts), count)]
        merged = [_merged(group, (placement or {}).get(axis)) for group in groups]
        problem = next((text for _, text in merged if text), "")
        if problem:
            return None, problem
        parts = [value for value, _ in merged if value is not None]
    return parts[0], ""


def _merged(parts: list[Tree], placement: Any) -> tuple[Tree | None, str]:
    if placement is None or placement.is_replicate():
        for rank, part in enumerate(parts[1:], 1):
            text = differ(parts[0], part)
            if text:
                return None, f"ranks differ: {text} ({rank} against 0)"
        return parts[0], ""
    if any(part[0] != "numbers" for part in parts):
        return None, f"{_title(next(part for part in parts if part[0] != 'numbers'))} instead of a part"
    arrays = [part[1] for part in parts]
    if len({array.shape for array in arrays}) > 1:
        return None, f"parts of shapes {[list(array.shape) for array in arrays]}"
    if placement.is_partial():
        return ("numbers", sum(arrays)), ""
    if arrays[0].ndim <= placement.dim:
        return None, f"parts of shape {list(arrays[0].shape)}"
    return ("numbers", np.concatenate(arrays, placement.dim)), ""
