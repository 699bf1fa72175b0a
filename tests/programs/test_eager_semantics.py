"""What a rank's memory is, and collectives in the forms that people write: right programs are proved, and one change is found."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import _coalescing_manager
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import graphguard as gg

ROWS: dict[str, Any] = {"dp": Shard(0)}
COLUMNS: dict[str, Any] = {"dp": Shard(1)}
COPY: dict[str, Any] = {"dp": Replicate()}
X = (gg.tensor(4, 6),)
PAIR = (gg.tensor(4, 6), gg.tensor(4, 6))


def report(spec: Any, impl: Callable[..., Any], placed: Any, out: Any, inputs: Any = X, ranks: int = 2) -> Any:
    """The report on functions: ``impl`` takes what the specification takes."""
    return gg.verify(
        spec, lambda _: impl, inputs, mesh={"dp": ranks}, in_relations=placed, out_relations=out, grads=False
    )


# -- memory ------------------------------------------------------------------------------------------------------------
def test_a_rank_has_no_memory_but_its_own() -> None:
    found = report(torch.clone, lambda x: x.as_strided((4, 6), (6, 1), 0).clone(), ROWS, COPY)
    assert found.verdict is None
    assert "reaches beyond its memory, which has 12" in found.diagnostics[0].message


def test_a_rank_has_no_memory_but_its_own_however_its_inputs_are_cut() -> None:
    def whole(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(0).set_(x.untyped_storage()).view(-1, 6)

    found = gg.verify(
        torch.clone,
        lambda _: whole,
        X,
        mesh={"dp": 2},
        shard_inputs=lambda inputs, mesh: (inputs[0].chunk(2)[mesh.get_local_rank()],),
        out_relations=ROWS,
        grads=False,
    )
    assert found.verdict is gg.Verdict.REFINES


@pytest.mark.parametrize(("start", "verdict"), [(1, gg.Verdict.REFINES), (0, gg.Verdict.BROKEN)])
def test_offsets_count_from_the_start_of_a_rank_s_memory(start: int, verdict: gg.Verdict) -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2, 5), (6, 1)) + x.as_strided((2, 5), (6, 1), start)

    assert report(lambda x: x.unfold(1, 2, 1).sum(-1), windows, ROWS, ROWS).verdict is verdict


def test_a_rank_s_columns_lie_one_after_the_other() -> None:
    def flat(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1).mul(2).view(4, 3)

    assert report(lambda x: x * 2, flat, COLUMNS, COLUMNS).verdict is gg.Verdict.REFINES


def test_gradients_arrive_in_memory_of_their_own() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient.view(-1).mul(2).view(gradient.shape)

    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return Doubled.apply(x)

    found = gg.verify(Module(), lambda _: Module(), X, mesh={"dp": 2}, in_relations=COLUMNS, out_relations=COLUMNS)
    assert found.verdict is gg.Verdict.REFINES


def test_memory_that_nobody_wrote_is_never_what_it_should_be() -> None:
    def gathered(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(4, 6)
        parts = [torch.empty_like(x) for _ in range(2)] if dist.get_rank() == 0 else None
        dist.gather(x, parts)
        return out.copy_(torch.cat(parts)) if parts else out

    for _ in range(3):
        assert report(torch.clone, gathered, ROWS, COPY).verdict is gg.Verdict.BROKEN


@pytest.mark.parametrize(("factor", "verdict"), [(1, gg.Verdict.REFINES), (2, gg.Verdict.BROKEN)])
def test_parts_written_by_strides_are_compared_on_numbers(factor: int, verdict: gg.Verdict) -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        left, right = y.unsafe_chunk(2, 1)
        left += right
        right -= left
        left *= factor
        return y

    def spec(x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, 1)
        return torch.cat([left + right, -left], 1)

    assert report(spec, written, ROWS, ROWS).verdict is verdict


def test_an_output_whose_size_the_data_decides_is_no_crash() -> None:
    ids = (gg.tensor(8, dtype=torch.int64, low=0, high=4),)
    found = report(torch.bincount, torch.bincount, COPY, "infer", ids)
    assert found.verdict is gg.Verdict.UNKNOWN


def test_forward_mode_gradients_load_what_they_need_while_recorded() -> None:
    def tangent(x: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(torch.sin, (x,), (x,))[1]

    assert report(lambda x: x.cos() * x, tangent, ROWS, ROWS).verdict is gg.Verdict.REFINES


@pytest.mark.parametrize(("factor", "verdict"), [(1, gg.Verdict.REFINES), (2, gg.Verdict.BROKEN)])
def test_a_distributed_model_is_copied_with_its_mesh(factor: int, verdict: gg.Verdict) -> None:
    class Layers(nn.Module):
        def __init__(self, factor: int = 1) -> None:
            super().__init__()
            self.up, self.down, self.factor = nn.Linear(6, 8, bias=False), nn.Linear(8, 6, bias=False), factor

        def forward(self, x: torch.Tensor) -> Any:
            return self.down(torch.tanh(self.up(x))) * self.factor

    def copied(mesh: Any) -> nn.Module:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        return copy.deepcopy(parallelize_module(Layers(factor), mesh, plan))

    found = gg.verify(Layers(), copied, X, mesh={"tp": 2}, in_relations={"tp": Replicate()})
    assert found.verdict is verdict


# -- collectives -------------------------------------------------------------------------------------------------------
Program = Callable[..., Any]
PROGRAMS: dict[str, tuple[Program, Callable[[bool], Program], Any, Any, Any, int]] = {}


def program(
    spec: Program, out: Any, inputs: Any = X, ranks: int = 2
) -> Callable[[Callable[[bool], Program]], Callable[[bool], Program]]:
    """A program over rows, given whether it is right."""

    def note(make: Callable[[bool], Program]) -> Callable[[bool], Program]:
        PROGRAMS[make.__name__] = (spec, make, ROWS, out, inputs, ranks)
        return make

    return note


def sums(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.sum(0) for tensor in tensors)


@program(sums, (COPY, COPY), PAIR)
def works_in_a_list(right: bool) -> Program:
    def impl(*tensors: torch.Tensor) -> Any:
        parts = sums(*tensors)
        works = [dist.all_reduce(part, async_op=True) for part in (parts if right else parts[:1])]
        while works:
            works.pop().wait()
        return parts

    return impl


@program(sums, (COPY, COPY), PAIR)
def coalescing_manager(right: bool) -> Program:
    def impl(*tensors: torch.Tensor) -> Any:
        parts = sums(*tensors)
        with _coalescing_manager(async_ops=True) as manager:
            for part in parts if right else parts[1:]:
                dist.all_reduce(part)
        manager.wait()
        return parts

    return impl


@program(lambda x: torch.cat([x[2:], x[:2]]), ROWS)
def ring_of_batched_messages(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        other, received = 1 - dist.get_rank(), torch.empty_like(x)
        batch = [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, received, other)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        return received if right else received + x

    return impl


@program(lambda x: x[[0, 1, 3, 2]], COPY)
def uneven_splits(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        sent = ([2, 0], [1, 1])[dist.get_rank()]
        received = ([2, 1], [0, 1])[dist.get_rank()]
        rows = torch.empty(sum(received), 6)
        dist.all_to_all_single(rows, x.flip(0) if dist.get_rank() else x, received, sent)
        whole = torch.zeros(4, 6)
        whole[(0, 3)[dist.get_rank()] :][: len(rows)] = rows
        dist.all_reduce(whole)
        return whole if right else whole.flip(0)

    return impl


@program(lambda x: x * 3, ROWS)
def objects(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        rank = dist.get_rank()
        found: list[Any] = [None, None]
        dist.all_gather_object(found, {"number": rank + 1})
        factors = [sum(one["number"] for one in found)] if rank == 0 else [None]
        dist.broadcast_object_list(factors, src=0)
        assert factors[0] is not None
        return x * (factors[0] + (0 if right else rank))

    return impl


@program(lambda x: x.sum(0), COPY, ranks=4)
def subgroups(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        pair, _ = dist.new_subgroups(2)
        across = [dist.new_group([0, 2]), dist.new_group([1, 3])][dist.get_rank() % 2]
        total = x.sum(0)
        dist.all_reduce(total, group=pair)
        dist.all_reduce(total, group=across if right else pair)
        return total

    return impl


@program(torch.clone, COPY)
def members_in_the_order_in_which_they_were_named(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        whole = torch.empty(4, 6)
        dist.all_gather_into_tensor(whole, x, group=dist.new_group([1, 0], sort_ranks=right))
        return whole

    return impl


@program(lambda x: x.sum(0), COPY, ranks=4)
def groups_that_only_their_members_make(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        total, rank = x.sum(0), dist.get_rank()
        for ranks in ([0, 1], [2, 3], [0, 2], [1, 3]):
            group = dist.new_group(ranks, use_local_synchronization=True)
            if rank in ranks or not right:
                dist.all_reduce(total, group=group)
        return total

    return impl


@program(lambda x: x.sum(0), COPY)
def ranks_on_different_paths(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        total = x.sum(0)
        if dist.get_rank() == 0:
            other = torch.empty_like(total)
            dist.recv(other, 1)
            total = total + other
        else:
            dist.send(total, 0)
        if right:
            dist.broadcast(total, 0)
        return total

    return impl


@program(lambda x: x.sum(0), ROWS)
def scattered_list(right: bool) -> Program:
    def impl(x: torch.Tensor) -> torch.Tensor:
        out, parts = torch.empty(3), list(x.sum(0).chunk(2))
        dist.reduce_scatter(out, parts if right else parts[::-1])
        return out

    return impl


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_collectives_as_people_write_them(name: str, right: bool) -> None:
    spec, make, *rest = PROGRAMS[name]
    wanted = gg.Verdict.REFINES if right else gg.Verdict.BROKEN
    assert report(spec, make(right), *rest).verdict is wanted


class Strided(nn.Module):
    """A linear layer that notes how its bias is cut under the name of a method, as Megatron's older layers do."""

    def __init__(self, ranks: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(6 // ranks, 4))
        self.bias = nn.Parameter(torch.empty(6 // ranks))
        self.bias.stride = 1  # type: ignore[assignment, method-assign]
        with torch.no_grad():
            self.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.bias.stride == 1
        assert self.weight.stride() == (4, 1)
        return x @ self.weight.t() + self.bias


def test_an_attribute_of_a_tensor_that_has_the_name_of_a_method() -> None:
    found = gg.verify(
        Strided(),
        lambda mesh: Strided(2),
        (gg.tensor(5, 4),),
        mesh={"tp": 2},
        out_relations={"tp": Shard(1)},
        grads=False,
    )
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
