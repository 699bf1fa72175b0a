"""What kernels for the ``meta`` device say of every sample of PyTorch's own operator tests, against ``FakeTensorMode``.

Recordings ask the kernel first (:mod:`graphguard.trace.calls.kernels`): shapes, strides, element types, memory and refusals must be the same.
PyTorch's samples need ``expecttest``.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from graphguard.trace.calls.kernels import Kernels
from graphguard.trace.calls.kinds import kind_of
from graphguard.trace.record.operators import new_fake_mode

TYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)


class Compared(TorchDispatchMode):
    """Asks both of every call that changes no operand; ``differences`` has the operators on which they differ."""

    def __init__(self, mode: Any, asked: Counter[str], differences: dict[str, str]) -> None:
        super().__init__()
        self.kernels, self.asked, self.differences = Kernels(mode), asked, differences

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The answer of ``FakeTensorMode``."""
        kwargs = kwargs or {}
        if func._schema.is_mutable:  # noqa: SLF001
            return func(*args, **kwargs)
        self.asked["calls"] += 1
        Kernels.answers.clear()
        try:
            ours = _facts(self.kernels.run(kind_of(func), args, kwargs), args, kwargs)
        except Exception:  # noqa: BLE001 - types that kernels refuse, and FakeTensorMode does not
            self.asked["refused by us"] += 1
            return func(*args, **kwargs)
        try:
            out = func(*args, **kwargs)
        except Exception as error:
            self.differences.setdefault(f"{func}, which is refused", repr(error))
            raise
        if (theirs := _facts(out, args, kwargs)) != ours:
            self.differences.setdefault(str(func), f"{theirs}, and not {ours}")
        return out


def compare(most: int, tell: Callable[[str], None]) -> int:
    """At most so many samples of an operator and element type, with their backward passes, and all that are to be refused; how many operators differ."""
    from torch.testing._internal.common_methods_invocations import op_db  # needs expecttest

    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # it logs what it refuses
    asked: Counter[str] = Counter()
    differences: dict[str, str] = {}
    for operator in op_db:
        for sample in _samples(operator, most):
            with new_fake_mode() as mode:
                converter = mode.fake_tensor_converter
                fake = [
                    tree_map_only(torch.Tensor, lambda real, c=converter, m=mode: c.from_real_tensor(m, real), each)
                    for each in (sample.input, sample.args, sample.kwargs)
                ]
                try:
                    with Compared(mode, asked, differences):
                        _run(operator, *fake)
                except Exception:  # noqa: BLE001 - some samples are to be refused, and some need numbers
                    asked["refused samples"] += 1
    for name, how in differences.items():
        tell(f"{name}: {how}")
    tell(", ".join(f"{count} {what}" for what, count in asked.items()))
    return len(differences)


def _samples(operator: Any, most: int) -> Iterator[Any]:
    for dtype in TYPES:
        if dtype in operator.dtypes:
            differentiable = dtype.is_floating_point and operator.supports_autograd
            found = list(operator.sample_inputs("cpu", dtype, requires_grad=differentiable))
            yield from random.Random(0).sample(found, min(most, len(found)))
    if operator.error_inputs_func is not None:
        yield from (error.sample_input for error in operator.error_inputs("cpu"))


def _run(operator: Any, first: Any, args: Any, kwargs: Any) -> None:
    found = [one for one in tree_leaves(operator(first, *args, **kwargs)) if isinstance(one, torch.Tensor)]
    losses = [one.abs().sum() for one in found if one.requires_grad]
    if losses:
        torch.autograd.backward(losses)


def _facts(value: Any, args: Any, kwargs: Any) -> list[Any]:
    operands = tree_leaves((args, kwargs))
    several = isinstance(value, (list, tuple))
    return [type(value) if several else None, *(_fact(one, operands) for one in (value if several else (value,)))]


def _fact(value: Any, operands: list[Any]) -> Any:
    if not isinstance(value, FakeTensor):
        return value
    memory = value.untyped_storage()
    shown = [
        place
        for place, operand in enumerate(operands)
        if isinstance(operand, FakeTensor) and operand.untyped_storage()._cdata == memory._cdata  # noqa: SLF001
    ]
    # of one index, or none, a stride says nothing
    steps = [step for size, step in zip(value.shape, value.stride(), strict=True) if size != 1 and value.numel()]
    return value.dtype, tuple(value.shape), steps, value.storage_offset(), value.fake_device, memory.nbytes(), shown
