"""What programs write into their inputs and do not return: caches of keys and values, lengths."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Shard

import graphguard as gg

BATCH, SLOTS, WIDTH, NOW = 2, 6, 8, 3
Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def token(x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    keys[:, NOW] = 2 * x
    values[:, NOW] = 3 * x


def next_slot(x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    keys[:, NOW] = 2 * x
    values[:, NOW + 1] = 3 * x


def unseen_by_autograd(x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    keys.data[:, NOW] = 2 * x
    values.data[:, NOW + 1] = 3 * x


def keys_alone(x: torch.Tensor, keys: torch.Tensor, _values: torch.Tensor) -> None:
    keys[:, NOW] = 2 * x


def nothing(_x: torch.Tensor, _keys: torch.Tensor, _values: torch.Tensor) -> None:
    pass


def cached(write: Write) -> Any:
    """A cache of keys and values, divided by features, that both programs write into and none returns."""

    def program(write: Write) -> Callable[..., torch.Tensor]:
        def run(x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            out = values[:, :NOW].sum(1) + 3 * x
            write(x, keys, values)
            return out

        return run

    return gg.verify(
        program(token),
        lambda _: program(write),
        (gg.tensor(BATCH, WIDTH), gg.tensor(BATCH, SLOTS, WIDTH), gg.tensor(BATCH, SLOTS, WIDTH)),
        mesh={"tp": 2},
        in_relations=({"tp": Shard(1)}, {"tp": Shard(2)}, {"tp": Shard(2)}),
        out_relations={"tp": Shard(1)},
        grads=False,
    )


def test_a_cache_that_all_write_is_compared() -> None:
    found = cached(token)
    assert found.verdict is gg.Verdict.REFINES
    assert {"after(keys)", "after(values)"} <= set(found.relations)
    assert not any("not compared" in line for line in found.assumed)


@pytest.mark.parametrize("write", [next_slot, unseen_by_autograd, keys_alone])
def test_a_cache_that_is_written_in_other_places(write: Write) -> None:
    found = cached(write)
    assert found.verdict is gg.Verdict.BROKEN
    assert {finding.rule for finding in found.diagnostics} <= {"wrong-shard", "wrong-relation"}


def test_a_cache_that_stays_as_it_was_is_told_so() -> None:
    (finding,) = cached(keys_alone).diagnostics
    assert finding.message.startswith("'values' stays as it was, and the specification writes into it")
    assert "the specification writes here" in {related.message for related in finding.related}


def test_a_cache_that_no_rank_writes_is_told() -> None:
    found = cached(nothing)
    assert found.verdict is gg.Verdict.REFINES
    assert sum("no rank writes into it" in line for line in found.assumed) == 2


def lengths(step: int) -> gg.Verdict | None:
    def program(step: int) -> Callable[..., torch.Tensor]:
        def run(x: torch.Tensor, cache: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
            cache[torch.arange(BATCH), length] = x
            length += step
            return cache.sum(1)

        return run

    return gg.verify(
        program(1),
        lambda _: program(step),
        (gg.tensor(BATCH, WIDTH), gg.tensor(BATCH, SLOTS, WIDTH), gg.tensor(BATCH, dtype=torch.int64, high=SLOTS)),
        mesh={"tp": 2},
        in_relations=({"tp": Shard(1)}, {"tp": Shard(2)}, {}),
        out_relations={"tp": Shard(1)},
        grads=False,
    ).verdict


@pytest.mark.parametrize(("step", "wanted"), [(1, gg.Verdict.REFINES), (2, gg.Verdict.BROKEN)])
def test_lengths_that_are_counted_up(step: int, wanted: gg.Verdict) -> None:
    assert lengths(step) is wanted
