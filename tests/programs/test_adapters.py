"""Weights made of several parameters: low-rank adapters and weight norm beside columns and rows on ranks; with gradients."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

from .collectives import Copy, Reduce, Total

INPUTS, OUTPUTS, RANK = 6, 8, 3
INPUT = (gg.tensor(2, 5, INPUTS),)
COLUMNS: dict[str, Any] = {"in_relations": {"tp": Replicate()}, "out_relations": {"tp": Shard(2)}}
ROWS: dict[str, Any] = {"in_relations": {"tp": Shard(2)}, "out_relations": {"tp": Replicate()}}


class Split(nn.Module):
    """How many of a layer's inputs and outputs a rank has."""

    def __init__(self, mesh: Any, by_columns: bool, wrong: str) -> None:
        super().__init__()
        self.group, self.wrong = None if mesh is None else mesh.get_group("tp"), wrong
        ranks = 1 if mesh is None else mesh.size()
        self.by_columns = by_columns
        self.inputs = INPUTS if by_columns else INPUTS // ranks
        self.outputs = OUTPUTS // ranks if by_columns else OUTPUTS


class Adapted(Split):
    """A frozen weight and a product of two small ones beside it."""

    def __init__(self, mesh: Any, by_columns: bool, wrong: str = "") -> None:
        super().__init__(mesh, by_columns, wrong)
        self.weight = nn.Parameter(torch.empty(self.outputs, self.inputs), requires_grad=False)
        self.first = nn.Parameter(torch.empty(RANK, self.inputs))
        self.second = nn.Parameter(torch.empty(self.outputs, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first
        if self.group is not None and self.by_columns:
            x, first = Copy.apply(x, self.group), first if self.wrong == "first" else Copy.apply(first, self.group)
        out, small = F.linear(x, self.weight), F.linear(x, first)
        if self.group is None or self.by_columns:
            return out + 2.0 * F.linear(small, self.second)
        if self.wrong == "second":  # right forward, but every rank's gradient of the second one is its part
            return Reduce.apply(out + 2.0 * F.linear(small, self.second), self.group)
        return Reduce.apply(out, self.group) + 2.0 * F.linear(Reduce.apply(small, self.group), self.second)


class Normed(Split):
    """Every row of the weight has a length of its own."""

    def __init__(self, mesh: Any, by_columns: bool, wrong: str = "") -> None:
        super().__init__(mesh, by_columns, wrong)
        self.direction = nn.Parameter(torch.empty(self.outputs, self.inputs))
        self.length = nn.Parameter(torch.empty(self.outputs, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squares, length = self.direction.pow(2).sum(1, keepdim=True), self.length
        if self.group is not None and self.by_columns:
            x = Copy.apply(x, self.group)
        elif self.group is not None:
            squares = squares if self.wrong == "norm" else Total.apply(squares, self.group)
            length = length if self.wrong == "length" else Copy.apply(length, self.group)
        out = F.linear(x, length * self.direction / squares.sqrt())
        return out if self.group is None or self.by_columns else Reduce.apply(out, self.group)


class NormedByTorch(Split):
    def __init__(self, mesh: Any, by_columns: bool, wrong: str = "") -> None:
        super().__init__(mesh, by_columns, wrong)
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(self.inputs, self.outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        copied = self.group is not None and self.wrong != "input"
        return self.layer(Copy.apply(x, self.group) if copied else x)


@pytest.mark.parametrize(
    ("layer", "by_columns"),
    [(Adapted, True), (Adapted, False), (Normed, True), (Normed, False), (NormedByTorch, True)],
)
def test_layers(layer: Any, by_columns: bool) -> None:
    placed = COLUMNS if by_columns else ROWS
    report = gg.verify(layer(None, by_columns), lambda mesh: layer(mesh, by_columns), INPUT, mesh={"tp": 2}, **placed)
    assert report.verdict is gg.Verdict.REFINES


@pytest.mark.parametrize(
    ("layer", "by_columns", "wrong"),
    [
        (Adapted, True, "first"),
        (Adapted, False, "second"),
        (Normed, False, "norm"),
        (Normed, False, "length"),
        (NormedByTorch, True, "input"),
    ],
)
def test_wrong_layers(layer: Any, by_columns: bool, wrong: str) -> None:
    placed = COLUMNS if by_columns else ROWS
    report = gg.verify(
        layer(None, by_columns), lambda mesh: layer(mesh, by_columns, wrong), INPUT, mesh={"tp": 2}, **placed
    )
    assert report.verdict is gg.Verdict.BROKEN
