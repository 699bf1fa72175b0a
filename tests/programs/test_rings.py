"""Attention whose keys and values go round a ring, merged by running maxima or plain sums; forward and backward written by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, WIDTH = 8, 3
PART = {"cp": Shard(2)}
Positions = Callable[[int, int, int], torch.Tensor]


def passed_on(x: torch.Tensor, group: Any) -> torch.Tensor:
    """What the rank before has."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)  # as it lies where it comes from
    sent = dist.P2POp(dist.isend, x.contiguous(), (rank + 1) % ranks, group)
    received = dist.P2POp(dist.irecv, out, (rank - 1) % ranks, group)
    for work in dist.batch_isend_irecv([sent, received]):
        work.wait()
    return out


def in_order(rank: int, ranks: int, local: int) -> torch.Tensor:
    return torch.arange(local) + rank * local


def zigzag(rank: int, ranks: int, local: int) -> torch.Tensor:
    """A chunk from the front and its mirror image from the back, so that all ranks have the same work under a causal mask."""
    half = local // 2
    return torch.cat([torch.arange(half) + rank * half, torch.arange(half) + (2 * ranks - 1 - rank) * half])


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, how: "Attention") -> torch.Tensor:
        largest = torch.full(q.shape[:3], float("-inf"))
        total, out = torch.zeros(q.shape[:3]), torch.zeros_like(q)
        keys, values = k, v
        for step in range(how.ranks):
            if how.sees(step):
                scores = how.scores(q, keys, step)
                larger = torch.maximum(largest, scores.amax(-1)) if how.positions is in_order else torch.zeros(())
                scale = torch.ones(()) if how.wrong == "scale" or how.positions is zigzag else (largest - larger).exp()
                weights = (scores - larger[..., None]).exp()
                total, out = total * scale + weights.sum(-1), out * scale[..., None] + weights @ values
                largest = larger
            keys, values = passed_on(keys, how.group), passed_on(values, how.group)
        out = out / total[..., None]
        ctx.how = how
        ctx.save_for_backward(q, k, v, out, largest + total.log())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, keys, values, out, logarithm = ctx.saved_tensors
        how = ctx.how
        inner = (gradient * out).sum(-1, keepdim=True) if how.wrong != "inner" else torch.zeros(())
        of_q, of_k, of_v = torch.zeros_like(q), torch.zeros_like(keys), torch.zeros_like(values)
        for step in range(how.ranks):
            weights = (how.scores(q, keys, step) - logarithm[..., None]).exp()
            of_scores = weights * (gradient @ values.transpose(-1, -2) - inner) * WIDTH**-0.5
            of_q = of_q + of_scores @ keys
            of_k = of_k + of_scores.transpose(-1, -2) @ q
            of_v = of_v + weights.transpose(-1, -2) @ gradient
            keys, values, of_k, of_v = (passed_on(x, how.group) for x in (keys, values, of_k, of_v))
        return of_q, passed_on(of_k, how.group) if how.wrong == "place" else of_k, of_v, None


class Attention(nn.Module):
    def __init__(self, mesh: Any, positions: Positions, causal: bool, wrong: str = "") -> None:
        super().__init__()
        self.positions, self.causal, self.wrong = positions, causal, wrong
        self.group, self.ranks, self.rank = mesh.get_group("cp"), mesh.size(), mesh.get_local_rank("cp")

    def sees(self, step: int) -> bool:
        """Whether any of a step's keys comes before a query: its blocks above the diagonal are left out."""
        return not self.causal or self.positions is zigzag or step <= self.rank

    def scores(self, q: torch.Tensor, k: torch.Tensor, step: int) -> torch.Tensor:
        rows = self.positions(self.rank, self.ranks, q.shape[2])
        columns = self.positions((self.rank - step) % self.ranks, self.ranks, q.shape[2])
        scores = q @ k.transpose(-1, -2) * WIDTH**-0.5
        return scores.masked_fill(columns[None, :] > rows[:, None], float("-inf")) if self.causal else scores

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return Ring.apply(q, k, v, self)


class Whole(nn.Module):
    """Attention over all tokens, which may come in the order of the ranks' parts."""

    def __init__(self, order: torch.Tensor, causal: bool) -> None:
        super().__init__()
        self.order, self.causal = order, causal

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x[:, :, self.order.argsort()] for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)[:, :, self.order]


