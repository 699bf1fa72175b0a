"""Collectives that PyTorch refuses are told, not taken for programs that run."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg


def split(sizes: list[int] | None) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x, sizes, sizes)
        return y

    return run


def gathered(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(3)]
    dist.all_gather(parts, x)
    return parts[0] + parts[1]


def scattered(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    dist.reduce_scatter(y, [x, x, x])
    return y


def gathered_flat(x: torch.Tensor) -> torch.Tensor:
    y = x.new_empty(9, 2)
    dist.all_gather_into_tensor(y, x)
    return y[:6]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (split([1, 1, 1]), "one part for each of the 2 ranks of its group; found 3 sizes"),
        (split([1, 1]), "takes 3 rows, but its sizes add up to 2"),
        (split(None), "3 rows, which cannot be divided equally by 2 ranks"),
        (gathered, "all_gather fills one tensor for each of the 2 ranks of its group; found 3"),
        (scattered, "reduce_scatter takes one tensor for each of the 2 ranks of its group; found 3"),
        (gathered_flat, "all_gather needs a tensor of 2 x 6 elements for its 2 ranks; found 18"),
    ],
    ids=["many splits", "small splits", "odd rows", "gather", "reduce_scatter", "flat gather"],
)
def test_refused(program: Callable[[torch.Tensor], torch.Tensor], told: str) -> None:
    report = gg.verify(
        lambda x: x, lambda mesh: program, (gg.tensor(6, 2),), mesh={"ep": 2}, in_relations={"ep": Shard(0)}
    )
    assert report.verdict is None
    assert [told in diagnostic.message for diagnostic in report.diagnostics] == [True]
    assert "PyTorch raises an error here" in report.diagnostics[0].message


def swapped(x: torch.Tensor) -> torch.Tensor:
    """Rows to and from three ranks, turned on the way: written for no other number of ranks."""
    sizes = [[1, 2, 1], [2, 1, 1], [1, 1, 2]]
    rank = dist.get_rank()
    received = [row[rank] for row in sizes]
    y = x.new_empty(sum(received), 2)
    dist.all_to_all_single(y, x, received, sizes[rank])
    z = torch.empty_like(x)
    dist.all_to_all_single(z, y.tanh().flip(0), sizes[rank], received)
    return z


def test_counterexamples_are_not_looked_for_where_the_program_does_not_run() -> None:
    part = {"ep": Shard(0)}
    report = gg.verify(
        torch.tanh, lambda mesh: swapped, (gg.tensor(12, 2),), mesh={"ep": 3}, in_relations=part, out_relations=part
    )
    assert report.verdict is gg.Verdict.BROKEN, report.diagnostics
