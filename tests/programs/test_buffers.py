"""What programs leave behind: running statistics, the biases of experts, tables that every rank makes."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

ROWS: dict[str, Any] = {"dp": Shard(0)}
TOKENS, DIM, EXPERTS, CHOSEN = 8, 6, 4, 2


def verdict(spec: Any, impl: Any, *shapes: tuple[int, ...], grads: bool = False) -> Any:
    return gg.verify(
        spec,
        impl,
        tuple(gg.tensor(*shape) for shape in shapes),
        mesh={"dp": 2},
        in_relations=ROWS,
        out_relations=ROWS,
        grads=grads,
    )


class Norm(nn.Module):
    """Batch norm over all ranks; ``wrong`` says which running statistic is wrong."""

    def __init__(self, group: Any = None, wrong: str = "") -> None:
        super().__init__()
        self.group, self.wrong = group, wrong
        self.register_buffer("mean", torch.zeros(DIM))
        self.register_buffer("variance", torch.ones(DIM))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, mean, squares = len(x), x.mean(0), (x * x).mean(0)
        own = mean.clone()
        if self.group is not None:
            count *= dist.get_world_size(self.group)
            for moment in (mean, squares):
                dist.all_reduce(moment, op=dist.ReduceOp.AVG, group=self.group)
        variance = squares - mean * mean
        self.mean.mul_(0.9).add_(0.1 * (own if self.wrong == "mean" else mean))
        unbiased = 1 if self.wrong == "variance" else count / (count - 1)
        self.variance = 0.9 * self.variance + 0.1 * variance * unbiased
        return (x - mean) / (variance + 1e-5).sqrt()


@pytest.mark.parametrize("wrong", ["", "mean", "variance"])
def test_running_statistics(wrong: str) -> None:
    found = verdict(Norm(), lambda mesh: Norm(mesh.get_group("dp"), wrong), (TOKENS, DIM))
    assert found.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES)
    if wrong:
        assert found.counterexample.promise == f"after({wrong})"


class Router(nn.Module):
    """Experts by biased scores; the bias follows the load of all ranks' tokens, and the table stays as it is."""

    def __init__(self, group: Any = None, right: bool = True) -> None:
        super().__init__()
        self.gate, self.group, self.right = nn.Linear(DIM, EXPERTS), group, right
        self.register_buffer("bias", torch.zeros(EXPERTS))
        self.register_buffer("table", torch.arange(float(CHOSEN)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.gate(x).sigmoid()
        chosen = (scores + self.bias).topk(CHOSEN, -1).indices
        load = F.one_hot(chosen, EXPERTS).sum((0, 1)).float()
        if self.group is not None and self.right:
            dist.all_reduce(load, group=self.group)
        self.bias += 0.01 * torch.sign(load.mean() - load)
        return scores.gather(-1, chosen) + self.table


@pytest.mark.parametrize("right", [True, False])
def test_the_bias_of_experts(right: bool) -> None:
    found = verdict(Router(), lambda mesh: Router(mesh.get_group("dp"), right), (TOKENS, DIM))
    assert found.verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN)


class Renamed(nn.Module):
    """The same statistics without a buffer for them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, squares = x.mean(0), (x * x).mean(0)
        for moment in (mean, squares):
            dist.all_reduce(moment, op=dist.ReduceOp.AVG)
        return (x - mean) / (squares - mean * mean + 1e-5).sqrt()


def test_a_buffer_that_no_rank_has_is_told() -> None:
    found = verdict(Norm(), lambda _: Renamed(), (TOKENS, DIM))
    assert found.verdict is gg.Verdict.REFINES
    assert "what the specification leaves in buffer 'mean' is not compared: no rank has it" in found.assumed


def test_buffers_that_stay_are_no_outputs() -> None:
    found = verdict(Norm().eval(), lambda mesh: Norm(mesh.get_group("dp")), (TOKENS, DIM))
    assert "after(mean)" in found.relations
    still = verdict(nn.BatchNorm1d(DIM).eval(), lambda _: nn.BatchNorm1d(DIM).eval(), (TOKENS, DIM))
    assert still.verdict is gg.Verdict.REFINES
    assert not any(name.startswith("after(") for name in still.relations)


@pytest.mark.parametrize("returned", [True, False])
def test_what_is_written_into_an_input(returned: bool) -> None:
    def spec(x: torch.Tensor, cache: torch.Tensor) -> Any:
        cache[:, 2] = x
        return (cache.sum(1), cache) if returned else cache.sum(1)

    def impl(x: torch.Tensor, cache: torch.Tensor) -> Any:
        after = torch.cat([cache[:, :2], x[:, None], cache[:, 3:]], 1)
        return (after.sum(1), after) if returned else after.sum(1)

    found = verdict(spec, lambda _: impl, (TOKENS, DIM), (TOKENS, 5, DIM))
    assert found.verdict is gg.Verdict.REFINES
    told = any("writes into its input 'cache'" in line for line in found.assumed)
    assert told is not returned


HEADS = 4


def slopes(heads: int) -> torch.Tensor:
    return torch.tensor([2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)])


class Biased(nn.Module):
    """Scores with a bias of their distance, whose slope is each head's; ``built`` says how a rank comes to its slopes."""

    def __init__(self, built: Any, frozen: bool) -> None:
        super().__init__()
        if frozen:
            self.slopes = nn.Parameter(built(), requires_grad=False)
        else:
            self.register_buffer("slopes", built())

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        place = torch.arange(scores.shape[-1])
        return (scores + (place[None] - place[:, None]) * self.slopes[:, None, None]).softmax(-1)


def first_head() -> int:
    return dist.get_rank() * (HEADS // 2)


@pytest.mark.parametrize(
    ("built", "verdict_of_it"),
    [
        (lambda: slopes(HEADS)[first_head() : first_head() + HEADS // 2], gg.Verdict.REFINES),
        (lambda: torch.exp2(-2.0 * (torch.arange(HEADS // 2) + 1 + first_head())), gg.Verdict.REFINES),
        (lambda: torch.zeros(HEADS // 2), gg.Verdict.REFINES),  # a place for what is loaded
        (lambda: slopes(HEADS)[: HEADS // 2], gg.Verdict.BROKEN),
        (lambda: slopes(HEADS // 2), gg.Verdict.BROKEN),
    ],
    ids=["own part", "another way", "not yet loaded", "first part on every rank", "as if there were fewer heads"],
)
@pytest.mark.parametrize("frozen", [False, True], ids=["buffer", "frozen parameter"])
def test_a_table_is_what_the_rank_made_it(built: Any, verdict_of_it: Any, frozen: bool) -> None:
    """What both programs compute is not taken for the specification's by its name."""
    found = verdict(Biased(lambda: slopes(HEADS), frozen), lambda _: Biased(built, frozen), (HEADS, 5, 5))
    assert found.verdict is verdict_of_it


@pytest.mark.parametrize(("factor", "verdict_of_it"), [(0.5, gg.Verdict.REFINES), (0.25, gg.Verdict.BROKEN)])
def test_a_number_is_what_the_rank_made_it(factor: float, verdict_of_it: Any) -> None:
    class Scaled(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.register_buffer("factor", torch.tensor(factor))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.factor * x.sin()

    found = verdict(Scaled(0.5), lambda _: Scaled(factor), (TOKENS, DIM))
    assert found.verdict is verdict_of_it


@pytest.mark.parametrize(("first", "verdict_of_it"), [(True, gg.Verdict.BROKEN), (False, gg.Verdict.REFINES)])
def test_a_large_mask_is_what_the_rank_made_it(first: bool, verdict_of_it: Any) -> None:
    rows = 128

    class Causal(nn.Module):
        def __init__(self, start: Any, count: int) -> None:
            super().__init__()
            self.register_buffer("mask", torch.ones(count, rows, dtype=torch.bool).tril(start()))

        def forward(self, scores: torch.Tensor) -> torch.Tensor:
            return scores.masked_fill(~self.mask, 0.0)

    half = rows // 2
    found = verdict(
        Causal(lambda: 0, rows),
        lambda _: Causal(lambda: 0 if first else half * dist.get_rank(), half),
        (rows, rows),
    )
    assert found.verdict is verdict_of_it


@pytest.mark.parametrize(
    ("heads", "own", "verdict_of_it"),
    [(HEADS, True, gg.Verdict.REFINES), (HEADS, False, gg.Verdict.BROKEN), (HEADS // 2, False, gg.Verdict.BROKEN)],
)
def test_a_table_of_a_closure_is_what_the_rank_made_it(heads: int, own: bool, verdict_of_it: Any) -> None:
    def scaled(heads: int, start: int, stop: int) -> Any:
        table = slopes(heads)[start:stop]

        def run(x: torch.Tensor) -> torch.Tensor:
            return x * table[:, None]

        return run

    half = HEADS // 2

    def implementation(_: Any) -> Any:
        start = first_head() if own else 0
        return scaled(heads, start, start + half)

    found = verdict(scaled(HEADS, 0, HEADS), implementation, (HEADS, DIM))
    assert found.verdict is verdict_of_it


class Still(nn.Module):
    """Statistics that no step moves."""

    def __init__(self, moves: bool) -> None:
        super().__init__()
        self.moves = moves
        self.register_buffer("mean", torch.zeros(DIM))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.moves:
            self.mean.lerp_(x.mean(0), 0.1)
        return 2 * x


def test_a_buffer_that_stays_as_it_was() -> None:
    (finding,) = verdict(Still(True), lambda _: Still(False), (TOKENS, DIM)).diagnostics
    assert finding.message.startswith("'mean' stays as it was, and the specification writes into it")
