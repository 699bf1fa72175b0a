"""What built-in functions return, of which a few are understood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from graphguard.trace.pure.followed import BORN, Known, Once, Several, Value, all_plain, is_born, is_number
from graphguard.trace.pure.found import items_of, short
from graphguard.trace.pure.lookups import Doubt, Lookups
from graphguard.trace.pure.operations import OF_NUMBERS, computed


def built_in(lookups: Lookups, value: Any, args: Sequence[Value], named: dict[str, Value]) -> Value:
    """What a built-in function returns."""
    if value is zip and named == {"strict": Known(False)}:
        named = {}
    if named:
        raise Doubt("a built-in function is given keywords")
    if value is len and len(args) == 1:
        found = items_of(lookups, args[0]) if not is_born(args[0]) else None
        return BORN if found is None else Known(len(found))
    if value is isinstance and len(args) == 2:
        return _is_instance(*args)
    if (value is tuple or value is list) and len(args) == 1:
        return args[0] if is_born(args[0]) else Several(items_of(lookups, args[0]))
    if value is range and all(is_number(arg) for arg in args):
        numbers = range(*(arg.value for arg in args))  # type: ignore[union-attr]
        return Several(tuple(map(Known, short(numbers))))
    if value is zip:
        return Once(tuple(map(Several, zip(*(items_of(lookups, arg) for arg in args), strict=False))))
    if value is enumerate and len(args) == 1:
        return Once(tuple(Several((Known(i), item)) for i, item in enumerate(items_of(lookups, args[0]))))
    if value is reversed and len(args) == 1:
        return Once(tuple(reversed(items_of(lookups, args[0]))))
    if any(value is one for one in OF_NUMBERS):
        all_plain(args)
        return computed(value, *(arg.value for arg in args)) if all(map(is_number, args)) else BORN  # type: ignore[union-attr]
    raise Doubt(f"{getattr(value, '__name__', value)} is called")


def _is_instance(value: Value, kinds: Value) -> Value:
    classes = kinds.value if isinstance(kinds, Known) else None
    listed: tuple[Any, ...] = classes if type(classes) is tuple else (classes,)
    if not all(isinstance(one, type) and type(one).__instancecheck__ is type.__instancecheck__ for one in listed):
        if any(one is not torch.Tensor for one in listed):
            raise Doubt("a class says itself what is an instance of it")
        return BORN if is_born(value) else Known(False)
    if isinstance(value, Known):
        return Known(isinstance(value.value, tuple(listed)))
    if is_born(value):
        return BORN
    raise Doubt("isinstance of what the call makes")
