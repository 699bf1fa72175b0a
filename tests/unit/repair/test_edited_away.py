"""What only an edit leaves without a reader is no defect of the program."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def averaged(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.clone()
    dist.all_reduce(gradient)
    return gradient / dist.get_world_size()


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.chunk(dist.get_world_size(), -1)[dist.get_rank()]


def gathered(part: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts, -1)


def trained(reduced: Any = same, part: Any = same, whole: Any = same, **options: Any) -> Any:
    """Two steps of a model of which the optimizer keeps a part of every parameter."""

    def steps(x: torch.Tensor, *initial: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parameters = [part(each).clone().requires_grad_() for each in initial]
        groups = [{"params": [parameters[0]], "weight_decay": 0.1}, {"params": [parameters[1]], "weight_decay": 0}]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, **options)
        for _ in range(2):
            weight, bias = (whole(each.detach()).requires_grad_() for each in parameters)
            loss = (torch.tanh(x @ weight + bias) ** 2).mean()
            gradients = torch.autograd.grad(loss, [weight, bias])
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = part(reduced(gradient)).clone()
            optimizer.step()
        return tuple(whole(each.detach()) for each in parameters)

    return steps


def test_a_collective_that_an_edit_leaves_unread_is_not_told() -> None:
    report = gg.verify(
        trained(),
        lambda _: trained(averaged, own_part, gathered, dampening=0.1),
        (gg.tensor(8, 4), gg.tensor(4, 6), gg.tensor(6)),
        mesh={"dp": 2},
        in_relations=({"dp": Shard(0)}, {}, {}),
        out_relations="replicate",
    )
    assert report.verdict is gg.Verdict.BROKEN
    assert not any(each.rule == "dead-collective" for each in report.diagnostics)
