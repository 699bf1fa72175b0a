"""Prompts in chunks and new tokens one by one, over a cache of keys and values: all rows of what attention computes at once."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

import graphguard as gg

LENGTH, WIDTH, HEADS, HEAD = 5, 6, 2, 4


def turned(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotary positions; the halves of a head are turned."""
    speeds = 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD)
    angles = positions[:, None].float() * speeds
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    one, two = x.chunk(2, -1)
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int) -> torch.Tensor:
    scores = torch.einsum("ihd,jhd->hij", q, k) / HEAD**0.5
    rows = torch.arange(q.shape[0])[:, None] + start
    scores = scores.masked_fill(torch.arange(k.shape[0]) > rows, float("-inf"))
    return torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).flatten(1)


def projected(x: torch.Tensor, weight: torch.Tensor, heads: int) -> tuple[torch.Tensor, ...]:
    return (x @ weight.t()).view(x.shape[0], 3, heads, HEAD).unbind(1)


def at_once(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    q, k, v = projected(x, weight, HEADS)
    positions = torch.arange(LENGTH)
    return attention(turned(q, positions), turned(k, positions), v, 0) @ out.t()


def verdict(cuts: tuple[int, ...], wrong: str = "", ranks: int = 2) -> gg.Verdict | None:
    def impl(mesh: Any) -> Any:
        heads, rank = HEADS // ranks, mesh.get_local_rank("tp")

        def run(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            weight = weight.view(3, HEADS, HEAD, WIDTH)[:, rank * heads : (rank + 1) * heads].reshape(-1, WIDTH)
            out = out[:, rank * heads * HEAD : (rank + 1) * heads * HEAD]
            keys, values, rows = [], [], []
            for start, stop in zip(cuts, [*cuts[1:], LENGTH], strict=True):
                q, k, v = projected(x[start:stop], weight, heads)
                positions = torch.arange(stop - start) + (0 if wrong == "position" else start)
                keys.append(turned(k, positions))
                values.append(v)
                row = (
                    attention(turned(q, positions), torch.cat(keys), torch.cat(values), 0 if wrong == "mask" else start)
                    @ out.t()
                )
                if wrong != "sum" or start == 0:
                    dist.all_reduce(row)
                rows.append(row)
            return torch.cat(rows)

        return run

    inputs = (gg.tensor(LENGTH, WIDTH), gg.tensor(3 * HEADS * HEAD, WIDTH), gg.tensor(WIDTH, HEADS * HEAD))
    return gg.verify(at_once, impl, inputs, mesh={"tp": ranks}, out_relations="replicate").verdict


@pytest.mark.parametrize("cuts", [(0, 4), (0, 3, 4), (0, 2, 4), (0, 2)])
def test_all_rows_come_out(cuts: tuple[int, ...]) -> None:
    assert verdict(cuts) is gg.Verdict.REFINES


@pytest.mark.parametrize("wrong", ["position", "mask", "sum"])
def test_wrong_rows(wrong: str) -> None:
    assert verdict((0, 2, 4), wrong) is gg.Verdict.BROKEN


def test_the_last_row_from_a_cache_that_is_given() -> None:
    def step(last: torch.Tensor, before: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        q, k, v = projected(last, weight, HEADS)
        _, keys, values = projected(before, weight, HEADS)
        here = torch.arange(LENGTH - 1, LENGTH)
        keys = torch.cat([turned(keys, torch.arange(LENGTH - 1)), turned(k, here)])
        return attention(turned(q, here), keys, torch.cat([values, v]), LENGTH - 1) @ out.t()

    def shard(inputs: Any, mesh: Any) -> Any:
        x, weight, out = inputs
        return x[LENGTH - 1 :], x[: LENGTH - 1], weight, out

    inputs = (gg.tensor(LENGTH, WIDTH), gg.tensor(3 * HEADS * HEAD, WIDTH), gg.tensor(WIDTH, HEADS * HEAD))
    report = gg.verify(
        lambda *args: at_once(*args)[LENGTH - 1 :],
        lambda mesh: step,
        inputs,
        mesh={"dp": 2},
        shard_inputs=shard,
        out_relations="replicate",
    )
    assert report.verdict is gg.Verdict.REFINES
