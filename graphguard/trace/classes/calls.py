"""Calls of PyTorch with numbers that differ between ranks: they become literals of operators, where it is known how these depend on them.

That is where a number says which elements are taken, or is an operand by itself.  Everything else takes this rank's number, and ranks whose number is another are not alike.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from graphguard.trace.calls.constants import storage_of, tensors_in
from graphguard.trace.classes.numbers import Number, Sounding, has_number, on
from graphguard.trace.classes.subscripts import Results, place_of

# Whose numbers are operands: what comes out has the shape of the tensors, whatever they are.
_OPERANDS: Final = frozenset(
    (
        "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "true_divide", "floor_divide", "remainder", "rsub",
        "eq", "ne", "lt", "le", "gt", "ge", "clamp", "clamp_", "clamp_min", "clamp_max", "clip", "where", "masked_fill", "masked_fill_",
        "fill_", "full_like", "tril", "triu", "tril_", "triu_", "tensor", "scalar_tensor", "index_fill", "index_fill_",
    )
)  # fmt: skip
_SCALARS: Final = ("full", "arange", "where", "clamp", "full_like", "masked_fill", "remainder", "add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "floor_divide", "scalar_tensor", "narrow", "select", "tril", "triu", "rsub", "index_fill")  # fmt: skip
_METHODS: Final = (
    "clamp", "clamp_", "clip", "clamp_min", "clamp_max", "masked_fill", "masked_fill_", "fill_", "new_full", "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_",
    "eq", "ne", "lt", "le", "gt", "ge", "remainder", "floor_divide", "index_fill", "index_fill_", "narrow", "select", "tril", "triu", "tril_", "triu_",
)  # fmt: skip
# Operators of PyTorch's own that take a rank to find this rank's part of a buffer, which is as large on all.
_FOLLOWED: Final = ("fsdp.all_gather_copy_in",)
_SEQUENCES: Final = (list, tuple)
_READ: Final = frozenset(
    (
        "item",
        "tolist",
        "numpy",
        "__array__",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "nonzero",
        "equal",
        "allclose",
    )
)


class Following(TorchFunctionMode):
    """Sees every call of PyTorch's Python interface while a rank is sounded.

    ``tainted`` is memory that may hold, in the place that is looked at, something else on other ranks: what is known of it is known of this rank alone.
    """

    def __init__(self, sounding: Sounding) -> None:
        super().__init__()
        self.sounding = sounding
        self.results: Results = {}
        self.in_numbers = 0
        self.tainted: set[int] = set()
        sounding.on_tensor = self.on_tensor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        frame = sys._getframe(1)  # noqa: SLF001 - who calls is what counts
        if getattr(func, "__name__", "") in _READ:
            self.read(args)
        numbers = has_number(args) or has_number(kwargs)
        result = self.call(func, args, kwargs) if numbers else func(*args, **kwargs)
        if type(result) in _SEQUENCES:
            place = place_of(frame)
            if place is not None:
                self.results[frame, place] = result  # which keeps the frame, so that no other is taken for it
        return result

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A call with such numbers among its arguments."""
        name = getattr(func, "__name__", "")
        if name in ("__getitem__", "__setitem__") and len(args) > 1 and self._indexes(args[0], args[1]):
            return self.with_literals(func, args, kwargs)
        if name in ("narrow", "select") and self._selects(name, args, kwargs):
            return self.with_literals(func, args, kwargs)
        if name == "arange" and self._counts(args, kwargs):
            return self.with_literals(func, args, kwargs)
        if name in ("full", "new_full") and not has_number(args[0 if name == "full" else 1]):
            return self.with_literals(func, args, kwargs)
        if name.strip("_") in _OPERANDS or name in _OPERANDS:
            return self.with_literals(func, args, kwargs)
        return self.with_literals(func, settled(args), settled(kwargs))

    def on_tensor(self, number: Number, operation: Callable[[Any, Any], Any], tensor: Any, reflected: bool) -> Any:
        """An operator of Python's on a number and a tensor."""
        if operation.__name__ in ("pow", "lshift", "rshift", "and_", "or_", "xor"):
            number = number.settled()
        with self._numbers():
            mine = self.sounding.literal(number)
            return self.taint(operation(tensor, mine) if reflected else operation(mine, tensor))

    def with_literals(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The call with every such number as a literal."""
        with self._numbers():
            result = func(*self.sounding.plainly(tuple(args)), **self.sounding.plainly(dict(kwargs)))
            if getattr(func, "__name__", "") == "__setitem__":
                self.taint(args[0])
            return self.taint(result)

    def taint(self, result: Any) -> Any:
        """What is looked at depends on such numbers from now on."""
        self.tainted.update(storage_of(each) for each in tensors_in(result) if isinstance(each, FakeTensor))
        return result

    def read(self, value: Any) -> None:
        """The elements of tensors are read: nobody knows what they are on other ranks, where they depend on such numbers."""
        if self.tainted and any(
            storage_of(each) in self.tainted for each in tensors_in(value) if isinstance(each, FakeTensor)
        ):
            self.sounding.alone()

    @contextmanager
    def _numbers(self) -> Any:
        self.in_numbers += 1
        try:
            yield
        finally:
            self.in_numbers -= 1

    def _indexes(self, tensor: Any, index: Any) -> bool:
        """Whether a subscript of a tensor is such that what other ranks take is known."""
        items = list(index) if isinstance(index, tuple) else [index]
        if any(isinstance(item, torch.Tensor) or type(item) in (bool, list) for item in items):
            return False
        if not all(type(size) is int for size in tensor.shape):
            return False
        dims = list(tensor.shape)
        taking = [item for item in items if item is not None and item is not Ellipsis]
        left = [dims[at] for at in range(len(taking))] if Ellipsis not in [i for i in items if i is Ellipsis] else None
        if left is None:
            before = [item for item in items[: items.index(Ellipsis)] if item is not None]
            after = len(taking) - len(before)
            left = dims[: len(before)] + dims[len(dims) - after :]
        for item, size in zip(taking, left, strict=True):
            if has_number(item):
                self._takes(item, size)
        return True

    def _takes(self, item: Any, size: int) -> None:
        """Other ranks take as many elements, from the same end."""
        sounding = self.sounding
        if type(item) is Number:
            sounding.keep({rank: (item.values[rank] < 0, -size <= item.values[rank] < size) for rank in sounding.alike})
            return
        ends = {rank: tuple(on(end, rank) for end in (item.start, item.stop, item.step)) for rank in sounding.alike}
        sounding.keep(
            {
                rank: (
                    len(range(size)[slice(*each)]),
                    *(end is not None and end < 0 for end in each),
                    *(end is not None and end > size for end in each),
                )
                for rank, each in ends.items()
            }
        )

    def _selects(self, name: str, args: Any, kwargs: Any) -> bool:
        """Whether narrowing or selecting is in range on other ranks as well."""
        if kwargs or len(args) != (4 if name == "narrow" else 3):
            return False
        tensor, dim, start = args[:3]
        length = args[3] if name == "narrow" else 1
        if (
            type(dim) is not int
            or type(length) is not int
            or not isinstance(start, int)
            or type(tensor.shape[dim]) is not int
        ):
            return False
        size = tensor.shape[dim]
        self.sounding.keep(
            {rank: (on(start, rank) < 0, on(start, rank) + length <= size) for rank in self.sounding.alike}
        )
        return True

    def _counts(self, args: Any, kwargs: Any) -> bool:
        """Whether a range of numbers has as many on other ranks."""
        if has_number(kwargs) or not all(isinstance(each, int) for each in args) or not 1 <= len(args) <= 3:
            return False
        sounding = self.sounding
        sounding.keep({rank: len(range(*(on(each, rank) for each in args))) for rank in sounding.alike})
        return True


def settled(value: Any) -> Any:
    """Arguments with this rank's numbers, of which nobody knows what becomes."""
    kind = type(value)
    if kind is Number:
        return value.settled()
    if kind is tuple or kind is list:
        return kind(map(settled, value))
    if kind is slice:
        return slice(*map(settled, (value.start, value.stop, value.step)))
    if kind is dict:
        return {key: settled(one) for key, one in value.items()}
    return value


def install(following: Following) -> None:
    """Have the functions of PyTorch that take numbers, and nothing that stands for one, take such: for the rest of this process."""
    for kind in (OpOverloadPacket, OpOverload):
        kind.__call__ = _taking_operators(kind.__call__, following)
    for name in _SCALARS:
        setattr(torch, name, _taking(getattr(torch, name), following))
    for name in _METHODS:
        setattr(torch.Tensor, name, _taking(getattr(torch.Tensor, name), following))


def _taking_operators(original: Any, following: Following) -> Any:
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not has_number(args) and not has_number(kwargs):
            return original(self, *args, **kwargs)
        follows = str(self).startswith(_FOLLOWED)
        given = (args, kwargs) if follows else (settled(args), settled(kwargs))
        return following.with_literals(functools.partial(original, self), *given)

    return call


def _taking(original: Any, following: Following) -> Any:
    def taking(*args: Any, **kwargs: Any) -> Any:
        if has_number(args) or has_number(kwargs):
            return following.call(original, args, kwargs)
        return original(*args, **kwargs)

    taking.__name__ = original.__name__
    return taking
