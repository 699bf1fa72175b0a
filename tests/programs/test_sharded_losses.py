"""Losses over samples or tokens of several ranks: pairs of features, prototypes, rewards, ratios of sequences."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

from .collectives import Gather

Function = Callable[..., Any]
SAMPLES, WIDTH = 6, 4


def total(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x)
    return x


def sigmoid_pairs(images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
    labels = 2 * torch.eye(len(images)) - 1
    return -F.logsigmoid(labels * (images @ texts.t())).sum() / len(images)


def passed_on(wrong: bool) -> Function:
    """Every rank's texts come round, and only its own hold the images' partners."""

    def run(images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        partners = 2 * torch.eye(len(images)) - 1
        loss = torch.zeros(())
        for step in range(ranks):
            labels = partners if step == 0 or wrong else -torch.ones_like(partners)
            loss = loss - F.logsigmoid(labels * (images @ texts.t())).sum()
            received = torch.empty_like(texts)
            ops = [
                dist.P2POp(dist.isend, texts, (rank + 1) % ranks),
                dist.P2POp(dist.irecv, received, (rank - 1) % ranks),
            ]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            texts = received
        return total(loss) / (len(images) * ranks)

    return run


def prototypes(scores: torch.Tensor, rows: Function = lambda x: x, count: int = SAMPLES) -> torch.Tensor:
    """Assignments whose rows and columns are made alike in turn (Sinkhorn and Knopp)."""
    shares = torch.exp(scores / 0.5).t()
    for _ in range(2):
        shares = shares / rows(shares.sum(1, keepdim=True)) / len(shares)
        shares = shares / shares.sum(0, keepdim=True) / count
    return (shares * count).t().square().mean(1)


def balanced(wrong: bool) -> Function:
    return lambda scores: prototypes(scores, (lambda x: x) if wrong else total)


def left_out(rewards: torch.Tensor) -> torch.Tensor:
    return rewards - (rewards.sum(0) - rewards) / (len(rewards) - 1)


def left_out_of_all(wrong: bool) -> Function:
    def run(rewards: torch.Tensor) -> torch.Tensor:
        count = len(rewards) * (1 if wrong else dist.get_world_size())
        return rewards - (total(rewards.sum(0)) - rewards) / (count - 1)

    return run


def sequence_ratio(new: torch.Tensor, old: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    ratio = torch.exp(((new - old) * mask).sum(0) / mask.sum(0))
    return torch.minimum(ratio, ratio.clamp(0.8, 1.2)).mean()


def ratio_over_parts(wrong: bool) -> Function:
    def run(new: torch.Tensor, old: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        counts = mask.sum(0)
        ratio = torch.exp(total(((new - old) * mask).sum(0)) / (counts if wrong else total(counts)))
        return torch.minimum(ratio, ratio.clamp(0.8, 1.2)).mean()

    return run


CASES: list[tuple[Function, Callable[[bool], Function], int, str]] = [
    (sigmoid_pairs, passed_on, 2, "replicate"),
    (prototypes, balanced, 1, "shard"),
    (left_out, left_out_of_all, 1, "shard"),
    (sequence_ratio, ratio_over_parts, 3, "replicate"),
]


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize(("spec", "impl", "inputs", "promised"), CASES, ids=[case[0].__name__ for case in CASES])
def test_losses(spec: Function, impl: Callable[[bool], Function], inputs: int, promised: str, wrong: bool) -> None:
    report = gg.verify(
        spec,
        lambda mesh: impl(wrong),
        inputs=tuple(gg.tensor(SAMPLES, WIDTH) for _ in range(inputs)),
        mesh={"dp": 2},
        in_relations={"dp": Shard(0)},
        out_relations={"dp": Shard(0)} if promised == "shard" else "replicate",
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics


def average_logps(hidden: torch.Tensor, labels: torch.Tensor, safe: torch.Tensor) -> torch.Tensor:
    picked = hidden.log_softmax(-1).gather(2, safe[..., None])[..., 0]
    mask = labels != -100
    return (picked * mask).sum(1) / mask.sum(1).clamp(min=1)


def odds(order: Callable[[Any, Any], tuple[Any, Any]]) -> Function:
    """Preferences of chosen sequences, which come first, over rejected ones, in one batch."""

    def run(chosen: torch.Tensor, rejected: torch.Tensor, good: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
        labels = torch.cat(order(good, bad))
        safe = torch.where(labels == -100, 0, labels)
        first, second = average_logps(torch.cat([chosen, rejected]), labels, safe).chunk(2)
        return F.logsigmoid(first - second)

    return run


@pytest.mark.parametrize("wrong", [False, True])
def test_labels_that_are_joined_of_several_and_may_be_ignored(wrong: bool) -> None:
    rows = {"dp": Shard(0)}
    hidden, labels = gg.tensor(5, 3, 7), gg.tensor(5, 3, dtype=torch.int64, low=-100, high=7)
    report = gg.verify(
        odds(lambda good, bad: (good, bad)),
        lambda mesh: odds(lambda good, bad: (bad, good) if wrong else (good, bad)),
        inputs=(hidden, hidden, labels, labels),
        mesh={"dp": 2},
        in_relations=rows,
        out_relations=rows,
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics


def pairs_of_views(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    views, count = torch.cat([a, b]), len(a)
    scores = (views @ views.t()).masked_fill(torch.eye(2 * count, dtype=torch.bool), float("-inf"))
    return F.cross_entropy(scores, torch.cat([torch.arange(count) + count, torch.arange(count)]))


def pairs_with_gathered_views(wrong: bool) -> Function:
    """Infinity is written over each row's score with itself."""

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        count, whole = len(a), [torch.empty(2 * len(a), WIDTH) for _ in range(dist.get_world_size())]
        dist.all_gather(whole, torch.cat([a, b]))
        views = torch.cat([each[:count] for each in whole] + [each[count:] for each in whole])
        own = torch.arange(count) + (0 if wrong else dist.get_rank() * count)
        first, second = own, own + len(views) // 2
        scores = torch.cat([a, b]) @ views.t()
        scores = scores.scatter(1, torch.cat([first, second])[:, None], float("-inf"))
        return total(F.cross_entropy(scores, torch.cat([second, first]))) / dist.get_world_size()

    return run


