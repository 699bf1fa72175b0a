"""Functions of whole lines that are put together from parts, masks of chosen positions, and comparisons of an index with an unknown number."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

Function = Callable[..., torch.Tensor]


def verdict(spec: Function, impl: Function, *inputs: object, **how: object) -> gg.Verdict | None:
    return gg.verify(spec, lambda _: impl, inputs, mesh={"tp": 2}, **how).verdict  # type: ignore[arg-type]


def kept(scores: torch.Tensor) -> torch.Tensor:
    """Scores and a bound before them, in order."""
    return torch.cat((torch.zeros(scores.shape[0], 1), scores), 1).sort(-1).values


def halves(function: Function) -> Function:
    def impl(scores: torch.Tensor) -> torch.Tensor:
        return function(scores.chunk(2)[dist.get_rank()])

    return impl


@pytest.mark.parametrize(
    "function",
    [
        kept,
        lambda x: torch.nn.functional.pad(x, (1, 2)).topk(2).values,
        lambda x: torch.where(torch.arange(4) < 2, x, float("-inf")).argsort(-1),
        lambda x: torch.cat((x, x[:, :1] * 2), 1).cummax(-1).values,
    ],
)
def test_batches_of_lines_in_parts(function: Function) -> None:
    assert verdict(function, halves(function), gg.tensor(4, 4), out_relations={"tp": Shard(0)}) is gg.Verdict.REFINES


@pytest.mark.parametrize("other", [(2, 1), (1, 3)])
def test_parts_at_other_places(other: tuple[int, int]) -> None:
    def padded(before: int, after: int) -> Function:
        return lambda x: torch.nn.functional.pad(x, (before, after)).sort(-1).values[:, :4].cumsum(-1)

    spec, impl = padded(1, 2), padded(*other)
    found = verdict(spec, halves(impl), gg.tensor(4, 4), out_relations={"tp": Shard(0)})
    assert found is not gg.Verdict.REFINES or other == (2, 1)  # the sorted line forgets where its zeros stood


def chosen(scores: torch.Tensor) -> torch.Tensor:
    """Scores of the groups with the two largest maxima, the others zero."""
    groups = scores.view(-1, 4, 2)
    mask = torch.zeros(groups.shape[:2]).scatter(1, groups.amax(-1).topk(2).indices, 1.0)
    return scores.masked_fill(mask.unsqueeze(-1).expand(-1, -1, 2).reshape(scores.shape) == 0, 0.0)


def chosen_by_truths(scores: torch.Tensor) -> torch.Tensor:
    groups = scores.unflatten(-1, (4, 2))
    mask = torch.zeros(groups.shape[:2], dtype=torch.bool).scatter_(1, groups.max(-1).values.topk(2)[1], True)
    return torch.where(mask.repeat_interleave(2, 1), scores, 0.0)


def chosen_by_products(scores: torch.Tensor) -> torch.Tensor:
    groups = scores.view(-1, 4, 2)
    mask = torch.zeros(groups.shape[:2]).scatter(1, groups.amax(-1).topk(2).indices, 1.0)
    return scores * mask.repeat_interleave(2, 1)


def chosen_twice(scores: torch.Tensor) -> torch.Tensor:
    """Each row counts as often as it is among the first or the second choices, which may be twice."""
    groups = scores.view(-1, 4, 2)
    first, second = (groups[..., place].topk(2).indices for place in (0, 1))
    counts = torch.zeros(groups.shape[:2]).scatter_add(1, torch.cat((first, second), 1), torch.ones(groups.shape[0], 4))
    return scores * counts.repeat_interleave(2, 1)


def chosen_at_all(scores: torch.Tensor) -> torch.Tensor:
    groups = scores.view(-1, 4, 2)
    first, second = (groups[..., place].topk(2).indices for place in (0, 1))
    mask = torch.zeros(groups.shape[:2]).scatter(1, torch.cat((first, second), 1), 1.0)
    return scores * mask.repeat_interleave(2, 1)


@pytest.mark.parametrize("impl", [chosen_by_truths, chosen_by_products])
def test_masks_of_chosen_positions(impl: Function) -> None:
    assert verdict(chosen, impl, gg.tensor(3, 8)) is gg.Verdict.REFINES


def test_positions_chosen_twice_count_twice() -> None:
    assert verdict(chosen_at_all, chosen_twice, gg.tensor(3, 8)) is gg.Verdict.BROKEN


def upto(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(~(torch.arange(5) < lengths[:, None]), float("-inf")).softmax(-1)


@pytest.mark.parametrize(
    ("beyond", "expected"),
    [
        (lambda length: torch.arange(5) >= length, gg.Verdict.REFINES),
        (lambda length: length <= torch.arange(5), gg.Verdict.REFINES),
        (lambda length: torch.arange(1, 6) > length, gg.Verdict.REFINES),
        (lambda length: torch.arange(5) > length, gg.Verdict.BROKEN),
    ],
)
def test_positions_beyond_a_length(beyond: Function, expected: gg.Verdict) -> None:
    def impl(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        rows = (
            row + torch.zeros(5).masked_fill(beyond(length), float("-inf"))
            for row, length in zip(scores, lengths, strict=True)
        )
        return torch.stack([row.softmax(-1) for row in rows])

    lengths = gg.tensor(2, dtype=torch.int64, low=1, high=6)
    assert verdict(upto, impl, gg.tensor(2, 5), lengths) is expected
