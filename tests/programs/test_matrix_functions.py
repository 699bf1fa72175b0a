"""Optimizers that invert, factor or measure whole matrices: their sides and columns are split, what they see whole is not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

Step = Callable[..., torch.Tensor]
ROWS, COLUMNS = 7, 6


def inverted(statistics: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve(statistics + 1e-4 * torch.eye(ROWS), gradient)


def factored(statistics: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    root = torch.linalg.cholesky(statistics)
    return torch.linalg.solve_triangular(root, gradient, upper=False)


def rotated(statistics: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    scales, vectors = torch.linalg.eigh(statistics)
    return vectors @ ((vectors.t() @ gradient) / scales[:, None])


def preconditioned(step: Step, reduced: bool) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """The statistics of rows take part from every rank's columns."""

    def run(statistics: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outer = gradient @ gradient.t()
        if reduced:
            dist.all_reduce(outer)
        statistics = statistics + outer
        return step(statistics, gradient), statistics

    return run


@pytest.mark.parametrize("step", [inverted, factored, rotated])
@pytest.mark.parametrize(("reduced", "wanted"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_columns_are_split(step: Step, reduced: bool, wanted: gg.Verdict) -> None:
    report = gg.verify(
        preconditioned(step, reduced=False),
        lambda mesh: preconditioned(step, reduced),
        inputs=(gg.tensor(ROWS, ROWS), gg.tensor(ROWS, COLUMNS)),
        mesh={"tp": 2},
        in_relations=({}, {"tp": Shard(1)}),
        out_relations=({"tp": Shard(1)}, {"tp": Replicate()}),
    )
    assert report.verdict is wanted, report.diagnostics


@pytest.mark.parametrize("rows", [2, 3, 5])
@pytest.mark.parametrize(("shift", "wanted"), [(1e-3, gg.Verdict.REFINES), (2e-3, gg.Verdict.BROKEN)])
def test_multiples_of_the_identity_leave_a_matrix_whole(rows: int, shift: float, wanted: gg.Verdict) -> None:
    def step(shift: float, reduced: bool) -> Step:
        def run(gradient: torch.Tensor) -> torch.Tensor:
            outer = gradient @ gradient.t()
            if reduced:
                dist.all_reduce(outer)
            return torch.linalg.solve(outer + shift * torch.eye(rows), gradient)

        return run

    report = gg.verify(
        step(1e-3, reduced=False),
        lambda mesh: step(shift, reduced=True),
        inputs=(gg.tensor(rows, COLUMNS),),
        mesh={"tp": 2},
        in_relations={"tp": Shard(1)},
        out_relations={"tp": Shard(1)},
    )
    assert report.verdict is wanted, report.diagnostics


def nearest(gathered: bool) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        if gathered:
            parts = [torch.empty_like(codes) for _ in range(2)]
            dist.all_gather(parts, codes)
            codes = torch.cat(parts)
        return torch.cdist(x, codes).square().amin(-1)

    return run


@pytest.mark.parametrize(("gathered", "wanted"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_nearest_code(gathered: bool, wanted: gg.Verdict) -> None:
    inputs: tuple[Any, ...] = (gg.tensor(6, 3), gg.tensor(4, 3))
    report = gg.verify(
        nearest(gathered=False),
        lambda mesh: nearest(gathered),
        inputs=inputs,
        mesh={"tp": 2},
        in_relations={"tp": Shard(0)},
        out_relations={"tp": Shard(0)},
    )
    assert report.verdict is wanted, report.diagnostics
