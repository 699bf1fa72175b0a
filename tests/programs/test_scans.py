"""Running sums, products and extremes of a line that is split: what every part ends with is passed to those after it."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

from .collectives import Gather

Function = Callable[[torch.Tensor], torch.Tensor]
Merge = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
SCANS: dict[str, tuple[Function, Merge]] = {
    "sum": (lambda x: x.cumsum(0), lambda y, before: y + before.sum(0)),
    "product": (lambda x: x.cumprod(0), lambda y, before: y * before.prod(0)),
    "logarithm": (lambda x: x.logcumsumexp(0), lambda y, before: torch.logaddexp(y, before.logsumexp(0))),
    "largest": (lambda x: x.cummax(0).values, lambda y, before: torch.maximum(y, before.amax(0))),
    "smallest": (lambda x: x.cummin(0).values, lambda y, before: torch.minimum(y, before.amin(0))),
}


def in_parts(scan: Function, merge: Merge, wrong: bool) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = scan(x)
        ends = Gather.apply(y[:1] if wrong else y[-1:], None, 0)
        rank = dist.get_rank()
        return merge(y, ends[:rank]) if rank else y

    return run


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("name", SCANS)
def test_scans(name: str, wrong: bool) -> None:
    scan, merge = SCANS[name]
    report = gg.verify(
        scan,
        lambda mesh: in_parts(scan, merge, wrong),
        inputs=(gg.tensor(9, 2),),
        mesh={"cp": 3},
        in_relations={"cp": Shard(0)},
        out_relations={"cp": Shard(0)},
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics
