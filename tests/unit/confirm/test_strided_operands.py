"""Kernels that read any operand as if it were dense get dense ones: a graph has no strides, and what a slice is made of is strided."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphguard.confirm.run.operators import call
from graphguard.ir.building import Builder

ATEN = torch.ops.aten
ROWS = torch.arange(48, dtype=torch.float64).reshape(6, 8).sin()
SCALE = torch.arange(6, dtype=torch.float64).reshape(6, 1) + 1
HEADS = torch.arange(96, dtype=torch.float64).reshape(1, 2, 6, 8).cos()
MEAN, RSTD = ATEN.native_layer_norm(ROWS, [8], None, None, 1e-5)[1:]
GROUPED = torch.arange(48, dtype=torch.float64).reshape(2, 6, 4).sin()
MEANS, RSTDS = ATEN.native_group_norm(GROUPED, None, None, 2, 6, 4, 3, 1e-5)[1:]
KERNELS: dict[str, tuple[Any, ...]] = {
    "_weight_norm_interface": (ROWS, SCALE, 0),
    "_scaled_dot_product_flash_attention_for_cpu": (HEADS, HEADS, HEADS, 0.0, True),
    "native_layer_norm_backward": (ROWS, ROWS, [8], MEAN, RSTD, None, None, [True, False, False]),
    "native_group_norm_backward": (GROUPED, GROUPED, MEANS, RSTDS, None, 2, 6, 4, 3, [True, False, False]),
}


def strided(value: torch.Tensor) -> torch.Tensor:
    return torch.stack([value, value + 7], -1)[..., 0]


@pytest.mark.parametrize("name", KERNELS)
def test_kernel(name: str) -> None:
    operands = KERNELS[name]
    expected = next(iter(getattr(ATEN, name)(*operands)))
    b = Builder()
    places = [i for i, one in enumerate(operands) if isinstance(one, torch.Tensor)]
    inputs = {i: b.input(f"x{i}", tuple(operands[i].shape)) for i in places}
    b.call(
        f"aten.{name}.default",
        *(inputs.get(i, one) for i, one in enumerate(operands)),
        out=[(tuple(expected.shape), "float32")],
    )
    graph = b.graph()
    values = {inputs[i]: strided(operands[i]) for i in places}
    found = call(graph, graph.nodes[0], values, frozenset())[0]
    torch.testing.assert_close(found, expected)
