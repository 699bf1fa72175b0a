"""Exponentials and logarithms in base two, as kernels compute them, and logarithms that are handed on in another base."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

LN2 = 0.6931471805599453
LOG2E = 1.4426950408889634
Function = Callable[[torch.Tensor], torch.Tensor]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.t(), -1) @ v


def merged(passed_on: Function) -> Callable[..., torch.Tensor]:
    """The ranks' parts of the attention, put together by the logarithms of their sums."""

    def impl(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        s = q @ k.t()
        o, lse = torch.softmax(s, -1) @ v, passed_on(torch.logsumexp(s, -1, keepdim=True))
        top = lse.clone()
        dist.all_reduce(top, op=dist.ReduceOp.MAX)
        c = torch.exp(lse - top)
        o, c = o * c, c.clone()
        dist.all_reduce(o)
        dist.all_reduce(c)
        return o / c

    return impl


@pytest.mark.parametrize(
    ("passed_on", "expected"),
    [
        (lambda lse: lse / LN2 * LN2, gg.Verdict.REFINES),
        (lambda lse: lse * LOG2E * LN2, gg.Verdict.REFINES),
        (lambda lse: lse / math.log(10) * math.log(10), gg.Verdict.REFINES),
        (lambda lse: lse / LN2, gg.Verdict.BROKEN),
        (lambda lse: lse / math.log(10) * LN2, gg.Verdict.BROKEN),
        (lambda lse: lse / LN2 * 0.69, gg.Verdict.BROKEN),
    ],
)
def test_logarithms_of_sums(passed_on: Function, expected: gg.Verdict) -> None:
    cut = {"cp": Shard(0)}
    report = gg.verify(
        attention,
        lambda mesh: merged(passed_on),
        (gg.tensor(3, 2), gg.tensor(8, 2), gg.tensor(8, 2)),
        mesh={"cp": 4},
        in_relations=({}, cut, cut),
        out_relations="replicate",
    )
    assert report.verdict is expected, report.diagnostics


def in_base_two(x: torch.Tensor, factor: float = LOG2E) -> torch.Tensor:
    y = x * factor
    p = torch.exp2(y - y.amax(-1, keepdim=True))
    return p / p.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("spec", "impl", "expected"),
    [
        (lambda x: x.softmax(-1), in_base_two, gg.Verdict.REFINES),
        (lambda x: (x / 8).softmax(-1), lambda x: in_base_two(x, 0.125 * LOG2E), gg.Verdict.REFINES),
        (lambda x: x.logsumexp(-1), lambda x: torch.exp2(x / LN2).sum(-1).log2() * LN2, gg.Verdict.REFINES),
        (lambda x: x.exp(), lambda x: 2 ** (x * math.log2(math.e)), gg.Verdict.REFINES),
        (lambda x: x.exp(), lambda x: 10 ** (x * math.log10(math.e)), gg.Verdict.REFINES),
        (lambda x: x.softmax(-1), lambda x: in_base_two(x, 1.0), gg.Verdict.BROKEN),
        (lambda x: x.softmax(-1), lambda x: in_base_two(x, LN2), gg.Verdict.BROKEN),
        (lambda x: x.logsumexp(-1), lambda x: torch.exp2(x / LN2).sum(-1).log2(), gg.Verdict.BROKEN),
    ],
)
def test_functions(spec: Function, impl: Function, expected: gg.Verdict) -> None:
    report = gg.verify(spec, lambda mesh: impl, (gg.tensor(4, 5),), mesh={"tp": 2}, out_relations="replicate")
    assert report.verdict is expected, report.diagnostics
