"""What stands where the largest stands is the largest: the logit of the likeliest token, picked from the ranks' by its place."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import graphguard as gg

from .divided_vocabulary import verdict

Both = tuple[torch.Tensor, torch.Tensor]


def gathered(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.stack(parts)


def likeliest(x: torch.Tensor) -> Both:
    return x.max(-1).values, x.argmax(-1)


def picked(x: torch.Tensor, by: Callable[[torch.Tensor], torch.Tensor], along: bool = False) -> Both:
    value, token = x.max(-1)
    values, tokens = gathered(value), gathered(token + dist.get_rank() * x.shape[-1])
    winner = by(values)
    read = torch.take_along_dim if along else lambda of, at, dim: of.gather(dim, at)
    return read(values, winner, 0)[0], read(tokens, winner, 0)[0]


RIGHT: list[Callable[[torch.Tensor], Both]] = [
    lambda x: picked(x, lambda values: values.argmax(0, keepdim=True)),
    lambda x: picked(x, lambda values: values.argmax(0, keepdim=True), along=True),
    lambda x: picked(x, lambda values: values.max(0, keepdim=True).indices),
    lambda x: picked(x, lambda values: (values / 0.7).argmax(0, keepdim=True)),
]
WRONG: list[Callable[[torch.Tensor], Both]] = [
    lambda x: picked(x, lambda values: values.argmin(0, keepdim=True)),
    lambda x: picked(x, lambda values: (-values).argmax(0, keepdim=True)),
    lambda x: picked(x, lambda values: values.argmax(0, keepdim=True).flip(1)),
    lambda x: picked(x, lambda values: values.flip(0).argmax(0, keepdim=True)),
]


@pytest.mark.parametrize(("extent", "ranks"), [(10, 2), (12, 3)])
@pytest.mark.parametrize("impl", RIGHT)
def test_picked(impl: Callable[[torch.Tensor], Both], extent: int, ranks: int) -> None:
    assert verdict(likeliest, impl, extent, ranks).verdict is gg.Verdict.REFINES


@pytest.mark.parametrize("impl", WRONG)
def test_wrong_picks(impl: Callable[[torch.Tensor], Both]) -> None:
    assert verdict(likeliest, impl).verdict is gg.Verdict.BROKEN


Function = Callable[[torch.Tensor], torch.Tensor]
READ: list[tuple[Function, Function, gg.Verdict]] = [
    (lambda x: x.amax(-1), lambda x: x.gather(1, x.argmax(-1, keepdim=True))[:, 0], gg.Verdict.REFINES),
    (lambda x: x.amin(0), lambda x: x.gather(0, x.argmin(0, keepdim=True))[0], gg.Verdict.REFINES),
    (
        lambda x: x.softmax(-1).amax(-1),
        lambda x: x.softmax(-1).gather(1, x.argmax(-1, keepdim=True))[:, 0],
        gg.Verdict.REFINES,
    ),
    (lambda x: x.amax(-1), lambda x: x.gather(1, x.argmin(-1, keepdim=True))[:, 0], gg.Verdict.BROKEN),
    (lambda x: x.amax(-1), lambda x: x.gather(1, x[:, :4].argmax(-1, keepdim=True))[:, 0], gg.Verdict.BROKEN),
    (lambda x: x.amax(-1), lambda x: x[:, 1:].gather(1, x[:, :4].argmax(-1, keepdim=True))[:, 0], gg.Verdict.BROKEN),
    (lambda x: x.amax(-1), lambda x: x.gather(1, (-x).argmax(-1, keepdim=True))[:, 0], gg.Verdict.BROKEN),
]


@pytest.mark.parametrize(("spec", "impl", "expected"), READ)
def test_read(spec: Function, impl: Function, expected: gg.Verdict) -> None:
    report = gg.verify(
        spec, lambda mesh: impl, (gg.tensor(4, 5),), mesh={"tp": 2}, out_relations="replicate", grads=False
    )
    assert report.verdict is expected, report.diagnostics
