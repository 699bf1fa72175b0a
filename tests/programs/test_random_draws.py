"""Random draws: the same ones are the same numbers; a part's own, or another shape's, can be neither proved nor refuted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.report.diagnostics import Report

Function = Callable[[torch.Tensor], torch.Tensor]
ROWS, COLUMNS = 4, 6


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rand(ROWS, COLUMNS)


def report(spec: Function, impl: Callable[[Any], Function], placed: Any) -> Report:
    return gg.verify(
        spec,
        impl,
        (gg.tensor(ROWS, COLUMNS),),
        mesh={"tp": 2},
        in_relations=None if placed == "replicate" else placed,
        out_relations=placed,
    )


def seeded(mesh: Any) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(mesh.get_local_rank("tp"))
        return F.dropout(x, 0.5)

    return run


def own_part(mesh: Any) -> Function:
    return lambda x: x * torch.rand(ROWS, COLUMNS).chunk(2)[mesh.get_local_rank("tp")]


SHARDED = {"tp": Shard(0)}


@pytest.mark.parametrize(
    ("impl", "placed"),
    [
        (lambda mesh: noisy, "replicate"),
        (own_part, SHARDED),
    ],
)
def test_the_same_draws(impl: Callable[[Any], Function], placed: Any) -> None:
    assert report(noisy, impl, placed).verdict is gg.Verdict.REFINES


@pytest.mark.parametrize(
    ("spec", "impl", "placed"),
    [
        (noisy, lambda mesh: lambda x: x * torch.rand(ROWS * COLUMNS).view(ROWS, COLUMNS), "replicate"),
        (noisy, lambda mesh: lambda x: x * torch.rand(COLUMNS, ROWS).t(), "replicate"),
        (noisy, lambda mesh: lambda x: x * torch.rand(ROWS // 2, COLUMNS), SHARDED),
        (lambda x: F.dropout(x, 0.5), lambda mesh: lambda x: F.dropout(x, 0.5), SHARDED),
        (lambda x: F.dropout(x, 0.5), seeded, SHARDED),
    ],
)
def test_draws_that_the_specification_has_no_like_of(
    spec: Function, impl: Callable[[Any], Function], placed: Any
) -> None:
    found = report(spec, impl, placed)
    assert found.verdict is gg.Verdict.UNKNOWN
    assert "random numbers of a shape or a generator" in found.diagnostics[0].message


@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
@pytest.mark.parametrize(("dtype", "proved"), [(torch.float32, True), (torch.float64, False)])
def test_wider_draws_are_other_numbers(draw: Callable[..., torch.Tensor], dtype: torch.dtype, proved: bool) -> None:
    def spec(x: torch.Tensor) -> torch.Tensor:
        return x * draw(ROWS, COLUMNS)

    def impl(x: torch.Tensor) -> torch.Tensor:
        return x * draw(ROWS, COLUMNS, dtype=dtype).float()

    assert (report(spec, lambda mesh: impl, "replicate").verdict is gg.Verdict.REFINES) is proved


@pytest.mark.parametrize(
    ("spec", "impl", "placed"),
    [
        (noisy, lambda mesh: lambda x: 2 * noisy(x), "replicate"),
        (noisy, lambda mesh: lambda x: x, "replicate"),
        (lambda x: F.dropout(x, 0.5), lambda mesh: lambda x: F.dropout(x, 0.4), "replicate"),
        (lambda x: F.dropout(x, 0.5), seeded, "replicate"),  # copies that differ
        (noisy, lambda mesh: lambda x: (torch.rand(ROWS // 2, COLUMNS), x)[1], SHARDED),  # drawn, and of no use
    ],
)
def test_other_values(spec: Function, impl: Callable[[Any], Function], placed: Any) -> None:
    assert report(spec, impl, placed).verdict is gg.Verdict.BROKEN


def after(*earlier: Callable[[], object]) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        for draw in earlier:
            draw()
        return x * torch.rand(ROWS, COLUMNS)

    return run


@pytest.mark.parametrize(
    ("first", "second", "refines"),
    [
        ([lambda: torch.rand(3)], [lambda: torch.rand(3)], True),
        ([lambda: torch.rand(3)], [lambda: torch.rand_like(torch.ones(3))], True),
        ([lambda: torch.randn(5, 4)], [lambda: torch.randn_like(torch.ones(4, 5).t())], False),
        ([lambda: torch.randint(9, (2,))], [lambda: torch.randint(1 << 40, (2,))], False),
        ([], [lambda: torch.rand(0)], True),
        ([lambda: torch.rand(3)], [lambda: torch.rand(5)], False),
        ([lambda: torch.rand(3)], [lambda: torch.rand(3, dtype=torch.float64)], False),
        ([lambda: torch.randint(9, (2,))], [lambda: torch.randint(9, (4,))], False),
        ([lambda: F.dropout(torch.ones(4), 0.5)], [lambda: torch.rand(4)], False),
    ],
)
def test_a_draw_is_the_same_behind_the_same_draws(
    first: list[Callable[[], object]], second: list[Callable[[], object]], refines: bool
) -> None:
    found = report(after(*first), lambda _: after(*second), "replicate")
    assert (found.verdict is gg.Verdict.REFINES) == refines


def lying(turned: bool, reads: bool) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        x = x * (1 + sum(torch.randperm(3).tolist()) if reads else 1)  # then all is drawn in earnest
        return x * (torch.rand_like(x.new_empty(COLUMNS, ROWS).t()) if turned else torch.rand(ROWS, COLUMNS))

    return run


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("reads", [True, False])
def test_numbers_are_drawn_in_the_order_of_memory(turned: bool, reads: bool) -> None:
    found = report(lying(False, reads), lambda _: lying(turned, reads), "replicate")
    assert (found.verdict is gg.Verdict.REFINES) != turned


@pytest.mark.parametrize(
    ("moved", "refines"),
    [(lambda: torch.randint(2, 7, (4,)), True), (lambda: torch.randint(2, 6, (4,)), False)],
)
def test_integers_of_a_range_are_those_of_as_many_from_0_on(moved: Callable[[], torch.Tensor], refines: bool) -> None:
    def run(draw: Callable[[], torch.Tensor]) -> Function:
        def program(x: torch.Tensor) -> torch.Tensor:
            torch.manual_seed(0)
            return x * draw()

        return program

    spec = run(lambda: torch.randint(5, (4,)) + 2)
    found = gg.verify(
        spec, lambda _: run(moved), (gg.tensor(4),), mesh={"tp": 2}, in_relations=None, out_relations="replicate"
    )
    assert (found.verdict is gg.Verdict.REFINES) == refines


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([lambda: torch.rand(3)], [lambda: torch.rand(5)], gg.Verdict.UNKNOWN),  # as behind a shard's own numbers
        ([], [lambda: torch.rand(5)], gg.Verdict.BROKEN),
    ],
)
def test_what_is_drawn_behind_as_many_others_refutes_nothing(
    first: list[Callable[[], object]], second: list[Callable[[], object]], verdict: Any
) -> None:
    assert report(after(*first), lambda _: after(*second), "replicate").verdict is verdict
