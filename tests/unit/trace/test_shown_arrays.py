"""Arrays of numbers that a recording does not have: they can be computed with and shown, and nothing of them comes back to the program."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from programs import record

from graphguard.trace.replace.number_calls import SHOWN, called
from graphguard.trace.replace.shown_arrays import REFUSED
from graphguard.trace.source.errors import TracingError

Array = Any


def recorded(use: Callable[[Array], Any]) -> Any:
    """What a program's use of an array gives, and what its recording assumes."""
    found: list[Any] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        found.append(use(x.numpy()))
        return x

    assumed = record(program, [torch.ones(2, 3)]).assumed
    return found[0], assumed


SHAPES: list[tuple[Callable[[Array], Array], tuple[int, ...]]] = [
    (lambda a: a, (2, 3)),
    (lambda a: a.T + 1, (3, 2)),
    (lambda a: (a == a[0]).mean(), ()),
    (lambda a: np.mean(a, axis=0), (3,)),
    (lambda a: np.concatenate([a, a]), (4, 3)),
    (lambda a: 2 * a.argmax(-1) / 3, (2,)),
    (lambda a: a[:, 1:].reshape(-1), (4,)),
    (lambda a: np.exp(-a).sum(1, keepdims=True), (2, 1)),
    (lambda a: np.add.reduce(a), (3,)),
    (lambda a: a.clip(0, a.max()), (2, 3)),
]


@pytest.mark.parametrize(("use", "shape"), SHAPES)
def test_what_is_computed_has_the_shape_and_type_that_numpy_gives_it(use: Any, shape: tuple[int, ...]) -> None:
    found, assumed = recorded(use)
    wanted = use(np.ones((2, 3), np.float32))
    assert (found.shape, found.dtype) == (shape, wanted.dtype)
    assert isinstance(found, np.ndarray)
    assert SHOWN not in assumed


TEXTS: list[Callable[[Array], str]] = [
    str,
    lambda a: f"{a.mean():.3f}",
    lambda a: called(None, "%.3f", a.sum()),
    lambda a: called(None, "%(loss).3f", {"loss": a.sum()}),
    lambda a: json.dumps({"loss": a.sum()}),
    lambda a: str(a.tolist()),
]


@pytest.mark.parametrize("use", TEXTS)
def test_texts_are_words_and_listed(use: Any) -> None:
    text, assumed = recorded(use)
    assert "?" in text
    assert "1" not in text
    assert SHOWN in assumed


BACK: list[Callable[[Array], Any]] = [
    lambda a: float(a.sum()),
    lambda a: int(a.sum()),
    lambda a: bool(a.sum() > 0),
    lambda a: [1, 2][a.sum()],
    lambda a: a.sum() in {1, 2},
    lambda a: {a.sum(): 1},
    lambda a: a[a > 0],
    lambda a: a.nonzero(),
    lambda a: np.unique(a),
    lambda a: np.where(a > 0),
    lambda a: np.repeat(a, 2),
    lambda a: np.sum(np.ones((1, 2)), a.argmax()),
    lambda a: np.array(a),
    lambda a: a.sum().item() + 0.0 > 1 or 0,
    lambda a: torch.tensor(a),
    lambda a: torch.tensor(a.tolist()),
    lambda a: torch.as_tensor(a),
    lambda a: torch.from_numpy(a),
    lambda a: torch.ones(3) * a,
    lambda a: a.__setitem__(0, 1),
    lambda a: a.fill(1),
    lambda a: np.copyto(a, 1),
    lambda a: np.add(a, 1, out=a),
    lambda a: a.__iadd__(1),
    lambda a: np.ones(3)[a.argmax()],
]


@pytest.mark.parametrize("use", BACK)
def test_nothing_comes_back(use: Any) -> None:
    with pytest.raises(TracingError, match=REFUSED.splitlines()[0]):
        recorded(use)


def test_known_numbers_are_arrays_as_ever() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        assert type(torch.tensor([1.0, 2.0]).numpy()) is np.ndarray
        return x * float(torch.tensor([1.0, 2.0]).numpy().sum())

    record(program, [torch.ones(2)])


def test_what_has_no_array_raises_as_ever() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(RuntimeError, match="requires grad"):
            x.requires_grad_().numpy()
        with pytest.raises(TypeError, match="BFloat16"):
            x.detach().bfloat16().numpy()
        return x

    record(program, [torch.ones(2)])
