"""Vocabulary-parallel embedding and cross entropy in the spellings that people use, forward and backward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

from .collectives import Copy, Reduce

VOCABULARY, WIDTH, TOKENS = 12, 4, 5


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(VOCABULARY, WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self.weight)


class ParallelEmbedding(nn.Module):
    def __init__(self, mesh: Any, look_up: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.group, self.look_up = mesh.get_group("tp"), look_up
        self.count = VOCABULARY // mesh.size()
        self.low = mesh.get_local_rank("tp") * self.count
        self.high = self.low + self.count
        self.weight = nn.Parameter(torch.empty(self.count, WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return Reduce.apply(self.look_up(self, ids), self.group)


def clamp_and_multiply(m: Any, ids: torch.Tensor) -> torch.Tensor:
    inside = (ids >= m.low) & (ids < m.high)
    return F.embedding((ids - m.low).clamp(0, m.count - 1), m.weight) * inside.unsqueeze(-1)


def clamp_and_compare(m: Any, ids: torch.Tensor) -> torch.Tensor:
    local = ids - m.low
    place = local.clamp(0, m.count - 1)
    return F.embedding(place, m.weight) * (local == place)[..., None]


def clamp_ids(m: Any, ids: torch.Tensor) -> torch.Tensor:
    inside = (ids >= m.low) & (ids < m.high)
    return torch.where(inside[..., None], m.weight[ids.clamp(m.low, m.high - 1) - m.low], 0.0)


def minimum_and_fill(m: Any, ids: torch.Tensor) -> torch.Tensor:
    outside = (ids < m.low) | (ids >= m.high)
    place = torch.minimum(torch.maximum(ids - m.low, torch.zeros_like(ids)), torch.full_like(ids, m.count - 1))
    return m.weight.index_select(0, place.flatten()).view(*ids.shape, WIDTH).masked_fill(outside[..., None], 0.0)


def remainder(m: Any, ids: torch.Tensor) -> torch.Tensor:
    return F.embedding(ids % m.count, m.weight) * (ids // m.count == m.low // m.count)[..., None]


def row_of_zeros(m: Any, ids: torch.Tensor) -> torch.Tensor:
    table = torch.cat([m.weight, torch.zeros(1, WIDTH)])
    inside = (ids >= m.low) & (ids < m.high)
    return F.embedding(torch.where(inside, ids - m.low, m.count), table)


def assigned_by_mask(m: Any, ids: torch.Tensor) -> torch.Tensor:
    outside = (ids < m.low) | (ids >= m.high)
    place = ids - m.low
    place[outside] = 0
    rows = F.embedding(place, m.weight)
    rows[outside] = 0.0
    return rows


def upper_bound_included(m: Any, ids: torch.Tensor) -> torch.Tensor:
    inside = (ids >= m.low) & (ids <= m.high)
    return F.embedding((ids - m.low).clamp(0, m.count - 1), m.weight) * inside.unsqueeze(-1)


def offset_by_one(m: Any, ids: torch.Tensor) -> torch.Tensor:
    inside = (ids >= m.low) & (ids < m.high)
    return F.embedding((ids - m.low - 1).clamp(0, m.count - 1), m.weight) * inside.unsqueeze(-1)


RIGHT = (
    clamp_and_multiply,
    clamp_and_compare,
    clamp_ids,
    minimum_and_fill,
    remainder,
    row_of_zeros,
    assigned_by_mask,
)


def embedded(look_up: Callable[..., torch.Tensor]) -> gg.Verdict | None:
    ids = gg.tensor(2, TOKENS, dtype=torch.long, low=0, high=VOCABULARY)
    return gg.verify(
        Embedding(), lambda mesh: ParallelEmbedding(mesh, look_up), (ids,), mesh={"tp": 3}, out_relations="replicate"
    ).verdict


@pytest.mark.parametrize("look_up", RIGHT)
def test_look_ups(look_up: Callable[..., torch.Tensor]) -> None:
    assert embedded(look_up) is gg.Verdict.REFINES


@pytest.mark.parametrize("look_up", [upper_bound_included, offset_by_one])
def test_wrong_look_ups(look_up: Callable[..., torch.Tensor]) -> None:
    assert embedded(look_up) is gg.Verdict.BROKEN


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = self.head(x)
        return F.cross_entropy(logits, target, label_smoothing=0.1) + 1e-4 * torch.logsumexp(logits, -1).pow(2).mean()


class ParallelLoss(nn.Module):
    """Label smoothing and the z-loss on logits that are split over the vocabulary."""

    def __init__(self, mesh: Any, z_without_maximum: bool) -> None:
        super().__init__()
        self.group, self.count = mesh.get_group("tp"), VOCABULARY // mesh.size()
        self.low = mesh.get_local_rank("tp") * self.count
        self.head = nn.Linear(WIDTH, self.count, bias=False)
        self.z_without_maximum = z_without_maximum

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = self.head(Copy.apply(x, self.group))
        largest = logits.detach().amax(-1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.group)
        lse = largest + Reduce.apply((logits - largest[:, None]).exp().sum(-1), self.group).log()
        place = (target - self.low).clamp(0, self.count - 1)
        inside = (target >= self.low) & (target < self.low + self.count)
        hit = Reduce.apply(logits.gather(1, place[:, None])[:, 0] * inside, self.group)
        mean = Reduce.apply(logits.sum(-1), self.group) / VOCABULARY
        z = lse - largest if self.z_without_maximum else lse
        return (lse - 0.9 * hit - 0.1 * mean).mean() + 1e-4 * z.pow(2).mean()


@pytest.mark.parametrize(("wrong", "verdict"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_smoothed_loss(wrong: bool, verdict: gg.Verdict) -> None:
    inputs = (gg.tensor(TOKENS, WIDTH), gg.tensor(TOKENS, dtype=torch.long, low=0, high=VOCABULARY))
    report = gg.verify(Loss(), lambda mesh: ParallelLoss(mesh, wrong), inputs, mesh={"tp": 2})
    assert report.verdict is verdict


class Distillation(nn.Module):
    """The divergence of a student's words from a teacher's, who is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        student = F.log_softmax(self.head(x), -1)
        return F.kl_div(student, F.softmax(teacher, -1), reduction="batchmean")