@pytest.mark.parametrize("wrong", [False, True])
def test_infinity_that_is_written_over_one_score_a_row(wrong: bool) -> None:
    views = gg.tensor(SAMPLES, WIDTH)
    report = gg.verify(
        pairs_of_views,
        lambda mesh: pairs_with_gathered_views(wrong),
        inputs=(views, views),
        mesh={"dp": 2},
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics


def entropy(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits.detach().requires_grad_()
    logp = logits.log_softmax(-1)
    mean = -(logp.exp() * logp).sum(-1).mean()
    mean.backward()
    return mean.detach(), logits.grad


def entropy_of_parts(low: float | None) -> Function:
    """As a distribution has it, which holds logits at the least number of their type; or at another one."""

    def run(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = logits.detach().requires_grad_()
        held = logits if low is None else logits.log_softmax(-1).clamp(min=low)
        mean = torch.distributions.Categorical(logits=held).entropy().mean() / dist.get_world_size()
        mean.backward()
        return total(mean.detach()), logits.grad

    return run


@pytest.mark.parametrize(
    ("low", "wanted"),
    [(None, gg.Verdict.REFINES), (torch.finfo(torch.float32).min, gg.Verdict.REFINES), (-2.0, gg.Verdict.BROKEN)],
)
def test_logits_that_are_held_at_the_end_of_their_type(low: float | None, wanted: gg.Verdict) -> None:
    rows = {"dp": Shard(0)}
    report = gg.verify(
        entropy,
        lambda mesh: entropy_of_parts(low),
        inputs=(gg.tensor(SAMPLES, WIDTH),),
        mesh={"dp": 2},
        in_relations=rows,
        out_relations=({}, rows),
    )
    assert report.verdict is wanted, report.diagnostics


def test_the_end_of_a_type_bounds_what_is_infinite() -> None:
    """Infinity becomes a number there, which is not the same."""
    low = torch.finfo(torch.float32).min

    def held(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(mask, float("-inf")).clamp(min=low)

    report = gg.verify(
        lambda scores, mask: scores.masked_fill(mask, float("-inf")),
        lambda mesh: held,
        inputs=(gg.tensor(4, 3), gg.tensor(4, 3, dtype=torch.bool)),
        mesh={"dp": 2},
    )
    assert report.verdict is not gg.Verdict.REFINES


def signed_pairs(images: torch.Tensor, texts: torch.Tensor, scale: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return -F.logsigmoid(labels * (scale * images @ texts.t())).sum() / len(images)


def partners_apart(images: torch.Tensor, texts: torch.Tensor, scale: torch.Tensor, wrong: str) -> torch.Tensor:
    """The rank's own pairs, in which each image has its partner, then those with every other rank's texts, none of which is one."""
    count, rank, ranks = len(images), dist.get_rank(), dist.get_world_size()
    strangers = -torch.ones(count, count)
    own = strangers + 2 * torch.eye(count).roll(1 if wrong == "neighbours" else 0, 0)
    loss = signed_pairs(images, texts, scale, own)
    every = Gather.apply(texts, dist.group.WORLD, 0).chunk(ranks)
    for other in range(ranks):
        labels = own if wrong == "partners everywhere" else strangers
        loss = loss + float(other != rank) * signed_pairs(images, every[other], scale, labels)
    return loss


def trained(loss: Function, average: bool) -> Function:
    def run(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        w, scale = w.detach().requires_grad_(), scale.detach().requires_grad_()
        found = loss(F.normalize(x @ w, dim=-1), F.normalize(y @ w, dim=-1), scale.exp())
        found.backward()
        results = (found.detach(), w.grad, scale.grad)
        return tuple(total(each) / dist.get_world_size() for each in results) if average else results

    return run


@pytest.mark.parametrize("wrong", ["", "neighbours", "partners everywhere"])
def test_pairs_of_which_only_the_ranks_own_have_partners(wrong: str) -> None:
    rows, whole = {"dp": Shard(0)}, {"dp": Replicate()}
    report = gg.verify(
        trained(lambda x, y, scale: signed_pairs(x, y, scale, 2 * torch.eye(len(x)) - 1), False),
        lambda mesh: trained(lambda x, y, scale: partners_apart(x, y, scale, wrong), True),
        inputs=(gg.tensor(4, 4), gg.tensor(4, 4), gg.tensor(4, 3), gg.tensor()),
        mesh={"dp": 2},
        in_relations=(rows, rows, whole, whole),
        out_relations="replicate",
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics


def decayed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    places = torch.arange(len(q))
    apart = places[:, None] - places
    return ((q @ k.t()) * torch.where(apart >= 0, torch.tensor(0.9) ** apart, torch.zeros(()))) @ v


def decayed_over_ranks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The decay of one token is a tensor in float32, and that of a rank's tokens a number."""
    count, places = len(q), torch.arange(len(q))
    own = (k * (torch.tensor(0.9) ** (count - 1 - places))[:, None]).t() @ v
    states = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(states, own)
    before = torch.zeros_like(own)
    for state in states[: dist.get_rank()]:
        before = before * 0.9**count + state
    return decayed(q, k, v) + (q * (torch.tensor(0.9) ** (places + 1))[:, None]) @ before


def test_a_decay_that_float32_rounded_is_no_defect() -> None:
    rows = {"sp": Shard(0)}
    report = gg.verify(
        decayed,
        lambda mesh: decayed_over_ranks,
        inputs=tuple(gg.tensor(12, 3) for _ in range(3)),
        mesh={"sp": 3},
        in_relations=rows,
        out_relations=rows,
    )
    assert report.verdict is not gg.Verdict.BROKEN, report.diagnostics
