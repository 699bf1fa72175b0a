"""Heads on ranks: exchanged for the sequence (Ulysses), of latent keys and values, and one token at a time beside a cache."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

from .collectives import Copy, Reduce, Turn

HEADS, SIZE, WIDTH, LATENT, TURNED = 4, 3, 6, 5, 2


class Ulysses(nn.Module):
    """Projections on a part of the sequence, attention on a part of the heads; fewer heads of keys than ranks are repeated."""

    def __init__(self, of_keys: int, mesh: Any = None, rolled: bool = False) -> None:
        super().__init__()
        self.of_keys, self.rolled = of_keys, rolled
        self.group = None if mesh is None else mesh.get_group("sp")
        self.ranks = 1 if mesh is None else mesh.size()
        self.q, self.out = nn.Linear(WIDTH, HEADS * SIZE), nn.Linear(HEADS * SIZE, WIDTH)
        self.k, self.v = nn.Linear(WIDTH, of_keys * SIZE), nn.Linear(WIDTH, of_keys * SIZE)

    def linear(self, layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return layer(x)
        return F.linear(x, Copy.apply(layer.weight, self.group), Copy.apply(layer.bias, self.group))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.linear(layer, x).unflatten(-1, (-1, SIZE)) for layer in (self.q, self.k, self.v))
        if self.group is not None:
            k, v = (y.repeat_interleave(max(1, self.ranks // self.of_keys), 2) for y in (k, v))
            q, k, v = (Turn.apply(y, self.group, 2, 1) for y in (q, k, v))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        if self.group is not None:
            y = Turn.apply(y, self.group, 1, 2)
        return self.linear(self.out, (y.roll(1, 2) if self.rolled else y).flatten(2))


@pytest.mark.parametrize(
    ("ranks", "of_keys", "rolled", "wanted"),
    [
        (2, 4, False, gg.Verdict.REFINES),
        (2, 1, False, gg.Verdict.REFINES),
        (4, 2, False, gg.Verdict.REFINES),
        (2, 4, True, gg.Verdict.BROKEN),
    ],
)
def test_heads_for_the_sequence(ranks: int, of_keys: int, rolled: bool, wanted: gg.Verdict) -> None:
    part = {"sp": Shard(1)}
    report = gg.verify(
        Ulysses(of_keys),
        lambda mesh: Ulysses(of_keys, mesh, rolled),
        (gg.tensor(2, 8, WIDTH),),
        mesh={"sp": ranks},
        in_relations=part,
        out_relations=part,
    )
    assert report.verdict is wanted


class Latent(nn.Module):
    """Keys and values of a few numbers a token, projected up on every rank to its heads; one rotated part is shared by all of them."""

    def __init__(self, mesh: Any = None, wrong: bool = False) -> None:
        super().__init__()
        self.group, self.wrong = None if mesh is None else mesh.get_group("tp"), wrong
        self.heads = HEADS // (1 if mesh is None else mesh.size())
        self.q_down, self.q_norm = nn.Linear(WIDTH, LATENT, bias=False), nn.RMSNorm(LATENT)
        self.q_up = nn.Linear(LATENT, self.heads * (SIZE + TURNED), bias=False)
        self.down, self.norm = nn.Linear(WIDTH, LATENT + TURNED, bias=False), nn.RMSNorm(LATENT)
        self.up = nn.Linear(LATENT, self.heads * 2 * SIZE, bias=False)
        self.out = nn.Linear(self.heads * SIZE, WIDTH, bias=False)

    @staticmethod
    def turned(x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, heads, 2), rotated by the token's place."""
        angle = torch.arange(x.shape[1])[None, :, None] * 0.3
        first, second = x.unbind(-1)
        return torch.stack([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        small, (latent, shared) = self.q_norm(self.q_down(x)), self.down(x).split([LATENT, TURNED], -1)
        latent = self.norm(latent)
        if self.group is not None:
            small, latent = Copy.apply(small, self.group), Copy.apply(latent, self.group)
            shared = shared if self.wrong else Copy.apply(shared, self.group)
        q, q_turned = self.q_up(small).view(batch, tokens, self.heads, -1).split([SIZE, TURNED], -1)
        k, v = self.up(latent).view(batch, tokens, self.heads, -1).split([SIZE, SIZE], -1)
        q = torch.cat([q, self.turned(q_turned)], -1)
        k = torch.cat([k, self.turned(shared.unsqueeze(2)).expand(-1, -1, self.heads, -1)], -1)
        scores = torch.einsum("bthd,bshd->bhts", q, k) + torch.full((tokens, tokens), float("-inf")).triu(1)
        out = self.out(torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v).flatten(2))
        return out if self.group is None else Reduce.apply(out, self.group)


@pytest.mark.parametrize(
    ("ranks", "wrong", "wanted"),
    [(2, False, gg.Verdict.REFINES), (4, False, gg.Verdict.REFINES), (2, True, gg.Verdict.BROKEN)],
)
def test_latent_keys_and_values(ranks: int, wrong: bool, wanted: gg.Verdict) -> None:
    inputs = (gg.tensor(2, 5, WIDTH),)
    report = gg.verify(
        Latent(), lambda mesh: Latent(mesh, wrong), inputs, mesh={"tp": ranks}, out_relations="replicate"
    )
    assert report.verdict is wanted


BUCKETS = 8


def biased(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Attention with a bias for every head and distance, where far distances share one, as in T5 (Raffel et al. 2020)."""
    place = torch.arange(q.shape[2])
    distance = (place[:, None] - place[None]).clamp(min=0)
    far = BUCKETS // 2 + ((distance.float().clamp(min=1) / 4).log() / torch.log(torch.tensor(4.0)) * 4).long()
    bucket = torch.where(distance < BUCKETS // 2, distance, far.clamp(max=BUCKETS - 1))
    return (q @ k.transpose(-1, -2) + table[bucket].permute(2, 0, 1)).softmax(-1) @ v


@pytest.mark.parametrize(("first", "wanted"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_bias_by_distance(first: bool, wanted: gg.Verdict) -> None:
    def impl(mesh: Any) -> Callable[..., torch.Tensor]:
        low = 0 if first else mesh.get_local_rank("tp") * HEADS // 2
        return lambda q, k, v, table: biased(q, k, v, table[:, low : low + HEADS // 2])

    heads, table = {"tp": Shard(1)}, {"tp": Replicate()}
    report = gg.verify(
        biased,
        impl,
        (*(gg.tensor(2, HEADS, 6, SIZE) for _ in range(3)), gg.tensor(BUCKETS, HEADS)),
        mesh={"tp": 2},
        in_relations=(heads, heads, heads, table),
        out_relations=heads,
        grads=False,
    )
    assert report.verdict is wanted


CACHED = 7


class Decoder(nn.Module):
    """One more token for every sequence of a batch, each of its own length so far."""

    def __init__(self, of_keys: int, mesh: Any = None, late: bool = False) -> None:
        super().__init__()
        self.group, self.late = None if mesh is None else mesh.get_group("tp"), late
        ranks = 1 if mesh is None else mesh.size()
        self.heads, self.of_keys = HEADS // ranks, max(1, of_keys // ranks)
        self.q = nn.Linear(WIDTH, self.heads * SIZE, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, self.of_keys * SIZE, bias=False) for _ in range(2))
        self.out = nn.Linear(self.heads * SIZE, WIDTH, bias=False)

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, place: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = (layer(x).unflatten(-1, (-1, 1, SIZE)) for layer in (self.q, self.k, self.v))
        columns = torch.arange(CACHED)[None, :]
        here = (columns == place[:, None])[:, None, :, None]
        keys, values = torch.where(here, k, keys), torch.where(here, v, values)
        every, each = (y.repeat_interleave(self.heads // self.of_keys, 1) for y in (keys, values))
        hidden = columns > (place[:, None] - 1 if self.late else place[:, None])
        scores = (q @ every.transpose(-1, -2)).masked_fill(hidden[:, None, None], float("-inf"))
        out = self.out((scores.softmax(-1) @ each).flatten(1))
        return out if self.group is None else Reduce.apply(out, self.group), keys, values


def loader(of_keys: int, ranks: int) -> Callable[[Any, Any, Any], None]:
    def load(state: Any, impl: Any, mesh: Any) -> None:
        rank = mesh.get_local_rank("tp")
        for name in ("q", "k", "v"):
            rows = getattr(impl, name).weight
            first = rank * len(rows) if name == "q" or of_keys >= ranks else rank * of_keys // ranks * SIZE
            rows.data.copy_(state[f"{name}.weight"][first : first + len(rows)])
        columns = impl.out.weight.shape[1]
        impl.out.weight.data.copy_(state["out.weight"][:, rank * columns : (rank + 1) * columns])

    return load


def cache_of(of_keys: int, ranks: int) -> Callable[[Any, Any], Any]:
    """Every rank's own heads of keys, or the one that it shares."""
    count = max(1, of_keys // ranks)

    def shard(inputs: Any, mesh: Any) -> Any:
        x, keys, values, place = inputs
        first = mesh.get_local_rank("tp") * of_keys // ranks
        return x, keys[:, first : first + count], values[:, first : first + count], place

    return shard


@pytest.mark.parametrize(
    ("ranks", "of_keys", "late", "wanted"),
    [
        (2, 2, False, gg.Verdict.REFINES),
        (4, 4, False, gg.Verdict.REFINES),
        (4, 1, False, gg.Verdict.REFINES),
        (4, 2, False, gg.Verdict.REFINES),
        (2, 2, True, gg.Verdict.BROKEN),
    ],
)
def test_one_token_beside_a_cache(ranks: int, of_keys: int, late: bool, wanted: gg.Verdict) -> None:
    cache = gg.tensor(3, of_keys, CACHED, SIZE)
    report = gg.verify(
        Decoder(of_keys),
        lambda mesh: Decoder(of_keys, mesh, late),
        (gg.tensor(3, WIDTH), cache, cache, gg.tensor(3, dtype=torch.long, low=1, high=CACHED)),
        mesh={"tp": ranks},
        shard_inputs=cache_of(of_keys, ranks),
        load=loader(of_keys, ranks),
        grads=False,
    )
    assert report.verdict is wanted
