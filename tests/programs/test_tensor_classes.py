"""Tensors of the program's own classes: what their functions do is recorded, and what cannot be is told."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch.overrides

import graphguard as gg

X = (gg.tensor(4, 6),)


class Tagged(torch.Tensor):
    """A tensor that says where it comes from."""

    def told(self) -> str:
        return "tagged"


class Doubling(torch.Tensor):
    """A tensor whose rectifier doubles."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out.as_subclass(torch.Tensor) * 2 if func is F.relu else out


class Dispatching(torch.Tensor):
    """A tensor that takes operators apart without wrapping anything."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def tagged(x: torch.Tensor) -> torch.Tensor:
    y = x.as_subclass(Tagged) * 2
    assert y.told() == "tagged"
    return y


def averaged(x: torch.Tensor) -> torch.Tensor:
    y = x.as_subclass(Tagged).clone()
    dist.all_reduce(y)
    return y


def doubling(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x.as_subclass(Doubling))


def verdict(spec: Callable[..., Any], impl: Callable[..., Any]) -> Any:
    return gg.verify(spec, lambda _: impl, X, mesh={"dp": 2}, out_relations="replicate")


def test_a_class_of_ones_own_computes_what_a_tensor_does() -> None:
    found = verdict(lambda x: x * 2, tagged)
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
    assert any(one.startswith("Tagged is asked for by isinstance") for one in found.assumed)


def test_a_mistake_with_such_a_tensor_is_found() -> None:
    assert verdict(lambda x: x, averaged).verdict is gg.Verdict.BROKEN


def test_what_the_class_makes_of_a_function_is_recorded() -> None:
    assert verdict(lambda x: F.relu(x) * 2, doubling).verdict is gg.Verdict.REFINES
    assert verdict(F.relu, doubling).verdict is gg.Verdict.BROKEN


def test_a_class_that_takes_operators_apart_must_wrap_a_tensor() -> None:
    found = verdict(lambda x: x * 2, lambda x: x.as_subclass(Dispatching) * 2)
    assert found.verdict is None
    assert found.diagnostics[0].message.startswith("a tensor that becomes a Dispatching")


class Halving(torch.overrides.TorchFunctionMode):
    """What the program has in place of one function, which it compares with PyTorch's own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out * 0.5 if func is self.function else out


class HalvedAttention(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out.as_subclass(torch.Tensor) * 0.5 if func is F.scaled_dot_product_attention else out


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x)


def dropped(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5)


def classes(x: torch.Tensor) -> torch.Tensor:
    return F.one_hot(x.argmax(-1), 6)


def moved(x: torch.Tensor) -> torch.Tensor:
    return x.cuda().to("cuda:0").cpu()


@pytest.mark.parametrize(
    ("program", "function"),
    [
        (attention, lambda: F.scaled_dot_product_attention),
        (dropped, lambda: F.dropout),
        (classes, lambda: F.one_hot),
        (moved, lambda: torch.Tensor.to),
        (moved, lambda: torch.Tensor.cuda),
    ],
)
def test_a_mode_is_asked_of_functions_that_are_recorded_whole(
    program: Callable[..., Any], function: Callable[[], Any]
) -> None:
    def halved(x: torch.Tensor) -> torch.Tensor:
        with Halving(function()):
            return program(x)

    found = verdict(lambda x: program(x) * 0.5, halved)
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
    assert verdict(program, halved).verdict is gg.Verdict.BROKEN


def test_a_class_is_asked_of_attention_too() -> None:
    found = verdict(lambda x: attention(x) * 0.5, lambda x: attention(x.as_subclass(HalvedAttention)))
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
    assert verdict(attention, lambda x: attention(x.as_subclass(HalvedAttention))).verdict is gg.Verdict.BROKEN
