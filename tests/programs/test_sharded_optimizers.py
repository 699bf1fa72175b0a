"""Optimizers whose update of one element rests on others: factored moments, signs of sums, trust ratios, matrices dealt out to ranks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

ROWS, COLUMNS = 4, 6
Step = Callable[..., Any]


def same(x: torch.Tensor) -> torch.Tensor:
    return x


def mean_of_ranks(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    return x


def total(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x)
    return x


def factored(w: torch.Tensor, g: torch.Tensor, line: Step = same, size: Step = same) -> torch.Tensor:
    """Adafactor: second moments by rows and columns, and an update that is clipped by its own size."""
    squares = g.square() + 1e-30
    rows, columns = line(squares.mean(1)), squares.mean(0)
    update = g * (rows / rows.mean()).rsqrt()[:, None] * columns.rsqrt()
    return w - 0.1 * update / size(update.square().mean()).sqrt().clamp(min=1.0)


def trusted(w: torch.Tensor, g: torch.Tensor, norm: Step = torch.norm) -> torch.Tensor:
    """LARS: the step is as long as the weights allow."""
    return w - 0.1 * norm(w) / (norm(g) + 1e-4 * norm(w)) * (g + 1e-4 * w)


def norm_of_all(x: torch.Tensor) -> torch.Tensor:
    return total(x.square().sum()).sqrt()


def sum_of_norms(x: torch.Tensor) -> torch.Tensor:
    return total(x.norm())


def measured(w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """An update that is clipped by its size, written with the root of a Python number."""
    return w - 0.1 * g / (g.norm() / g.numel() ** 0.5).clamp(min=1.0)


def measured_over_ranks(ranks: int) -> Step:
    """The same with the root of a mean of squares."""

    def run(w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return w - 0.1 * g / (total(g.square().sum()) / (ranks * g.numel())).sqrt().clamp(min=1.0)

    return run


CASES: dict[str, tuple[Step, Step, Step]] = {
    "factored": (
        factored,
        lambda w, g: factored(w, g, mean_of_ranks, mean_of_ranks),
        lambda w, g: factored(w, g, mean_of_ranks),
    ),
    "trusted": (trusted, lambda w, g: trusted(w, g, norm_of_all), lambda w, g: trusted(w, g, sum_of_norms)),
    "measured": (measured, measured_over_ranks(2), measured_over_ranks(1)),
}


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_columns_are_split(name: str, wrong: bool) -> None:
    spec, right, mistaken = CASES[name]
    report = gg.verify(
        spec,
        lambda mesh: mistaken if wrong else right,
        inputs=(gg.tensor(ROWS, COLUMNS), gg.tensor(ROWS, COLUMNS)),
        mesh={"tp": 2},
        in_relations={"tp": Shard(1)},
        out_relations={"tp": Shard(1)},
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics


def orthogonalised(g: torch.Tensor) -> torch.Tensor:
    x = g / (g.norm() + 1e-7)
    square = x @ x.t()
    return 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x


def muon(*matrices: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(orthogonalised(each) for each in matrices)


def dealt_out(wrong: bool) -> Step:
    """Every rank updates each second matrix; the last round lacks one and is padded."""

    def run(*matrices: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        updates: list[torch.Tensor] = []
        for first in range(0, len(matrices), ranks):
            mine = torch.zeros_like(matrices[0])
            if first + rank < len(matrices):
                mine = orthogonalised(matrices[first + rank])
            parts = [torch.empty_like(mine) for _ in range(ranks)]
            dist.all_gather(parts, mine)
            updates += parts[::-1] if wrong and first == 0 else parts
        return tuple(updates[: len(matrices)])

    return run


@pytest.mark.parametrize("wrong", [False, True])
def test_matrices_are_dealt_out(wrong: bool) -> None:
    inputs = tuple(gg.tensor(3, 4) for _ in range(3))
    report = gg.verify(muon, lambda mesh: dealt_out(wrong), inputs=inputs, mesh={"dp": 2}, out_relations="replicate")
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics


def halves(x: torch.Tensor) -> torch.Tensor:
    """Half of a row's direction, worked out in half the precision."""
    return x.bfloat16() / x.bfloat16().norm(dim=-1, keepdim=True)


def stepped(w: torch.Tensor, g: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
    return w - halves(g) * rate.to(w.dtype)


@pytest.mark.parametrize(("rate", "wanted"), [(0.02, gg.Verdict.REFINES), (0.03, gg.Verdict.BROKEN)])
def test_rates_in_a_tensor_beside_bfloat16(rate: float, wanted: gg.Verdict) -> None:
    """A rate in float32 is the number that was written, whatever narrower type the program computes in, and whether it is multiplied before or after."""

    def step(w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return stepped(w, g, torch.tensor(0.02))

    def ranks(w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        rates = torch.tensor([1.0, 0.5]) * rate
        return stepped(w, g, rates[0])

    report = gg.verify(
        step,
        lambda mesh: ranks,
        (gg.tensor(ROWS, COLUMNS), gg.tensor(ROWS, COLUMNS)),
        mesh={"dp": 2},
        in_relations={"dp": Shard(0)},
        out_relations={"dp": Shard(0)},
    )
    assert report.verdict is wanted
