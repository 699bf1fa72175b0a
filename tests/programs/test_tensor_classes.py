"""Tensors of the program's own classes: what their functions do is recorded, and what cannot be is told."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

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