class ParallelDistillation(nn.Module):
    def __init__(self, mesh: Any, local_teacher: bool) -> None:
        super().__init__()
        self.group, self.local_teacher = mesh.get_group("tp"), local_teacher
        self.head = nn.Linear(WIDTH, VOCABULARY // mesh.size(), bias=False)

    def log_softmax(self, x: torch.Tensor) -> torch.Tensor:
        largest = x.detach().amax(-1, keepdim=True)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.group)
        x = x - largest
        total = Reduce.apply(x.exp().sum(-1, keepdim=True), self.group)
        return x - Copy.apply(total, self.group).log()  # every rank's words depend on it

    def forward(self, x: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        student = self.log_softmax(self.head(Copy.apply(x, self.group)))
        words = F.log_softmax(teacher, -1) if self.local_teacher else self.log_softmax(teacher)
        return Reduce.apply((words.exp() * (words - student)).sum(), self.group) / x.shape[0]


@pytest.mark.parametrize(("wrong", "verdict"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_distillation(wrong: bool, verdict: gg.Verdict) -> None:
    inputs = (gg.tensor(TOKENS, WIDTH), gg.tensor(TOKENS, VOCABULARY))
    part = ({"tp": Replicate()}, {"tp": Shard(1)})
    report = gg.verify(
        Distillation(), lambda mesh: ParallelDistillation(mesh, wrong), inputs, mesh={"tp": 2}, in_relations=part
    )
    assert report.verdict is verdict


def of_probabilities(x: torch.Tensor) -> torch.Tensor:
    return -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)


def of_logits(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, -1) - (x.softmax(-1) * x).sum(-1)


def sharded_entropy(own_normaliser: bool, lowered: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Of logits of which every rank has some columns; the largest is taken from the weighted ones too, or added to the logarithm."""

    def run(x: torch.Tensor) -> torch.Tensor:
        largest = x.amax(-1, keepdim=True)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        below = x - largest
        weights = below.exp()
        total = weights.sum(-1, keepdim=True)
        shares = weights / total if own_normaliser else weights
        dist.all_reduce(total)
        shares = shares if own_normaliser else weights / total
        mean = (shares * (below if lowered else x)).sum(-1, keepdim=True)
        dist.all_reduce(mean)
        return (total.log() - mean + (0 if lowered else largest))[:, 0]

    return run


@pytest.mark.parametrize("spec", [of_probabilities, of_logits])
@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize(("own_normaliser", "wanted"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_entropy(spec: Any, lowered: bool, own_normaliser: bool, wanted: gg.Verdict) -> None:
    report = gg.verify(
        spec,
        lambda mesh: sharded_entropy(own_normaliser, lowered),
        inputs=(gg.tensor(3, 8),),
        mesh={"tp": 2},
        in_relations={"tp": Shard(1)},
        out_relations="replicate",
    )
    assert report.verdict is wanted, report.diagnostics


class Bags(nn.Module):
    """Rows of a table averaged in bags of different sizes, one of them empty."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(VOCABULARY, WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(ids, self.weight, torch.tensor([0, 2, 2, 5]), mode="mean")


class ParallelBags(nn.Module):
    def __init__(self, mesh: Any, averaged: bool) -> None:
        super().__init__()
        self.group, self.averaged = mesh.get_group("tp"), averaged
        self.count = VOCABULARY // mesh.size()
        self.low = mesh.get_local_rank("tp") * self.count
        self.weight = nn.Parameter(torch.empty(self.count, WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        bags, sizes = torch.tensor([0, 2, 2, 5]), torch.tensor([2, 1, 3, 2])
        inside = (ids >= self.low) & (ids < self.low + self.count)
        rows = F.embedding_bag(
            torch.where(inside, ids - self.low, 0), self.weight, bags, mode="sum", per_sample_weights=inside.float()
        )
        rows = Reduce.apply(rows, self.group)
        return rows / sizes[:, None] if self.averaged else rows


@pytest.mark.parametrize(("averaged", "verdict"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_bags(averaged: bool, verdict: gg.Verdict) -> None:
    ids = gg.tensor(7, dtype=torch.long, low=0, high=VOCABULARY)
    report = gg.verify(
        Bags(), lambda mesh: ParallelBags(mesh, averaged), (ids,), mesh={"tp": 2}, out_relations="replicate"
    )
    assert report.verdict is verdict


WORDS = VOCABULARY - 1


def padded_logits(logits: torch.Tensor, target: torch.Tensor, low_of: Callable[[int], int]) -> torch.Tensor:
    """The target's logit of a vocabulary that is padded with words nobody says."""
    rank, count = dist.get_rank(), VOCABULARY // dist.get_world_size()
    low = low_of(rank * count)
    mine = F.pad(logits, (0, 1))[:, rank * count : (rank + 1) * count]
    mine = mine.masked_fill(torch.arange(count) + low >= WORDS, float("-inf"))
    place = (target - low).clamp(0, count - 1)
    inside = (target >= low) & (target < low + count)
    hit = torch.where(inside, mine.gather(1, place[:, None])[:, 0], 0.0)
    dist.all_reduce(hit)
    return hit


@pytest.mark.parametrize(
    ("low_of", "verdict"), [(lambda low: low, gg.Verdict.REFINES), (lambda low: 0, gg.Verdict.BROKEN)]
)
def test_padded_words_are_never_read(low_of: Callable[[int], int], verdict: gg.Verdict) -> None:
    report = gg.verify(
        lambda logits, target: logits.gather(1, target[:, None])[:, 0],
        lambda mesh: lambda logits, target: padded_logits(logits, target, low_of),
        (gg.tensor(TOKENS, WORDS), gg.tensor(TOKENS, dtype=torch.long, low=0, high=WORDS)),
        mesh={"tp": 2},
        out_relations="replicate",
    )
    assert report.verdict is verdict


def target_logit(upper: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[..., Any]:
    """The target's logit, masked behind the look-up, and its gradient."""

    def run(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = logits.detach().requires_grad_()
        count = logits.shape[1]
        low = dist.get_rank() * count
        inside = (target >= low) & upper(target, low + count)
        hit = logits.gather(1, torch.where(inside, target - low, 0)[:, None])[:, 0] * inside
        hit.sum().backward()
        hit = hit.detach()
        dist.all_reduce(hit)
        return hit, logits.grad

    return run


@pytest.mark.parametrize("wrong", [False, True])
def test_a_look_up_outside_of_a_rank_s_part_is_broken(wrong: bool) -> None:
    def spec(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = logits.detach().requires_grad_()
        hit = logits.gather(1, target[:, None])[:, 0]
        hit.sum().backward()
        return hit.detach(), logits.grad

    columns = {"tp": Shard(1)}
    report = gg.verify(
        spec,
        lambda mesh: target_logit((lambda t, high: t <= high) if wrong else (lambda t, high: t < high)),
        (gg.tensor(TOKENS, VOCABULARY), gg.tensor(TOKENS, dtype=torch.long, low=0, high=VOCABULARY)),
        mesh={"tp": 2},
        in_relations=(columns, {}),
        out_relations=({"tp": Replicate()}, columns),
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics


class ChosenLogProbabilities(torch.autograd.Function):
    """Log-probabilities of targets by a vocabulary in parts; in the gradient ones are added where a rank has the target, at its place in the flat tensor."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor, wrong: str) -> torch.Tensor:
        low = dist.get_rank() * logits.shape[-1]
        outside = (target < low) | (target >= low + logits.shape[-1])
        place = target - low
        place[outside] = 0
        largest = logits.amax(-1, keepdim=True)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        total = (logits - largest).exp().sum(-1, keepdim=True)
        dist.all_reduce(total)
        log_probabilities = logits - largest - total.log()
        chosen = log_probabilities.gather(-1, place.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0)
        dist.all_reduce(chosen)
        ctx.save_for_backward(log_probabilities.exp(), outside, place)
        ctx.wrong = wrong
        return chosen

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        softmax, outside, place = ctx.saved_tensors
        lines, columns = place.numel(), softmax.shape[-1]
        start = torch.arange(lines).view(place.shape) * (1 if ctx.wrong == "lines" else columns)
        inside = outside if ctx.wrong == "mask" else ~outside
        flat = start.masked_select(inside) + place.masked_select(inside)
        grad_input = softmax.neg() * grad.unsqueeze(-1)
        grad_input.view(-1).scatter_add_(0, flat, grad.masked_select(inside))
        return grad_input, None, None


@pytest.mark.parametrize("wrong", ["", "lines", "mask"])
def test_ones_are_added_at_flat_places_of_the_rows_that_a_rank_has(wrong: str) -> None:
    def specification(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = logits.detach().requires_grad_()
        chosen = torch.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        chosen.square().sum().backward()
        return chosen.detach(), logits.grad

    def on_ranks(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = logits.detach().requires_grad_()
        chosen = ChosenLogProbabilities.apply(logits, target, wrong)
        chosen.square().sum().backward()
        return chosen.detach(), logits.grad

    found = gg.verify(
        specification,
        lambda _: on_ranks,
        (gg.tensor(2, 3, VOCABULARY), gg.tensor(2, 3, dtype=torch.int64, low=0, high=VOCABULARY)),
        mesh={"tp": 2},
        in_relations=({"tp": Shard(2)}, {"tp": Replicate()}),
        out_relations=({"tp": Replicate()}, {"tp": Shard(2)}),
        grads=False,
    )
    assert found.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), found.diagnostics
