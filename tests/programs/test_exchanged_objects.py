"""Objects with tensors in them that ranks exchange: they arrive as they were sent, as copies, from the rank that sent them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

Program = Callable[[torch.Tensor], torch.Tensor]
ROWS: dict[str, Any] = {"dp": Shard(0)}
COPY: dict[str, Any] = {"dp": Replicate()}
PROGRAMS: dict[str, tuple[Program, Callable[[bool], Program], dict[str, Any]]] = {}


def program(spec: Program, out: dict[str, Any]) -> Callable[[Callable[[bool], Program]], Callable[[bool], Program]]:
    """A program over two rows for each of three ranks, given whether it is right."""

    def note(make: Callable[[bool], Program]) -> Callable[[bool], Program]:
        PROGRAMS[make.__name__] = (spec, make, out)
        return make

    return note


def gathered(own: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found


def total(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


@program(torch.clone, COPY)
def all_gather_of_tensors(right: bool) -> Program:
    return lambda x: torch.cat(gathered(x)[:: 1 if right else -1])


@program(torch.clone, ROWS)
def another_rank_s_tensor(right: bool) -> Program:
    return lambda x: gathered(x)[(dist.get_rank() + (0 if right else 1)) % 3]


@program(lambda x: x.mean(0), COPY)
def metrics_in_dicts(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        found = gathered({"sum": x.sum(0), "rows": len(x)})
        return sum(one["sum"] for one in found) / (sum(one["rows"] for one in found) if right else 3)

    return impl


@program(lambda x: x / x.square().sum(), ROWS)
def numbers_that_were_read(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        found = gathered({"squares": x.square().sum().item(), "rows": len(x)})
        return x / sum(one["squares"] for one in found[0 if right else 1 :])

    return impl


@program(lambda x: x / (x > 0).sum().clamp(min=1), ROWS)
def counts_that_were_read(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        found = gathered([(x > 0).sum().item()])
        counts = torch.tensor([one[0] for one in found])
        return x / (counts.sum() if right else counts.max()).clamp(min=1)

    return impl


@program(lambda x: x.sum(0), COPY)
def copies_of_what_is_changed_later(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        own = x.sum(0)
        if not right:
            own.zero_()
        found = gathered([own, own])
        own.zero_()
        return sum(first + second for first, second in found) / 2

    return impl


@program(lambda x: x.sum(0), COPY)
def gather_to_one_rank(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        found: list[Any] | None = [None] * 3 if dist.get_rank() == 1 else None
        dist.gather_object(x, found, dst=1)
        out = torch.zeros(4) if found is None else torch.cat(found).sum(0)
        dist.broadcast(out, 1 if right else 0)
        return out

    return impl


@program(lambda x: x[2:4].sum(0), COPY)
def broadcast_of_a_list(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        sent = [x.sum(0), 3.0]
        dist.broadcast_object_list(sent, src=1 if right else 2)
        return sent[0] * sent[1] / 3

    return impl


@program(lambda x: x.sum(0), COPY)
def scatter_of_a_list(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        whole, mine = total(x.sum(0)), [None]
        parts: list[Any] = [whole, 2 * whole, 3 * whole] if dist.get_rank() == 0 else [None] * 3
        dist.scatter_object_list(mine, parts, src=0)
        assert mine[0] is not None
        return total(mine[0]) / 6 if right else mine[0]

    return impl


@program(lambda x: x.sum(0), COPY)
def messages_with_tensors(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        own = x.sum(0)
        if dist.get_rank():
            dist.send_object_list([own], dst=0)
        else:
            for rank in (1, 2):
                message: list[Any] = [None]
                dist.recv_object_list(message, src=rank)
                own = own + message[0] * (1 if right else rank)
        dist.broadcast(own, 0)
        return own

    return impl


@program(lambda x: x.sum(0) * 3, COPY)
def models(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        model = nn.Linear(4, 4, bias=False)
        model.weight.data.copy_(torch.eye(4) * (dist.get_rank() + 1))
        weights, found = gathered(model.state_dict()), gathered(model)
        model.load_state_dict(weights[2])
        return total((model if right else found[1])(x).sum(0)).detach()

    return impl


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_tensors_in_objects(name: str, right: bool) -> None:
    spec, make, out = PROGRAMS[name]
    found = gg.verify(
        spec,
        lambda _: make(right),
        (gg.tensor(6, 4),),
        mesh={"dp": 3},
        in_relations=ROWS,
        out_relations=out,
        grads=False,
    )
    assert found.verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN), found.diagnostics
    assert not any("object" in text for text in found.assumed)


def test_received_tensors_have_no_history() -> None:
    def impl(x: torch.Tensor) -> torch.Tensor:
        found = gathered(x.requires_grad_().sum(0))
        assert all(one.is_leaf and one.requires_grad for one in found)
        return sum(found).detach()

    found = gg.verify(
        lambda x: x.sum(0),
        lambda _: impl,
        (gg.tensor(6, 4),),
        mesh={"dp": 2},
        in_relations=ROWS,
        out_relations=COPY,
        grads=False,
    )
    assert found.verdict is gg.Verdict.REFINES


@pytest.mark.parametrize(
    ("of", "wanted"), [(sum, gg.Verdict.REFINES), (lambda counts: 2 * counts[0], gg.Verdict.BROKEN)]
)
def test_numbers_that_the_data_decides_are_every_rank_s_own(of: Any, wanted: gg.Verdict) -> None:
    found = gg.verify(
        lambda x: (x[:, 0] > 0).sum().float(),
        lambda _: lambda x: torch.ones(()) * of(gathered((x[:, 0] > 0).nonzero().shape[0])),
        (gg.tensor(6, 4),),
        mesh={"dp": 2},
        in_relations=ROWS,
        out_relations=COPY,
        grads=False,
    )
    assert found.verdict is wanted, found.diagnostics
