"""Numbers that came through float32 on their way into a call refute nothing by what was rounded away; other numbers do."""

from collections.abc import Callable

import pytest
import torch
from torch.distributed.tensor import Shard

import graphguard as gg

FACTORS: dict[str, tuple[float, Callable[[], float], gg.Verdict]] = {
    "a product read back": (0.07, lambda: (torch.tensor(0.1) * 0.7).item(), gg.Verdict.UNKNOWN),
    "a sum of numbers read back": (0.6, lambda: sum(torch.tensor([0.1, 0.2, 0.3]).tolist()), gg.Verdict.UNKNOWN),
    "a power read back": (0.37**0.75, lambda: torch.tensor(0.37**0.75).item(), gg.Verdict.UNKNOWN),
    "written a little off": (0.1, lambda: 0.1000001, gg.Verdict.BROKEN),
    "another one read back": (0.07, lambda: (torch.tensor(0.1) * 0.70001).item(), gg.Verdict.BROKEN),
    "the opposite": (0.07, lambda: -(torch.tensor(0.1) * 0.7).item(), gg.Verdict.BROKEN),
}


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("turned", [False, True])
def test_factors(name: str, turned: bool) -> None:
    written, read, verdict = FACTORS[name]

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x * written

    def by_way_of_float32(x: torch.Tensor) -> torch.Tensor:
        return x * read()

    spec, impl = (by_way_of_float32, plain) if turned else (plain, by_way_of_float32)
    rows = {"dp": Shard(0)}
    found = gg.verify(spec, lambda _: impl, (gg.tensor(4, 3),), mesh={"dp": 2}, in_relations=rows, out_relations=rows)
    assert found.verdict is verdict


def steps(foreach: bool) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
    """Two steps of averaged SGD, whose rates are kept in float32; ``foreach`` works them out of tensors, the plain loop of numbers read back."""
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.ASGD(layer.parameters(), foreach=foreach)

    def run(x: torch.Tensor) -> dict[str, torch.Tensor]:
        for rows in x:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(layer(rows), rows[:, :2].square()).backward()
            optimizer.step()
        return {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}

    return run


def test_rates_that_are_kept_in_float32() -> None:
    found = gg.verify(steps(False), lambda _: steps(True), (gg.tensor(2, 4, 3),), mesh={"dp": 1})
    assert found.verdict is not gg.Verdict.BROKEN
