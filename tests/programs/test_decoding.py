"""The next token where the vocabulary is divided: the index of the largest logit, from every rank's largest and where it stands."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

BATCH, WIDTH, VOCABULARY = 3, 5, 12
Pick = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def gathered(x: torch.Tensor) -> torch.Tensor:
    """Every rank's, in a new first dim."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.stack(parts)


def by_index(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return tokens.gather(0, values.argmax(0, keepdim=True))[0]


def one_by_one(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    best, token = values[0], tokens[0]
    for value, other in zip(values[1:], tokens[1:], strict=True):
        token = torch.where(value > best, other, token)
        best = torch.maximum(best, value)
    return token


def smallest(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return tokens.gather(0, values.argmin(0, keepdim=True))[0]


def last_of_equals(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    best, token = values[0], tokens[0]
    for value, other in zip(values[1:], tokens[1:], strict=True):
        token = torch.where(value >= best, other, token)
        best = torch.maximum(best, value)
    return token


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    return (logits / 0.7).softmax(-1).argmax(-1)


def unlikeliest(logits: torch.Tensor) -> torch.Tensor:
    return (-logits).softmax(-1).argmax(-1)


def largest(logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(-1)


def verdict(
    pick: Pick, ranks: int, offset: bool = True, wanted: Callable[[torch.Tensor], torch.Tensor] = largest
) -> gg.Verdict | None:
    def impl(mesh: Any) -> Callable[..., torch.Tensor]:
        def run(x: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
            values, tokens = (x @ head).max(-1)
            tokens = tokens + mesh.get_local_rank("tp") * head.shape[1] if offset else tokens
            return pick(gathered(values), gathered(tokens))

        return run

    return gg.verify(
        lambda x, head: wanted(x @ head),
        impl,
        (gg.tensor(BATCH, WIDTH), gg.tensor(WIDTH, VOCABULARY)),
        mesh={"tp": ranks},
        in_relations=({"tp": Replicate()}, {"tp": Shard(1)}),
        out_relations="replicate",
        grads=False,
    ).verdict


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("pick", [by_index, one_by_one])
def test_greedy_decoding(pick: Pick, ranks: int) -> None:
    assert verdict(pick, ranks) is gg.Verdict.REFINES


def test_the_likeliest_token_has_the_largest_logit() -> None:
    assert verdict(by_index, 2, wanted=likeliest) is gg.Verdict.REFINES
    assert verdict(by_index, 2, wanted=unlikeliest) is gg.Verdict.BROKEN


@pytest.mark.parametrize(("pick", "offset"), [(smallest, True), (by_index, False), (one_by_one, False)])
def test_wrong_tokens(pick: Pick, offset: bool) -> None:
    assert verdict(pick, 2, offset) is gg.Verdict.BROKEN


def test_the_last_of_equal_logits() -> None:
    """Where logits are equal the specification takes the first: random numbers do not show it."""
    assert verdict(last_of_equals, 2) is not gg.Verdict.REFINES


def noisy(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """A sample is the largest of the logits with Gumbel noise, which uniform noise makes."""
    return logits - (-noise.log()).log()


@pytest.mark.parametrize(("part", "expected"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_samples_from_noise_that_all_ranks_have(part: bool, expected: gg.Verdict) -> None:
    """Where every rank adds the first part of the noise it is another sample; only noise between zero and one shows it."""

    def impl(mesh: Any) -> Callable[..., torch.Tensor]:
        start = mesh.get_local_rank("tp") * VOCABULARY // 2

        def run(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
            first = start if part else 0
            values, tokens = noisy(logits, noise[:, first : first + logits.shape[1]]).max(-1)
            return by_index(gathered(values), gathered(tokens + start))

        return run

    report = gg.verify(
        lambda logits, noise: noisy(logits, noise).argmax(-1),
        impl,
        (gg.tensor(BATCH, VOCABULARY), gg.tensor(BATCH, VOCABULARY)),
        mesh={"tp": 2},
        in_relations=({"tp": Shard(1)}, {"tp": Replicate()}),
        out_relations="replicate",
        grads=False,
    )
    assert report.verdict is expected
