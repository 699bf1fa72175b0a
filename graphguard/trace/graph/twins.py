"""The functional twin of every operator that writes into its arguments."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from graphguard.ir.graph import DType, Sym
from graphguard.ops import aten
from graphguard.trace.calls.events import Ref, refs_in
from graphguard.trace.calls.kinds import is_written, kind_of

_RENAMED = {
    "aten.bernoulli_.float": aten.bernoulli.p,
    "aten.normal_.default": aten.normal_functional.default,
    "aten._index_put_impl_.default": aten.index_put.default,
    "aten.uniform_.default": aten.uniform.default,
}
_COMPARISONS = frozenset(
    ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor")
)


class Twin:
    """The overload that returns what an operator writes: how many arguments it takes, their names, and its own."""

    __slots__ = ("count", "names", "operator", "short_name", "text")

    def __init__(self, operator: Any) -> None:
        schema = operator._schema  # noqa: SLF001
        self.operator = operator
        self.count = len(schema.arguments)
        self.names = frozenset(argument.name for argument in schema.arguments)
        self.short_name: str = schema.name.partition("::")[2]
        self.text = str(operator)


@cache
def twin_of(func: Any) -> Twin | None:
    """The functional twin of an operator that writes, or None where PyTorch has none."""
    found = functional_of(func)
    return None if found is None else Twin(found)


def functional_of(func: Any) -> Any | None:
    """The overload that returns what ``func`` writes, or None where PyTorch has none."""
    renamed = _RENAMED.get(str(func))
    if renamed is not None:
        return overload(renamed)
    if kind_of(func).is_foreign:
        return None
    namespace, name = func.namespace, func._schema.name.partition("::")[2]  # noqa: SLF001
    kept = [arg for arg in func._schema.arguments if not (arg.kwarg_only and is_written(arg))]  # noqa: SLF001
    stem = name
    if len(kept) == len(func._schema.arguments):  # noqa: SLF001
        stem = f"__{name[3:]}" if name.startswith("__i") else name.removesuffix("_")
        if stem == name:
            return None
    packet = getattr(getattr(torch.ops, namespace), stem, None)
    if packet is None:
        return None
    for candidate in packet.overloads():
        found = getattr(packet, candidate)
        arguments = found._schema.arguments  # noqa: SLF001
        if found._schema.is_mutable or len(arguments) < len(kept):  # noqa: SLF001
            continue
        alike = all(a.name == b.name and str(a.type) == str(b.type) for a, b in zip(kept, arguments, strict=False))
        if alike and all(arg.has_default_value() for arg in arguments[len(kept) :]):
            return found
    return None


@cache
def overload(name: str) -> Any:
    """The operator of a dotted name."""
    namespace, packet, kind = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), kind)


def result_dtypes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: list[str]) -> list[str]:
    """Element types of a functional operator's results, which go where ``like`` is; the same where it is the one type that goes in and comes out."""
    name = func._schema.name.partition("::")[2]  # noqa: SLF001
    operands = refs_in((args, kwargs))
    if len(like) == 1 and name not in _COMPARISONS and all(ref.dtype == like[0] for ref in operands):
        return like
    try:
        out = func(*_meta(args), **_meta(kwargs))
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return like  # an operator without a shape-only kernel: in-place operators keep their operand's type
    outs = out if isinstance(out, list | tuple) else [out]
    return [str(tensor.dtype).removeprefix("torch.") for tensor in outs]


def _meta(value: Any) -> Any:
    if isinstance(value, Ref):
        shape = [size if isinstance(size, int) else 2 for size in value.shape]
        return torch.empty(shape, dtype=getattr(torch, value.dtype.rstrip("*-")), device="meta")
    if isinstance(value, tuple):
        return [_meta(item) for item in value]
    if isinstance(value, dict):
        return {key: _meta(item) for key, item in value.items()}
    if isinstance(value, DType):
        return getattr(torch, value.name)
    if isinstance(value, Sym):
        return 2
    return value
