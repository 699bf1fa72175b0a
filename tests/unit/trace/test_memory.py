"""Mutation and aliasing: programs that write through views are recorded as values that eager PyTorch would show, bit for bit."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import assert_equals_eager, ops_of, record, run

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def write_through_slices(x):
    y = x.clone()
    y[1:3].add_(1)
    y[:, 2] = 0
    y.t()[0].mul_(3)
    return y


@program
def base_changes_under_a_view(x):
    y = x * 1
    row = y[1]
    y.add_(10)
    return row * 2, y


@program
def flat_buffer_with_parts(x):
    buffer = torch.zeros(2 * x.numel())
    first, second = buffer[: x.numel()].view_as(x), buffer[x.numel() :].view_as(x)
    first.copy_(x)
    second.copy_(first).mul_(2)
    buffer.add_(1)
    return first + second, buffer


@program
def strided_windows(x):
    y = x.clone()
    window = torch.as_strided(y, (3, 2), (4, 1), 1)
    window.mul_(2)
    diagonal = y.as_strided((4,), (5,))
    diagonal.zero_()
    return y, window, torch.as_strided(y, (2, 2), (1, 1), 3)


@program
def other_types_of_the_same_bits(x):
    bits = x.clone().view(torch.int32)
    bits.bitwise_and_(0x7FFFFFFF)
    return bits.view(torch.float32)


@program
def complex_rotation(x):
    z = torch.view_as_complex(x.reshape(-1, 2).clone())
    turn = torch.polar(torch.ones(8), torch.arange(8.0))
    return torch.view_as_real(z * turn), torch.view_as_real(z * turn.conj())


@program
def conjugate_and_negative(x):
    z = torch.complex(x, x + 1)
    turned = z.conj()
    both = torch._neg_view(turned)
    return torch.view_as_real(turned * 1), torch.view_as_real(both * 1), turned.imag * 1, both.imag * 1, both.real * 1


@program
def in_place_with_wider_operand(x):
    y = x.to(torch.bfloat16)
    y.add_(torch.full((4,), 0.1, dtype=torch.float32))
    y.mul_(x)
    return y


@program
def comparison_in_place(x):
    y = x.clone()
    y.gt_(0)
    return y


@program
def out_arguments(x):
    out = torch.empty(0)
    torch.mm(x, x, out=out)
    again = torch.empty(4, 4)
    torch.add(out, 1, out=again)
    return out, again


@program
def masks_and_indices(x):
    y = x.clone()
    y[y < 0] = 0
    y[torch.tensor([0, 2]), torch.tensor([1, 3])] += 5
    y.index_add_(0, torch.tensor([1]), x[:1])
    y.scatter_(1, torch.tensor([[0], [1], [2], [3]]), 7.0)
    y.masked_fill_(torch.eye(4, dtype=torch.bool), -1)
    return y


@program
def permuted_memory(x):
    y = x.t().clone()
    z = torch.empty_like(x.t())
    z.copy_(x)
    z.view(-1) if z.is_contiguous() else z.t().view(-1)[3:6].zero_()
    return y, z, z.contiguous().view(-1)


@program
def data_is_replaced(x):
    y = torch.zeros(4, 4)
    y.data = x * 2
    y.data[0].fill_(9)
    return y + 1


@program
def unbind_and_stack(x):
    rows = list(x.clone().unbind(0))
    for row in rows[1:]:
        row.detach().add_(1) if row.requires_grad else row
    return torch.stack(rows[::-1])


@program
def split_then_write(x):
    y = x.clone()
    left, right = y.split([1, 3], dim=1)
    right.copy_(right.flip(1).clone())
    left.neg_()
    return y


@program
def batch_norm_statistics(x):
    norm = torch.nn.BatchNorm1d(4)
    out = norm(x)
    out = norm(out * 2)
    return out, norm.running_mean, norm.running_var, norm.num_batches_tracked


@program
def foreach_list(x):
    parts = [x.clone(), x * 2]
    torch._foreach_mul_(parts, 2.0)
    torch._foreach_add_(parts, [x, x], alpha=3)
    norms = torch._foreach_norm(parts)
    torch._foreach_div_(parts, norms[0])
    return parts[0], parts[1], norms[1]


@program
def gradients_accumulate(x):
    w = x.detach().clone().requires_grad_()
    for _ in range(2):
        (w * w).sum().backward()
    w.grad.mul_(0.5)
    with torch.no_grad():
        w.sub_(w.grad)
    return w.detach(), w.grad


@program
def bool_and_int_arithmetic(x):
    positive = x > 0
    count = positive.sum()
    table = torch.arange(4)
    table[1:] -= 1
    table //= 2
    return positive.to(torch.float32) * count, table, ~positive


@program
def a_copy_is_cut_into_one_part(x):
    y = copy.deepcopy(x)
    (whole,) = torch.tensor_split(y, 1)
    whole[1] = 3
    return whole, y


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_equals_eager(name: str) -> None:
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    assert_equals_eager(PROGRAMS[name], x)


def test_views_stay_views() -> None:
    graph = record(PROGRAMS["write_through_slices"], [torch.ones(4, 4)]).graph
    assert graph is not None
    assert not {"aten.as_strided.default", "aten.as_strided_scatter.default", "aten.clone.default"} & set(ops_of(graph))


def test_copies_leave_no_node() -> None:
    graph = record(lambda x: torch.empty(4, 4).copy_(x.clone().detach().contiguous()), [torch.ones(4, 4)]).graph
    assert graph is not None
    assert ops_of(graph) == []


VIEWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda t: t[1:] if t.dim() and t.shape[0] > 1 else t,
    lambda t: t[..., ::2] if t.dim() else t,
    lambda t: t.transpose(0, -1) if t.dim() else t,
    lambda t: t.select(-1, 0) if t.dim() > 1 else t,
    lambda t: t.unsqueeze(0),
    lambda t: t.flatten() if t.is_contiguous() else t,
    lambda t: t.view(2, -1) if t.is_contiguous() and t.numel() % 2 == 0 and t.numel() else t,
    lambda t: t.squeeze(),
    lambda t: t.chunk(2, 0)[-1] if t.dim() else t,
    lambda t: t.unbind(0)[0] if t.dim() and t.shape[0] else t,
    lambda t: torch.as_strided(t, (2, 2), (2, 1), t.storage_offset()),
    lambda t: t.diagonal() if t.dim() == 2 else t,
    lambda t: t.unfold(0, 1, 1) if t.dim() else t,
    lambda t: t.movedim(0, -1) if t.dim() else t,
]
WRITES: list[Callable[[torch.Tensor, torch.Tensor], Any]] = [
    lambda t, o: t.add_(1),
    lambda t, o: t.mul_(2),
    lambda t, o: t.zero_(),
    lambda t, o: t.copy_(o.sum()),
    lambda t, o: t.fill_(3),
    lambda t, o: t.add_(o.mean(), alpha=2),
    lambda t, o: t.copy_(t.flip(0).clone()) if t.dim() else t,
    lambda t, o: torch.mul(t, 3, out=t),
]


def run_steps(x: torch.Tensor, steps: list[tuple[int, int, int]]) -> tuple[torch.Tensor, ...]:
    """Views and writes by number, on a growing family of aliases."""
    family = [x.clone(), torch.zeros(24)]
    for kind, which, operation in steps:
        tensor = family[which % len(family)]
        if kind == 0:
            if tensor.numel() >= 4 or operation % len(VIEWS) != 10:
                family.append(VIEWS[operation % len(VIEWS)](tensor))
        else:
            WRITES[operation % len(WRITES)](tensor, family[(which + operation) % len(family)].clone())
    return tuple(family)


STEPS = st.lists(st.tuples(st.sampled_from((0, 0, 1)), st.integers(0, 30), st.integers(0, 30)), min_size=3, max_size=14)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(STEPS)
def test_any_aliases_equal_eager(steps: list[tuple[int, int, int]]) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    try:
        expected = run_steps(x, steps)
    except (RuntimeError, IndexError):
        return  # not a program: a view that does not exist
    trace = record(lambda leaf: run_steps(leaf, steps), [x])
    assert trace.graph is not None, trace.troubles
    found = run(trace.graph, {"in0": x})
    for index, value in enumerate(expected):
        assert torch.equal(found[f"out[{index}]"], value), index
