"""Indices that an operator is said to act over one by one, against PyTorch: a range of each gives that range of the results."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from graphguard.ir import Node, Var
from graphguard.ops import traits_of
from graphguard.refine.evaluation.batching import Dims, batching

from .bench import operator, tensors_of
from .samples import SAMPLES, Make


def r(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def attention(query: Any, key: Any, value: Any, causal: bool, grouped: bool) -> torch.Tensor:
    return scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=grouped)


def gradients(grad: Any, query: Any, key: Any, value: Any, out: Any, causal: bool, grouped: bool) -> list[torch.Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
    return list(torch.autograd.grad(attention(*leaves, causal, grouped), leaves, grad))


#: Calls with every index that they act over one by one.
CALLS = [
    ("aten.mm.default", (r(4, 3), r(3, 6)), {"i", "k"}),
    ("aten.bmm.default", (r(2, 4, 3), r(2, 3, 6)), {"b", "i", "k"}),
    ("aten.addmm.default", (r(6), r(4, 3), r(3, 6)), {"i", "k"}),
    ("aten.addmm.default", (r(4, 1), r(4, 3), r(3, 6)), {"i", "k"}),
    ("aten.baddbmm.default", (r(1, 4, 6), r(2, 4, 3), r(2, 3, 6)), {"b", "i", "k"}),
    ("aten.add.Tensor", (r(4, 1, 6), r(5, 1)), {"0", "1", "2"}),
    ("aten.where.self", (r(4, 6) > 0, r(6), r(4, 1)), {"0", "1"}),
    ("aten._to_copy.default", (r(4, 6),), {"0", "1"}),
    ("aten.sum.dim_IntList", (r(4, 5, 6), [1]), {"0", "2"}),
    ("aten.sum.dim_IntList", (r(4, 5, 6), [-1, 0], True), {"1"}),
    ("aten.mean.dim", (r(4, 5, 6), [0]), {"1", "2"}),
    ("aten.amax.default", (r(4, 6), [-1], True), {"0"}),
    ("aten._softmax.default", (r(4, 6), -1, False), {"0"}),
    ("aten._log_softmax.default", (r(4, 6), 0, False), {"1"}),
    ("aten.native_layer_norm.default", (r(4, 5, 6), [6], r(6), r(6), 1e-5), {"0", "1"}),
    ("aten.native_layer_norm.default", (r(4, 5, 6), [5, 6], None, None, 1e-5), {"0"}),
    ("aten.embedding.default", (r(5, 6), torch.tensor([[0, 4, 2], [1, 1, 3]])), {"0", "1", "column"}),
    ("gg.sdpa", (r(2, 6, 5, 4), r(2, 6, 5, 4), r(2, 6, 5, 4), None, 0.0, True, None, False), {"0", "head"}),
    ("gg.sdpa", (r(6, 5, 4), r(2, 3, 4), r(2, 3, 4), None, 0.0, False, None, True), {"head"}),
    (
        "gg.sdpa_backward",
        (r(2, 6, 5, 4), r(2, 6, 5, 4), r(2, 2, 5, 4), r(2, 2, 5, 4), r(2, 6, 5, 4), None, 0.0, True, None, True),
        {"0", "head"},
    ),
]


def run(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """PyTorch's results."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if op.startswith("gg.sdpa"):
        rest = args[len(tensors) :]
        found = (attention if op == "gg.sdpa" else gradients)(*tensors, rest[2], rest[4])
        return tensors_of(found)
    return tensors_of(operator(op)(*args, **kwargs))


def extents(shapes: list[tuple[int, ...]], rows: tuple[Dims, ...]) -> dict[str, int]:
    """How far every index runs; all dims of one index must agree."""
    found: dict[str, int] = {}
    for shape, dims in zip(shapes, rows, strict=True):
        for size, dim in zip(shape, dims, strict=True):
            if dim is not None:
                assert found.setdefault(dim[0], size // dim[1]) * dim[1] == size
    return found


def within(tensor: torch.Tensor, dims: Dims, ranges: dict[str, range]) -> torch.Tensor:
    """A tensor where its indices are in ranges."""
    for place, dim in enumerate(dims):
        if dim is not None:
            span = ranges[dim[0]]
            tensor = tensor.narrow(place, span.start * dim[1], len(span) * dim[1])
    return tensor


def indices_of(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[str] | None:
    """The indices that a call is said to act over one by one, each of which is checked; None where nothing is said."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    places = iter(range(len(tensors)))
    named = tuple(
        Var(next(places)) if isinstance(a, torch.Tensor) else tuple(a) if isinstance(a, list) else a for a in args
    )
    whole = run(op, args, kwargs)
    outs = tuple(Var(len(tensors) + place) for place in range(len(whole)))
    found = batching(Node(op, named, kwargs, outs), [tuple(v.shape) for v in tensors], [tuple(v.shape) for v in whole])
    if found is None:
        return None
    sizes = extents([tuple(v.shape) for v in (*tensors, *whole)], (*found.operands, *found.results))
    cuts = {index: [range(size // 2), range(size // 2, size)] for index, size in sizes.items()}
    for spans in product(*cuts.values()):
        ranges = dict(zip(cuts, spans, strict=True))
        if any(not span for span in spans):
            continue
        parts = iter([within(v, dims, ranges) for v, dims in zip(tensors, found.operands, strict=True)])
        made = run(op, tuple(next(parts) if isinstance(a, torch.Tensor) else a for a in args), kwargs)
        for part, results, dims in zip(made, whole, found.results, strict=True):
            torch.testing.assert_close(part, within(results, dims, ranges), rtol=1e-9, atol=1e-12, equal_nan=True)
    return set(sizes)


@pytest.mark.parametrize(("op", "args", "wanted"), CALLS, ids=[f"{i}-{call[0]}" for i, call in enumerate(CALLS)])
def test_indices_of_a_call(op: str, args: tuple[Any, ...], wanted: set[str]) -> None:
    assert indices_of(op, args, {}) == wanted


TORCH = [(op, make) for op, make in SAMPLES if traits_of(op).pointwise]


@pytest.mark.parametrize(("op", "make"), TORCH, ids=[f"{i}-{op}" for i, (op, _) in enumerate(TORCH)])
def test_what_is_said_of_any_operator_holds(op: str, make: Make) -> None:
    torch.manual_seed(0)
    call = make()
    if (
        call.expected is None
        and call.draws is None
        and all(isinstance(arg, torch.Tensor | int | float | None) for arg in call.args)
    ):
        indices_of(op, call.args, call.kwargs)


MASKED = (r(2, 4, 3), r(2, 4, 3), r(2, 4, 3))


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("gg.sdpa", (*MASKED, r(4, 4), 0.0, False, None, False)),
        ("gg.sdpa", (*MASKED, None, 0.5, False, None, False)),
        ("aten.cat.default", ([r(2, 3), r(2, 3)], 0)),
        ("aten.glu.default", (r(2, 4), 1)),
        ("aten.cumsum.default", (r(2, 4), 1)),
        ("aten.sum.dim_IntList", (r(2, 4), None)),
    ],
    ids=["a mask", "dropout", "cat", "glu", "cumsum", "a whole sum"],
)
def test_nothing_is_said_of_what_is_not_known(op: str, args: tuple[Any, ...]) -> None:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    places = iter(range(9))

    def named(arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            return Var(next(places))
        return tuple(map(named, arg)) if isinstance(arg, list) else arg

    node = Node(op, tuple(map(named, args)), {}, (Var(9),))
    assert batching(node, [tuple(v.shape) for v in tensors], [(2, 4)]) is None
