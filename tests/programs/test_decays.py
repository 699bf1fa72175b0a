"""Linear attention over tokens on ranks (Lightning Attention, LASP, RetNet): the past fades by a rate of every head, and comes from the rank before as a state."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

HEADS, TOKENS, WIDTH = 2, 12, 3
Tensors = tuple[torch.Tensor, ...]
Program = Callable[..., torch.Tensor | Tensors]
STREAM = gg.tensor(HEADS, TOKENS, WIDTH)
PART, WHOLE = {"sp": Shard(1)}, {"sp": Replicate()}


def slopes(rates: torch.Tensor) -> torch.Tensor:
    """What every head keeps of a token, as RetNet has it, after one more."""
    return 1 - 2.0 ** (-5 - torch.arange(len(rates)))


def kept(rates: torch.Tensor) -> torch.Tensor:
    return torch.exp(-torch.exp(rates))


def number(rates: torch.Tensor) -> torch.Tensor | float:
    return 0.9


def powers(base: torch.Tensor | float, index: torch.Tensor) -> torch.Tensor:
    """Of every head a vector or a matrix."""
    if isinstance(base, float):
        return base**index
    return base.reshape(-1, *(1 for _ in index.shape)) ** index


def by_exponentials(base: torch.Tensor | float, index: torch.Tensor) -> torch.Tensor:
    """The same as an exponential, which is 0 behind a token."""
    rate = -torch.as_tensor(base).log().reshape(-1, 1, 1)
    return torch.exp(torch.where(index >= 0, -rate * index, float("-inf")))


def by_mask(base: torch.Tensor | float, index: torch.Tensor) -> torch.Tensor:
    return powers(base, index).masked_fill(index < 0, 0.0)


def by_triangle(base: torch.Tensor | float, index: torch.Tensor) -> torch.Tensor:
    return powers(base, index.clamp(min=0)).tril()


def distances(tokens: int) -> torch.Tensor:
    return torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]


def at_once(
    base: Any, table: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rates: torch.Tensor
) -> torch.Tensor:
    return (q @ k.transpose(-1, -2) * table(base(rates), distances(q.shape[1]))) @ v


def token_by_token(base: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
    state, out = torch.zeros(HEADS, WIDTH, WIDTH), []
    fades = torch.as_tensor(base(rates)).reshape(-1, 1, 1)
    for token in range(q.shape[1]):
        state = fades * state + k[:, token, :, None] * v[:, token, None, :]
        out.append(q[:, token : token + 1] @ state)
    return torch.cat(out, 1)


def in_parts(
    base: Any,
    table: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rates: torch.Tensor,
    *,
    wrong: str = "",
    gathers: bool = False,
) -> torch.Tensor:
    """A rank's tokens, whose past is a state that the rank before sends, or is made of the states of all ranks."""
    rank, ranks, local = dist.get_rank(), dist.get_world_size(), q.shape[1]
    fades = base(rates)
    here = torch.arange(local)
    own = (q @ k.transpose(-1, -2) * table(fades, distances(local))) @ v
    left = powers(fades, local - here if wrong == "late" else local - 1 - here)
    added = (k * left[..., None]).transpose(-1, -2) @ v
    whole = powers(fades, torch.tensor([[local - 1 if wrong == "short" else local]]))
    state = torch.zeros(HEADS, WIDTH, WIDTH)
    if gathers:
        states = [torch.empty_like(added) for _ in range(ranks)]
        dist.all_gather(states, added)
        for other in range(rank):
            state = (state if wrong == "kept" else whole * state) + states[other]
    else:
        if rank:
            dist.recv(state, rank - 1)
        if rank < ranks - 1:
            dist.send((state if wrong == "kept" else whole * state) + added, rank + 1)
    since = powers(fades, here if wrong == "early" else here + 1)
    return own + (q * since[..., None]) @ state


def verdict(spec: Program, program: Program, ranks: int, inputs: int = 3, placements: Any = None) -> gg.Verdict | None:
    return gg.verify(
        spec,
        lambda mesh: program,
        (*(STREAM for _ in range(inputs)), gg.tensor(HEADS)),
        mesh={"sp": ranks},
        in_relations=placements or (*(PART for _ in range(inputs)), WHOLE),
        out_relations=PART,
    ).verdict


@pytest.mark.parametrize(
    ("ranks", "base", "spec", "table"),
    [
        (2, slopes, by_triangle, by_mask),
        (3, slopes, by_mask, by_exponentials),
        (3, kept, by_exponentials, by_triangle),
        (4, torch.sigmoid, by_mask, by_mask),
        (4, number, by_exponentials, by_triangle),
    ],
)
def test_decays(ranks: int, base: Any, spec: Any, table: Any) -> None:
    assert verdict(partial(at_once, base, spec), partial(in_parts, base, table), ranks) is gg.Verdict.REFINES


