"""Who touches the buffer of a collective before it was waited for is told so; who waits, in any of the ways there are, is not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc

from graphguard.trace.calls.events import Geometry
from graphguard.trace.gpu import cuda
from graphguard.trace.graph.races import IN_ORDER, overlap
from graphguard.trace.record.capture import RankTrace

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.arange(6.0).reshape(2, 3)


def traced(program: Callable[..., Any], device: str = "cpu") -> RankTrace:
    from programs import record

    return record(program, [X], 0, {"w": 2}, device=device)


def started(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    y = x * 2
    return y, dist.all_reduce(y, async_op=True)


def read_before(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    z = y + 1
    work.wait()
    return z


def read_through_a_view(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    z = y.view(-1)[:2].sum()
    work.wait()
    return z


def changed_before(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    y.add_(1)
    work.wait()
    return y


def returned(x: torch.Tensor) -> torch.Tensor:
    return started(x)[0]


def operand_overwritten(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    parts = [torch.empty_like(y) for _ in range(2)]
    work = dist.all_gather(parts, y, async_op=True)
    y.zero_()
    work.wait()
    return parts[0] + parts[1]


def message_read(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    dist.isend(x * 2, 1)
    work = dist.irecv(y, 1)
    z = y * 2
    work.wait()
    return z


def functional(x: torch.Tensor) -> torch.Tensor:
    name = dist.group.WORLD.group_name
    return torch.ops._c10d_functional.all_reduce(x * 2, "sum", name) + 1


def future_never_waited_for(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    work.get_future()
    return y + 1


def several_never_waited_for(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    torch.futures.collect_all([work.get_future()])
    return y + 1


def another_group(x: torch.Tensor) -> torch.Tensor:
    group = dist.new_group([0, 1])
    y, _ = started(x)
    dist.all_reduce(y, group=group)
    return y


def two_messages(x: torch.Tensor) -> torch.Tensor:
    y, z = torch.empty_like(x), torch.empty_like(x)
    dist.irecv(y, 1)
    dist.all_reduce(z.zero_())
    return y + z


@pytest.mark.parametrize(
    ("program", "verb"),
    [
        (read_before, "read"),
        (read_through_a_view, "read"),
        (changed_before, "read"),
        (returned, "returned"),
        (operand_overwritten, "overwritten"),
        (message_read, "read"),
        (functional, "read"),
        (future_never_waited_for, "read"),
        (several_never_waited_for, "read"),
        (another_group, "read"),
        (two_messages, "read"),
    ],
)
def test_a_race_is_told_at_its_line(program: Callable[..., Any], verb: str) -> None:
    trace = traced(program)
    assert trace.graph is None
    (trouble,) = trace.troubles
    assert trouble.rule == "missing-wait"
    assert verb in trouble.message.splitlines()[0]
    assert trouble.span is not None
    assert trouble.span.file == __file__
    assert [text for _, text in trouble.related]
    assert trouble.related[0][0].file == __file__


def waits(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    work.wait()
    return y + 1


def synchronizes(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    z = x + 1
    work.synchronize()
    return y + z


def polls(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    z = x + 1
    while not work.is_completed():
        pass
    return y + z


def waits_for_the_future(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    z = x + 1
    return work.get_future().wait()[0] + y + z


def calls_back(x: torch.Tensor) -> torch.Tensor:
    _, work = started(x)
    return work.get_future().then(lambda future: future.value()[0] / 2).wait()


def waits_for_several(x: torch.Tensor) -> torch.Tensor:
    (y, first), (z, second) = started(x), started(x * 2)
    torch.futures.collect_all([first.get_future(), second.get_future()]).wait()
    return y + z


def waits_for_all(x: torch.Tensor) -> torch.Tensor:
    (y, first), (z, second) = started(x), started(x * 2)
    torch.futures.wait_all([first.get_future(), second.get_future()])
    return y + z


def shape_only(x: torch.Tensor) -> torch.Tensor:
    y, work = started(x)
    z = torch.zeros_like(y.view(-1))
    work.wait()
    return y.view(-1) + z


def barrier(x: torch.Tensor) -> torch.Tensor:
    y, _ = started(x)
    dist.barrier()
    return y + 1


def waits_for_the_device(x: torch.Tensor) -> torch.Tensor:
    y, _ = started(x)
    cuda._synchronize()  # what torch.cuda.synchronize is where the world has CUDA
    return y + 1


def functional_waited_for(x: torch.Tensor) -> torch.Tensor:
    return fc.all_reduce(x * 2, "sum", dist.group.WORLD) + 1


def functional_returned(x: torch.Tensor) -> torch.Tensor:
    return fc.all_reduce(x * 2, "sum", dist.group.WORLD)


def operand_read(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    parts = [torch.empty_like(y) for _ in range(2)]
    work = dist.all_gather(parts, y, async_op=True)
    z = y + 1
    work.wait()
    return parts[0] + z


def other_half(x: torch.Tensor) -> torch.Tensor:
    buffer = torch.zeros(2, 3)
    work = dist.all_reduce(buffer[0], async_op=True)
    buffer[1].copy_(x[1])
    work.wait()
    return buffer


def batched(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, y, 1)])
    works[-1].wait()
    return y + x


@pytest.mark.parametrize(
    "program",
    [
        waits, synchronizes, polls, waits_for_the_future, calls_back, waits_for_several, waits_for_all, shape_only, barrier, waits_for_the_device, functional_waited_for, functional_returned,
        operand_read, other_half, batched,
    ],
)  # fmt: skip
def test_whoever_waits_has_no_race(program: Callable[..., Any]) -> None:
    trace = traced(program)
    assert trace.troubles == ()
    assert trace.assumed == ()


def queued(x: torch.Tensor) -> torch.Tensor:
    y, _ = started(x)
    dist.all_reduce(y)
    return y


def later_one_waited_for(x: torch.Tensor) -> torch.Tensor:
    y, _ = started(x)
    _, work = started(x)
    work.wait()
    return y + 1


@pytest.mark.parametrize("program", [queued, later_one_waited_for])
def test_the_order_of_a_group_is_assumed_where_it_matters(program: Callable[..., Any]) -> None:
    assert traced(program).assumed == (IN_ORDER,)

    def on_gloo(x: torch.Tensor) -> torch.Tensor:
        dist.init_process_group("gloo")
        return program(x)

    assert [trouble.rule for trouble in traced(on_gloo).troubles] == ["missing-wait"]


def _bytes(geometry: Geometry) -> set[int]:
    offset, sizes, strides, dtype = geometry
    width = {"float32": 4, "int8": 1}[dtype]
    places = [offset]
    for size, stride in zip(sizes, strides, strict=True):
        places = [place + i * stride for place in places for i in range(size)]
    return {place * width + i for place in places for i in range(width)}


def test_overlap_is_that_of_the_bytes() -> None:
    geometries: list[Geometry] = [
        (0, (4,), (1,), "float32"),
        (4, (4,), (1,), "float32"),
        (2, (2, 2), (4, 1), "float32"),
        (0, (2, 2), (8, 2), "float32"),
        (1, (3,), (5,), "float32"),
        (3, (7,), (1,), "int8"),
        (20, (2, 3), (16, 1), "int8"),
        (0, (0,), (1,), "float32"),
        (5, (2, 2), (1, 2), "float32"),
        (6, (3, 2), (0, 1), "float32"),
    ]
    dense = [g for g in geometries if len(_bytes(g)) == max(_bytes(g), default=-1) - min(_bytes(g), default=0) + 1]
    assert len(dense) >= 4
    for a in geometries:
        for b in dense:
            assert overlap(a, b) == overlap(b, a) == bool(_bytes(a) & _bytes(b)), (a, b)
