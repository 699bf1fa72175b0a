"""Numbers that a program reads from tensors (``item``) and computes with: they are what the tensors held at that moment."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

Function = Callable[[torch.Tensor], Any]


def verdict(spec: Function, impl: Function, ranks: int = 3) -> Any:
    return gg.verify(
        spec,
        lambda _: impl,
        (gg.tensor(7, 4),),
        mesh={"dp": ranks},
        in_relations={"dp": Shard(0)},
        out_relations={"dp": Replicate()},
        grads=False,
    ).verdict


def total(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().clone()
    dist.all_reduce(x)
    return x


def positive(x: torch.Tensor) -> torch.Tensor:
    return x[:, 0] > 0


def read_before_a_write(x: torch.Tensor) -> torch.Tensor:
    held = total(positive(x).sum())
    number = held.item()
    held.add_(1)
    return torch.ones(()) * number


def cut_before_a_write(x: torch.Tensor) -> torch.Tensor:
    count = positive(x).sum() * 0
    rows = count.item()
    count.add_(positive(x).sum())
    return total(x[positive(x)][:rows].sum(0))


def cut_to_all(x: torch.Tensor) -> torch.Tensor:
    count = positive(x).sum()
    rows = count.item()
    count.zero_()
    return total(x[positive(x)][:rows].sum(0))


def added_up(x: torch.Tensor) -> torch.Tensor:
    number = 0.0
    for row in x:
        number += row.sum().item()
    return total(torch.tensor(number))


def metrics(x: torch.Tensor) -> torch.Tensor:
    sums = torch.tensor([x.sum().item(), len(x)])
    dist.all_reduce(sums)
    return sums[0] / sums[1]


def mean_of_means(x: torch.Tensor) -> torch.Tensor:
    means = torch.tensor([x.sum().item() / len(x), 1.0])
    dist.all_reduce(means)
    return means[0] / means[1]


def norm_of_norms(x: torch.Tensor) -> torch.Tensor:
    norms = [[column.norm() for column in x.unbind(1)]]
    found = torch.tensor([float(torch.tensor(norms).norm())])
    return total(found**2)[0] ** 0.5


def norm_of_own_norms(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([column.norm() for column in x.unbind(1)]).norm()


def clipped(x: torch.Tensor) -> torch.Tensor:
    found = total(x.sum(0))
    return found.mul_(2.0 / (found.norm().item() + 1e-6))


def each_scaled(x: torch.Tensor) -> torch.Tensor:
    found = [total(x.sum(0)), total(x.sum(0)) * 2]
    torch._foreach_mul_(found, total(x.sum()).item())
    return found[0] + found[1]


PAIRS: dict[str, tuple[Function, Function, bool]] = {
    "read before a write": (lambda x: positive(x).sum().float(), read_before_a_write, True),
    "read before a write, the later number": (lambda x: positive(x).sum().float() + 1, read_before_a_write, False),
    "rows cut by a number before a write": (lambda x: x[positive(x)].sum(0), cut_before_a_write, False),
    "all rows": (lambda x: x[positive(x)].sum(0), cut_to_all, True),
    "sum": (torch.sum, added_up, True),
    "metrics": (lambda x: x.sum() / 7, metrics, True),
    "mean of means": (lambda x: x.sum() / 7, mean_of_means, False),
    "norm of norms": (lambda x: x.norm(), norm_of_norms, True),
    "norm of a rank's own norms": (lambda x: x.norm(), norm_of_own_norms, False),
    "clipping": (lambda x: x.sum(0) * 2 / (x.sum(0).norm() + 1e-6), clipped, True),
    "foreach": (lambda x: 3 * x.sum(0) * x.sum(), each_scaled, True),
    "own factor": (lambda x: x.sum(0) * x.sum(), lambda x: total(x.sum(0)) * x.sum().item(), False),
    "factor": (lambda x: x.sum(0) * x.sum(), lambda x: total(x.sum(0)) * total(x.sum()).item(), True),
    "number in front": (lambda x: x.sum() - x.sum(0), lambda x: total(x.sum()).item() - total(x.sum(0)), True),
    "divided by a count": (
        lambda x: x.sum(0) / positive(x).sum(),
        lambda x: total(x.sum(0)) / total(positive(x).sum()).item(),
        True,
    ),
    "root": (lambda x: x.sum(0) * x.norm(), lambda x: total(x.sum(0)) * total(x.square().sum()).item() ** 0.5, True),
    "filled": (lambda x: x.sum().expand(2), lambda x: torch.full((2,), total(x.sum()).item()), True),
    "bound": (lambda x: x.sum(0).minimum(x.sum()), lambda x: total(x.sum(0)).clamp(max=total(x.sum()).item()), True),
    "compared": (lambda x: x.sum(0) > x.sum(), lambda x: total(x.sum(0)) > total(x.sum()).item(), True),
    "sum with a factor": (
        lambda x: x.sum(0) - 2 * x.sum() * x.sum(0),
        lambda x: total(x.sum(0)).sub_(total(x.sum(0)), alpha=2 * total(x.sum()).item()),
        True,
    ),
    "sum with a factor of whole numbers": (
        lambda x: x.sum(0) + x.sum() * positive(x).sum(),
        lambda x: torch.add(total(x.sum(0)), total(positive(x).sum()), alpha=total(x.sum()).item()),
        True,
    ),
    "sum with a rank's own factor": (
        lambda x: x.sum(0) + x.sum() * x.sum(0),
        lambda x: total(x.sum(0)).add_(total(x.sum(0)), alpha=x.sum().item()),
        False,
    ),
    "product with a factor": (
        lambda x: x.sum(0) + x.sum() * x.sum(0) ** 2,
        lambda x: total(x.sum(0)).addcmul_(total(x.sum(0)), total(x.sum(0)), value=total(x.sum()).item()),
        True,
    ),
    "quotient with a factor": (
        lambda x: x.sum(0) + x.sum() * x.sum(0) / (x.square().sum(0) + 1),
        lambda x: torch.addcdiv(
            total(x.sum(0)), total(x.sum(0)), total(x.square().sum(0)) + 1, value=total(x.sum()).item()
        ),
        True,
    ),
    "weighted mean": (
        lambda x: x.sum(0) + x.sum() * (x.square().sum(0) - x.sum(0)),
        lambda x: total(x.sum(0)).lerp_(total(x.square().sum(0)), total(x.sum()).item()),
        True,
    ),
    "exponent": (
        lambda x: x.square().sum(0) ** x.sum(),
        lambda x: total(x.square().sum(0)) ** total(x.sum()).item(),
        True,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_numbers_read_from_tensors(name: str) -> None:
    spec, impl, right = PAIRS[name]
    assert verdict(spec, impl) is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN)


def test_writes_that_pytorch_does_not_see_between_two_readings() -> None:
    def impl(x: torch.Tensor) -> torch.Tensor:
        count = positive(x).sum() * 0
        rows = count.item()
        count.data.add_(positive(x).sum())
        assert count.item() is not None
        return total(x[positive(x)][:rows].sum(0))

    found = gg.verify(
        lambda x: x[positive(x)].sum(0),
        lambda _: impl,
        (gg.tensor(7, 4),),
        mesh={"dp": 2},
        in_relations={"dp": Shard(0)},
        out_relations={"dp": Replicate()},
        grads=False,
    )
    assert found.verdict is None
    assert found.diagnostics[0].message.startswith("a number is read again from a tensor")


def test_fractions_of_numbers_that_only_the_numbers_follow() -> None:
    """What no operator takes as a tensor is computed on numbers, with its fraction."""

    def impl(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.leaky_relu(total(x.sum(0)), total(x.sum()).item())

    def spec(x: torch.Tensor, more: int = 0) -> torch.Tensor:
        found = x.sum(0)
        return torch.where(found > 0, found, found * (x.sum() + more))

    assert verdict(spec, impl) is gg.Verdict.UNKNOWN
    assert verdict(lambda x: spec(x, 1), impl) is gg.Verdict.BROKEN


def test_functions_of_python_s_own_need_the_number() -> None:
    assert verdict(torch.sum, lambda x: total(x.sum()) * math.gamma(x.sum().item())) is None