@pytest.mark.parametrize("base", [slopes, number])
def test_token_by_token(base: Any) -> None:
    program = partial(in_parts, base, by_mask, gathers=True)
    assert verdict(partial(token_by_token, base), program, 3) is gg.Verdict.REFINES


@pytest.mark.parametrize(
    ("base", "wrong", "gathers"),
    [(slopes, "late", False), (kept, "short", True), (number, "kept", True), (torch.sigmoid, "early", False)],
)
def test_wrong_decays(base: Any, wrong: str, gathers: bool) -> None:
    program = partial(in_parts, base, by_mask, wrong=wrong, gathers=gathers)
    assert verdict(partial(at_once, base, by_mask), program, 3) is gg.Verdict.BROKEN


def test_parts_of_unequal_length() -> None:
    sizes = (5, 4, 3)

    def parts(inputs: Tensors, mesh: Any) -> Tensors:
        *streams, rates = inputs
        return (*(x.split(sizes, 1)[mesh.get_local_rank("sp")] for x in streams), rates)

    for wrong, wanted in (("", gg.Verdict.REFINES), ("short", gg.Verdict.BROKEN)):
        report = gg.verify(
            partial(at_once, kept, by_mask),
            lambda mesh, wrong=wrong: partial(in_parts, kept, by_mask, wrong=wrong),
            (STREAM, STREAM, STREAM, gg.tensor(HEADS)),
            mesh={"sp": 3},
            shard_inputs=parts,
            out_relations=PART,
        )
        assert report.verdict is wanted


def blocks(
    slope: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, state: torch.Tensor, block: int
) -> Tensors:
    """Tokens block by block, as MiniMax writes it, and the state behind them."""
    places = torch.arange(block) + 1
    q_decay, k_decay = torch.exp(-slope * places[:, None]), torch.exp(-slope * (block - places[:, None]))
    diagonal = torch.exp(torch.where(distances(block) >= 0, -slope * distances(block), float("-inf")))
    out = torch.empty_like(v)
    for start in range(0, q.shape[1], block):
        rows, keys, values = (x[:, start : start + block] for x in (q, k, v))
        size = rows.shape[1]
        near = (rows @ keys.transpose(-1, -2) * diagonal[:, :size, :size]) @ values
        out[:, start : start + block] = (rows * q_decay[:, :size]) @ state + near
        state = torch.exp(-slope * size) * state + (keys * k_decay[:, -size:]).transpose(-1, -2) @ values
    return out, state


def in_blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rates: torch.Tensor, *, block: int) -> torch.Tensor:
    return blocks(rates[:, None, None], q, k, v, torch.zeros(HEADS, WIDTH, WIDTH), block)[0]


def ranks_in_blocks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rates: torch.Tensor, *, block: int, first: int = 0
) -> torch.Tensor:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    state = torch.zeros(HEADS, WIDTH, WIDTH)
    if rank > first:
        dist.recv(state, rank - 1)
    out, state = blocks(rates[:, None, None], q, k, v, state, block)
    if first <= rank < ranks - 1:
        dist.send(state, rank + 1)
    return out


@pytest.mark.parametrize(("ranks", "block"), [(2, 2), (3, 4)])
def test_other_blocks(ranks: int, block: int) -> None:
    program = partial(ranks_in_blocks, block=block)
    assert verdict(partial(in_blocks, block=6), program, ranks) is gg.Verdict.REFINES


def test_a_state_that_the_second_rank_does_not_get() -> None:
    program = partial(ranks_in_blocks, block=2, first=1)
    assert verdict(partial(in_blocks, block=6), program, 3) is gg.Verdict.BROKEN