def verdict(
    ranks: int,
    positions: Positions,
    causal: bool,
    wrong: str = "",
    impl: Positions | None = None,
    tokens: int = TOKENS,
) -> gg.Verdict | None:
    order = torch.cat([positions(rank, ranks, tokens // ranks) for rank in range(ranks)])
    return gg.verify(
        Whole(order, causal),
        lambda mesh: Attention(mesh, impl or positions, causal, wrong),
        tuple(gg.tensor(1, 2, tokens, WIDTH) for _ in range(3)),
        mesh={"cp": ranks},
        in_relations=PART,
        out_relations=PART,
    ).verdict


@pytest.mark.parametrize(
    ("ranks", "positions", "causal"),
    [(2, in_order, True), (2, in_order, False), (4, in_order, True), (4, in_order, False), (2, zigzag, True)],
)
def test_rings(ranks: int, positions: Positions, causal: bool) -> None:
    assert verdict(ranks, positions, causal) is gg.Verdict.REFINES


@pytest.mark.parametrize(
    ("ranks", "tokens"),
    [(2, 4), (3, 6), *(pytest.param(*each, marks=pytest.mark.long) for each in ((3, 24), (4, 8), (4, 64)))],
)
def test_zigzags(ranks: int, tokens: int) -> None:
    assert verdict(ranks, zigzag, causal=True, tokens=tokens) is gg.Verdict.REFINES


@pytest.mark.parametrize("wrong", [pytest.param("inner", marks=pytest.mark.long), "place"])
def test_wrong_zigzags(wrong: str) -> None:
    assert verdict(3, zigzag, causal=True, wrong=wrong, tokens=24) is gg.Verdict.BROKEN


@pytest.mark.parametrize("later", [0, 1])
def test_a_zigzag_under_a_mask_of_its_order(later: int) -> None:
    ranks, tokens = 4, 32
    order = torch.cat([zigzag(rank, ranks, tokens // ranks) for rank in range(ranks)])

    def attention(q: torch.Tensor, k: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return (q @ k.transpose(-1, -2)).masked_fill(order[None, :] > rows[:, None], float("-inf")).softmax(-1) @ k

    def ring(mesh: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        def act(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            keys = [torch.empty_like(k) for _ in range(ranks)]
            dist.all_gather(keys, k.contiguous(), mesh.get_group("cp"))
            rows = zigzag(mesh.get_local_rank("cp"), ranks, tokens // ranks)
            return attention(q, torch.cat(keys, 1), rows + later)

        return act

    report = gg.verify(
        lambda q, k: attention(q, k, order),
        ring,
        tuple(gg.tensor(2, tokens, WIDTH) for _ in range(2)),
        mesh={"cp": ranks},
        in_relations={"cp": Shard(1)},
        out_relations={"cp": Shard(1)},
    )
    assert report.verdict is (gg.Verdict.BROKEN if later else gg.Verdict.REFINES)


@pytest.mark.parametrize("wrong", ["scale", "inner", "place"])
def test_wrong_rings(wrong: str) -> None:
    assert verdict(2, in_order, causal=True, wrong=wrong) is gg.Verdict.BROKEN


def test_parts_in_another_order_than_the_mask() -> None:
    assert verdict(2, zigzag, causal=True, impl=in_order) is gg.Verdict.BROKEN


def with_slopes(q: torch.Tensor, k: torch.Tensor, slopes: torch.Tensor, first: int, other: int) -> torch.Tensor:
    """Scores of ALiBi (Press et al. 2022): every head loses so much for every place between query and key."""
    rows, columns = torch.arange(q.shape[1]) + first, torch.arange(k.shape[1]) + other
    return q @ k.transpose(-1, -2) - slopes[:, None, None] * (rows[:, None] - columns)


def slopes_in_a_ring(scale: float) -> gg.Verdict | None:
    def whole(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        return with_slopes(q, k, slopes, 0, 0).softmax(-1) @ v

    def ring(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        rank, ranks, local = dist.get_rank(), dist.get_world_size(), q.shape[1]
        largest = torch.full((*q.shape[:2], 1), float("-inf"))
        total, out = torch.zeros_like(largest), torch.zeros_like(v)
        for step in range(ranks):
            scores = with_slopes(q, k, slopes * scale, rank * local, (rank - step) % ranks * local)
            larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
            weights, old = (scores - larger).exp(), (largest - larger).exp()
            total, out, largest = total * old + weights.sum(-1, keepdim=True), out * old + weights @ v, larger
            k, v = passed_on(k, None), passed_on(v, None)
        return out / total

    return gg.verify(
        whole,
        lambda mesh: ring,
        inputs=(*(gg.tensor(2, TOKENS, WIDTH) for _ in range(3)), gg.tensor(2)),
        mesh={"cp": 2},
        in_relations=(*({"cp": Shard(1)} for _ in range(3)), {}),
        out_relations={"cp": Shard(1)},
    ).verdict


def test_slopes_over_distances_in_a_ring() -> None:
    assert slopes_in_a_ring(1.0) is gg.Verdict.REFINES
    assert slopes_in_a_ring(0.5) is gg.Verdict.BROKEN


class Shared(torch.autograd.Function):
    """The same on all ranks, each of which sees a part of the tokens: gradients are added up."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


def root_mean_square(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def centred(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


class Layer(nn.Module):
    """Norms before attention and after it, as decoder layers have them: what is attended to is divided by roots, and functions are taken of what comes out."""

    def __init__(self, norm: Callable[[torch.Tensor], torch.Tensor], ring: Attention | None = None) -> None:
        super().__init__()
        self.norm, self.ring = norm, ring
        heads = 2
        self.inner = nn.ParameterList([torch.empty(heads * WIDTH, heads * WIDTH) for _ in range(3)])
        self.out = nn.Parameter(torch.empty(heads * WIDTH, heads * WIDTH))

    def weight(self, parameter: torch.Tensor) -> torch.Tensor:
        return parameter if self.ring is None else Shared.apply(parameter, self.ring.group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        q, k, v = ((h @ self.weight(w)).unflatten(-1, (2, WIDTH)).transpose(1, 2) for w in self.inner)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True) if self.ring is None else self.ring(q, k, v)
        x = x + attended.transpose(1, 2).flatten(2) @ self.weight(self.out)
        return F.silu(self.norm(x))


@pytest.mark.parametrize(
    ("norm", "wrong", "wanted"),
    [
        (root_mean_square, "", gg.Verdict.REFINES),
        (centred, "", gg.Verdict.REFINES),
        (root_mean_square, "scale", gg.Verdict.BROKEN),
        (root_mean_square, "inner", gg.Verdict.BROKEN),
    ],
)
def test_rings_between_norms(norm: Callable[[torch.Tensor], torch.Tensor], wrong: str, wanted: gg.Verdict) -> None:
    result = gg.verify(
        Layer(norm),
        lambda mesh: Layer(norm, Attention(mesh, in_order, causal=True, wrong=wrong)),
        (gg.tensor(1, TOKENS, 2 * WIDTH),),
        mesh={"cp": 2},
        in_relations={"cp": Shard(1)},
        out_relations={"cp": Shard(1)},
    )
    assert result.verdict is wanted


def striped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Any, diagonal: bool) -> torch.Tensor:
    """Every rank has each ``ranks``-th token; blocks of later ranks are one token behind, unless their ``diagonal`` is seen as well, which is wrong."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    out, logarithm = torch.zeros(()), torch.zeros(())
    for step in range(ranks):
        later = (rank - step) % ranks > rank and not diagonal
        mine, keys, values = (q[1:], k[:-1], v[:-1]) if later else (q, k, v)
        future = torch.ones(len(mine), len(mine), dtype=torch.bool).triu(1)
        scores = (mine @ keys.T * WIDTH**-0.5).masked_fill(future, float("-inf"))
        of_block = scores.logsumexp(-1, keepdim=True)
        block = (scores - of_block).exp() @ values
        if step == 0:
            out, logarithm = block, of_block
        else:
            seen = slice(1, None) if later else slice(None)
            known, before = out[seen], logarithm[seen]
            out[seen] = known - torch.sigmoid(of_block - before) * (known - block)
            logarithm[seen] = before - F.logsigmoid(before - of_block)
        k, v = passed_on(k, group), passed_on(v, group)
    return out


@pytest.mark.parametrize(("diagonal", "wanted"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_a_striped_ring_merged_by_sigmoids(diagonal: bool, wanted: gg.Verdict) -> None:
    def whole(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        return torch.cat([out[rank::2] for rank in range(2)])

    found = gg.verify(
        whole,
        lambda mesh: lambda q, k, v: striped(q, k, v, mesh.get_group("cp"), diagonal),
        tuple(gg.tensor(TOKENS, WIDTH) for _ in range(3)),
        mesh={"cp": 2},
        shard_inputs=lambda inputs, mesh: tuple(t[dist.get_rank() :: 2].contiguous() for t in inputs),
        out_relations={"cp": Shard(0)},
        grads=False,
    )
    assert found.verdict is wanted
