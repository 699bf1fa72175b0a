"""Rows that a rank should read and does not: told where it computes with the others."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.confirm.check import confirm
from graphguard.diagnose.diagnosis import diagnose
from graphguard.ir import Capture, CheckRef, Leaf, Placement, Promise, Span, Var
from graphguard.refine.proving.prove import prove
from graphguard.relations.numbers import Number
from graphguard.repair.numbers.point import Point
from tests.graph_text import graph_from_text

CHECK = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))
LEAVES = 'input %0: float64[4, 3] = "x"\ninput %1: float64[4, 3] = "v"\n'

SPEC = """%2: float64[3, 4] = aten.t.default(%0) forward
%3: float64[4, 4] = aten.mm.default(%0, %2) forward
%4: float64[4, 4] = aten.tanh.default(%3) forward
%5: float64[4, 3] = aten.mm.default(%4, %1) forward
output "out" = %5"""

RANK = """%2: float64[2, 3] = aten.slice.Tensor(%0, 0, {start}, {stop}) prelude
%3: float64[2, 3] = aten.slice.Tensor(%1, 0, {start}, {stop}) prelude
%4: float64[3, 4] = aten.t.default(%0) forward
%5: float64[2, 4] = aten.mm.default(%2, %4) forward
%6: float64[2, 4] = aten.tanh.default(%5) forward
%7: float64[2, 2] = aten.slice.Tensor(%6, 1, 0, 2) forward
%8: float64[2, 2] = aten.slice.Tensor(%6, 1, 2, 4) forward
%9: float64[2, 3] = aten.mm.default(%7, %{first}) forward
%10: float64[2, 3] = aten.mm.default(%8, %{second}) forward
%11: float64[2, 3] = aten.add.Tensor(%9, %10) forward
output "out" = %11"""


def capture(*parts: tuple[int, int]) -> Capture:
    """Both ranks add up what two blocks of ``v`` are multiplied with: their own for 3."""
    ranks = (
        RANK.format(start=2 * rank, stop=2 * rank + 2, first=first, second=second)
        for rank, (first, second) in enumerate(parts)
    )
    graphs = [graph_from_text(LEAVES + text) for text in (SPEC, *ranks)]
    leaves = tuple(Leaf(name, "input", graphs[0].types[var]) for var, name in graphs[0].inputs.items())
    promises = (Promise("out", {"tp": Placement("shard", 0)}),)
    return Capture(CHECK, {"tp": len(parts)}, leaves, graphs[0], tuple(graphs[1:]), promises)


def test_a_rank_that_reads_its_own_block_twice_is_told_what_it_never_reads() -> None:
    broken = capture((3, 3), (3, 3))
    numbers = confirm(broken)
    assert numbers.status == "differs"
    diagnosis = diagnose(broken, prove(broken), numbers, lambda _: None)
    assert diagnosis.findings[0].headline.endswith(
        "is all that rank 1 computes of 'v': rows 0..1 of it, on which out depends there, are read nowhere: out is wrong"
    )


def test_what_is_computed_with_and_does_not_count_is_not_told_as_unread() -> None:
    """The larger of two sums does not move with the smaller one."""

    def spec(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.maximum(x.exp(), y.clamp(-1, 1)).sum()

    def impl(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        sums = torch.stack([x.exp().sum(), y.clamp(-1, 1).sum()])
        dist.all_reduce(sums)
        return sums.amax()

    inputs = (gg.tensor(6), gg.tensor(6))
    report = gg.verify(
        spec, lambda _: impl, inputs, mesh={"dp": 2}, in_relations={"dp": Shard(0)}, out_relations="replicate"
    )
    assert report.verdict is gg.Verdict.BROKEN
    assert not any("read nowhere" in each.message for each in report.diagnostics)


def test_a_function_without_a_rule_says_nothing_of_what_is_unread() -> None:
    """What stands for it reads all of its operands, of which it may need one row each."""

    def spec(x: torch.Tensor) -> torch.Tensor:
        return torch.special.entr(x.abs())

    def impl(x: torch.Tensor) -> torch.Tensor:
        return x.abs() * torch.log(x.abs() + 0.5)

    rows = {"dp": Shard(0)}
    report = gg.verify(spec, lambda _: impl, (gg.tensor(6, 4),), mesh={"dp": 2}, in_relations=rows, out_relations=rows)
    assert report.verdict is gg.Verdict.BROKEN
    assert not any("read nowhere" in each.message for each in report.diagnostics)


def test_values_elsewhere_are_those_of_a_whole_run() -> None:
    """What does not rest on the leaf that has other values is taken over."""
    point = Point.of(capture((3, 3), (3, 3)))
    assert point is not None
    moved = {"v": Number(point.leaves["v"].array + 1)}
    spec, ranks = point.elsewhere(moved)
    whole, all_ranks = point.elsewhere({**point.leaves, **moved})
    for here, there, before in [(spec, whole, point.spec), *zip(ranks, all_ranks, point.ranks, strict=True)]:
        assert here.keys() == there.keys() == before.keys()
        assert all(np.array_equal(here[var].array, there[var].array) for var in here)
    assert spec[Var(4)] is point.spec[Var(4)]
    assert not np.array_equal(spec[Var(5)].array, point.spec[Var(5)].array)