class Lasp(torch.autograd.Function):
    """LASP's passes: the state runs up the ranks, its gradient down."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rates: torch.Tensor, wrong: str
    ) -> torch.Tensor:
        rank, ranks, local = dist.get_rank(), dist.get_world_size(), q.shape[1]
        rate, here = rates[:, None, None], torch.arange(local)[:, None]
        since, left = torch.exp(-rate * (here + 1)), torch.exp(-rate * (local - 1 - here))
        table, whole = by_exponentials(torch.exp(-rates), distances(local)), torch.exp(-rate * local)
        state = torch.zeros(HEADS, WIDTH, WIDTH)
        if rank:
            dist.recv(state, rank - 1)
        if rank < ranks - 1:
            dist.send(whole * state + (k * left).transpose(-1, -2) @ v, rank + 1)
        ctx.save_for_backward(q, k, v, state, table, since, left, whole)
        ctx.wrong = wrong
        return (q @ k.transpose(-1, -2) * table) @ v + (q * since) @ state

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, state, table, since, left, whole = ctx.saved_tensors
        rank, ranks = dist.get_rank(), dist.get_world_size()
        weights, scores = gradient @ v.transpose(-1, -2) * table, q @ k.transpose(-1, -2) * table
        of_state = torch.zeros_like(state)
        if rank < ranks - 1:
            dist.recv(of_state, rank + 1)
        if rank:
            faded = of_state if ctx.wrong == "kept" else whole * of_state
            dist.send(faded + (q * (1 if ctx.wrong == "early" else since)).transpose(-1, -2) @ gradient, rank - 1)
        of_q = weights @ k + gradient @ state.transpose(-1, -2) * since
        of_k = weights.transpose(-1, -2) @ q + v @ of_state.transpose(-1, -2) * left
        of_v = scores.transpose(-1, -2) @ gradient + (k * left) @ of_state
        return of_q, of_k, of_v, None, None


def with_gradients(attention: Program, *inputs: torch.Tensor) -> Tensors:
    *streams, gradient, rates = inputs
    leaves = [x.detach().requires_grad_() for x in streams]
    out = attention(*leaves, rates)
    assert isinstance(out, torch.Tensor)
    return out, *torch.autograd.grad(out, leaves, gradient)


@pytest.mark.parametrize(
    ("ranks", "wrong", "wanted"),
    [
        (3, "", gg.Verdict.REFINES),
        (4, "", gg.Verdict.REFINES),
        (3, "kept", gg.Verdict.BROKEN),
        (3, "early", gg.Verdict.BROKEN),
    ],
)
def test_gradients(ranks: int, wrong: str, wanted: gg.Verdict) -> None:
    def whole(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
        return (q @ k.transpose(-1, -2) * by_exponentials(torch.exp(-rates), distances(TOKENS))) @ v

    program = partial(with_gradients, lambda *x: Lasp.apply(*x, wrong))
    assert verdict(partial(with_gradients, whole), program, ranks, inputs=4) is wanted


def gated(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """Every token says how much is kept of what came before it, as in Mamba 2 and gated linear attention."""
    sums = gates.cumsum(1)
    return (q @ k.transpose(-1, -2) * torch.exp(sums[..., :, None] - sums[..., None, :]).tril()) @ v


def gated_in_parts(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gates: torch.Tensor, *, wrong: str = ""
) -> torch.Tensor:
    rank, ranks, sums = dist.get_rank(), dist.get_world_size(), gates.cumsum(1)
    total = sums[:, -1, None, None]
    state = torch.zeros(HEADS, WIDTH, WIDTH)
    if rank:
        dist.recv(state, rank - 1)
    if rank < ranks - 1:
        left = torch.exp(total - sums[..., None])
        dist.send((state if wrong == "kept" else torch.exp(total) * state) + (k * left).transpose(-1, -2) @ v, rank + 1)
    return gated(q, k, v, gates) + (q * torch.exp(sums)[..., None]) @ state


@pytest.mark.parametrize(("ranks", "wrong"), [(3, ""), (3, "kept")])
def test_gates(ranks: int, wrong: str) -> None:
    report = gg.verify(
        gated,
        lambda mesh: partial(gated_in_parts, wrong=wrong),
        (STREAM, STREAM, STREAM, gg.tensor(HEADS, TOKENS)),
        mesh={"sp": ranks},
        in_relations=PART,
        out_relations=PART,
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES)


class Scaled(torch.autograd.Function):
    """Every token times the sum of those before it on its rank, block by block; the backward pass adds the blocks up again."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        parts, before = [], torch.zeros(HEADS, 1, WIDTH)
        for part in x.split(2, 1):
            parts.append(part * before)
            before = before + part.sum(1, keepdim=True)
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        parts, before = [], torch.zeros(HEADS, 1, WIDTH)
        for part, own in zip(gradient.split(2, 1), x.split(2, 1), strict=True):
            parts.append(part * before * before)  # once too often
            before = before + own.sum(1, keepdim=True)
        return torch.cat(parts, 1)


def test_the_last_update_of_a_loop_is_no_lost_gradient() -> None:
    def whole(x: torch.Tensor) -> torch.Tensor:
        parts, before = [], torch.zeros(HEADS, 1, WIDTH)
        for at, part in enumerate(x.split(2, 1)):
            before = before if at % 3 else torch.zeros(HEADS, 1, WIDTH)
            parts.append(part * before.detach())
            before = before + part.sum(1, keepdim=True)
        return torch.cat(parts, 1)

    def both(attention: Program) -> Program:
        def act(x: torch.Tensor, gradient: torch.Tensor) -> Tensors:
            leaf = x.detach().requires_grad_()
            out = attention(leaf)
            assert isinstance(out, torch.Tensor)
            return out, *torch.autograd.grad(out, leaf, gradient)

        return act

    report = gg.verify(
        both(whole),
        lambda mesh: both(Scaled.apply),
        (STREAM, STREAM),
        mesh={"sp": 2},
        in_relations=PART,
        out_relations=PART,
    )
    assert report.verdict is gg.Verdict.BROKEN
    assert not any("read nowhere" in each.message for each in report.diagnostics), report.diagnostics
