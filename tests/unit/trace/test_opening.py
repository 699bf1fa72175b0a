"""Operators of ``torch.library``: their code is recorded as eager PyTorch runs it; what cannot be recorded stays closed, and is listed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from programs import ops_of, record, record_ranks, run, run_ranks

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
LIBRARY = torch.library.Library("gg_opening", "DEF")


def defined(name: str, schema: str, key: str) -> Callable[[Any], Any]:
    LIBRARY.define(f"{name}{schema}")

    def implemented(function: Any) -> Any:
        LIBRARY.impl(name, function, key)
        return getattr(torch.ops.gg_opening, name)

    return implemented


@torch.library.custom_op("gg_opening::swiglu", mutates_args=())
def swiglu(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return F.silu(a) * b * scale


@torch.library.custom_op("gg_opening::swiglu_backward", mutates_args=())
def swiglu_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    s = torch.sigmoid(a)
    return torch.cat([grad * b * (s + a * s * (1 - s)), grad * a * s], -1)


def keep(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])


swiglu.register_autograd(lambda ctx, grad: (swiglu_backward(grad, *ctx.saved_tensors), None), setup_context=keep)


@torch.library.custom_op("gg_opening::increment", mutates_args=("x",))
def increment(x: torch.Tensor, *, by: float) -> None:
    x.add_(by)


@defined("explicit", "(Tensor x, *, int n=3) -> (Tensor, Tensor)", "CompositeExplicitAutograd")
def explicit(x: torch.Tensor, *, n: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return x * n, x.sum(0)


@defined("implicit", "(Tensor x) -> Tensor", "CompositeImplicitAutograd")
def implicit(x: torch.Tensor) -> torch.Tensor:
    return x.exp() * x


@defined("kernel", "(Tensor x) -> Tensor", "CPU")
def kernel(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x


@torch.library.custom_op("gg_opening::product", mutates_args=())
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y.t()


@torch.library.custom_op("gg_opening::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


@sine.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def with_gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], Any]:
    def program(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        out = function(x)
        return out, torch.autograd.grad(out.square().sum(), x)[0]

    return program


def in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return product(x, x)


def einsum(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.einsum("ij,kj->ik", x, x)


def written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    increment(y[1], by=0.5)
    return y


PROGRAMS = {
    "custom_op": lambda x: swiglu(x, 2.0),
    "its gradient": with_gradient(swiglu),
    "writes": written,
    "several results": lambda x: explicit(x, n=5),
    "made of others": with_gradient(implicit),
    "made of others, without autograd": torch.no_grad()(implicit),
    "a kernel without a gradient of its own": with_gradient(kernel),
    "autocast": in_bfloat16,
    "autocast of what PyTorch makes of others, without autograd": torch.inference_mode()(einsum),
    "in inference mode": torch.inference_mode()(lambda x: swiglu(x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_code_of_an_operator_is_recorded_as_eager_runs_it(name: str) -> None:
    program = PROGRAMS[name]
    graph = record(program, [X]).graph
    assert graph is not None
    assert not [op for op in ops_of(graph) if op.startswith("gg_opening")]
    found = run(graph, {"in0": X})
    expected = program(X)
    for index, value in enumerate(expected if isinstance(expected, tuple) else (expected,)):
        assert found[f"out[{index}]"].dtype == value.dtype
        torch.testing.assert_close(found[f"out[{index}]"], value)


def test_what_cannot_be_recorded_stays_closed_and_is_listed() -> None:
    @torch.library.custom_op("gg_opening::partly", mutates_args=())
    def partly(x: torch.Tensor) -> torch.Tensor:
        return sine(x * 2) + 1

    @torch.library.custom_op("gg_opening::late", mutates_args=())
    def late(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.sin((x * 2).numpy()))

    late.register_fake(torch.empty_like)
    trace = record(lambda x: partly(x) + late(x), [X])
    assert ops_of(trace.graph) == [
        "aten.mul.Tensor", "gg_opening.sine.default", "aten.add.Tensor", "gg_opening.late.default", "aten.add.Tensor",
    ]  # fmt: skip
    assert [text.partition(" is a function")[0] for text in trace.assumed] == [
        "torch.ops.gg_opening.late",
        "torch.ops.gg_opening.sine",
    ]


def test_an_error_of_the_code_is_the_programs() -> None:
    product.register_fake(lambda x, y: x.new_empty(x.shape[0], y.shape[0]))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        record(lambda x: product(x, x[:, :3]), [X])


def test_a_draw_before_the_code_fails_is_not_lost() -> None:
    @torch.library.custom_op("gg_opening::noisy", mutates_args=())
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy((x + torch.rand_like(x)).numpy())

    noisy.register_fake(torch.empty_like)
    with pytest.raises(Exception, match="depends on its inputs"):
        record(noisy, [X])


def test_a_shape_function_that_returns_its_operand_does_not_make_the_result_the_operand() -> None:
    @torch.library.custom_op("gg_opening::detach", mutates_args=())
    def negated(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(-x.numpy())

    negated.register_fake(lambda x: x)
    graph = record(lambda x: (negated(x), x + 1), [X]).graph
    assert graph is not None
    closed, plus = graph.nodes
    assert closed.op == "gg_opening.detach.default"
    assert graph.outputs["out[0]"] == closed.outs[0]
    assert plus.args[0] == closed.args[0]


@torch.library.custom_op("gg_opening::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    count = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(count)
    total = x * count.item()
    dist.all_reduce(total)
    return total


def test_collectives_inside_an_operator_are_collectives() -> None:
    """On constants, too, which ranks add up in lockstep."""
    graphs = record_ranks(lambda x: counted(x), [X], {"tp": 2})
    for found in run_ranks(graphs, {"in0": X}):
        torch.testing.assert_close(found["out[0]"], 6 * X)
