"""Memory that changes shape, owner or contents in every way that PyTorch has: recorded as the values that eager PyTorch shows, bit for bit."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs import assert_equals_eager, record
from torch import nn
from torch.optim.swa_utils import AveragedModel

pytestmark = pytest.mark.filterwarnings("ignore")

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def set_storage(x):
    a = torch.empty(0)
    b = (x * 2).contiguous()
    a.set_(b.untyped_storage(), 2, (3, 4), (4, 1))
    b.add_(1)
    a.mul_(3)
    return (a, b)


@program
def set_tensor(x):
    a = torch.zeros(2)
    b = x * 1
    a.set_(b)
    a[0] = 5
    return (a, b)


@program
def set_source_storage(x):
    b = x * 2
    a = torch.empty(0)
    a.set_(b.untyped_storage())
    a[3] = 1
    return (a, b)


@program
def resize_shrink_grow(x):
    a = x.clone().view(-1)
    a.resize_(8)
    a.mul_(2)
    b = a.clone()
    a.resize_(2, 2)
    return (a.clone(), b)


@program
def swap_data(x):
    a = nn.Parameter(x * 2)
    b = nn.Parameter(x * 3)
    a.data, b.data = (b.data, a.data)
    with torch.no_grad():
        a.add_(1)
    return (a.detach(), b.detach())


@program
def t_inplace(x):
    y = x.clone()
    v = y[:2]
    y.t_()
    v.add_(1)
    y.squeeze_()
    y.unsqueeze_(0)
    y.transpose_(1, 2)
    return y * 1


@program
def as_strided_inplace(x):
    y = x.clone()
    y.as_strided_((2, 2), (4, 1), 1)
    y.mul_(2)
    return y * 1


@program
def overlap_copy(x):
    y = x.clone().view(-1)
    y[1:] = y[:-1].clone()
    z = y.view(4, 4)
    z.copy_(z.t().clone())
    return y


@program
def copy_broadcast_dtype(x):
    y = torch.zeros(3, 4, 4, dtype=torch.float64)
    y.copy_(x)
    y[1].copy_(x[0].half())
    y[:, 0] = True
    return y


@program
def expand_read_then_write_base(x):
    y = x[0].clone()
    e = y.expand(4, 4)
    y.add_(1)
    r = e * 2
    y.zero_()
    return (r, e * 1)


@program
def index_put_accumulate(x):
    o = torch.zeros(4, 4)
    o.index_put_((torch.tensor([0, 0, 1]), torch.tensor([1, 1, 2])), x[0, :3], accumulate=True)
    o[[1, 1]] += x[:2]
    return o


@program
def scatter_reduce_all(x):
    i = torch.tensor([[0, 0, 1, 1]]).expand(4, 4)
    return tuple(
        torch.ones(4, 2).scatter_reduce(1, i, x, r, include_self=s)
        for r in ("sum", "mean", "amax", "amin", "prod")
        for s in (True, False)
    )


@program
def scatter_variants(x):
    i = torch.tensor([[0, 1, 2, 0]])
    y = x.clone()
    y.scatter_(0, i, x[1:2], reduce="add")
    y.scatter_add_(1, i, x[:1])
    y.index_fill_(0, torch.tensor([2]), 3.0)
    y.index_reduce_(0, torch.tensor([0]), x[:1], "prod")
    y.masked_scatter_(torch.eye(4).bool(), x)
    return y


@program
def histc_bincount(x):
    ids = torch.tensor([0, 1, 1, 3])
    return (torch.histc(ids.float(), 4, 0, 3), torch.bincount(ids, minlength=5), torch.bincount(ids).tolist()[1] * x)


@program
def put_take(x):
    y = x.clone()
    y.put_(torch.tensor([1, 5]), x[0, :2], accumulate=True)
    return (y.take(torch.tensor([5, 1, 0])), y)


@program
def out_variants(x):
    o = torch.empty(2, 4)
    torch.stack([x[0], x[1]], out=o)
    q = torch.empty(0)
    torch.cat([o, o], out=q)
    torch.clamp(q, min=0, out=q)
    s = torch.empty(4)
    torch.sum(q, 0, out=s)
    v, i = (torch.empty(0), torch.empty(0, dtype=torch.long))
    torch.max(q, 1, out=(v, i))
    return (o, q, s, v, i)


@program
def out_view(x):
    y = torch.zeros(4, 4)
    torch.mul(x[:2], 2, out=y[1:3])
    torch.add(x[:, 0], x[:, 1], out=y[:, 3])
    return y


@program
def logic_inplace(x):
    y = x > 0
    y |= x < -1
    y &= x.abs() < 2
    y ^= True
    y.logical_not_()
    return y


@program
def roll_flip_rot(x):
    y = x.clone()
    v = y.flip(0)
    y.add_(1)
    return (torch.rot90(y), torch.roll(v, 1, 0), y.fliplr())


@program
def narrow_copy_select_scatter(x):
    return (
        x.slice_scatter(x[:2] * 2, 0, 1, 3),
        x.select_scatter(x[0], 1, 2),
        x.diagonal_scatter(x[0]),
        x.as_strided_scatter(x[:2, :2].clone(), (2, 2), (4, 1), 5),
    )


@program
def chunk_inplace(x):
    y = x.clone()
    a, b = y.chunk(2, 1)
    a += b
    b -= a
    c, _d = y.unsafe_chunk(2, 0)
    c.mul_(2)
    return y


@program
def unbind_inplace(x):
    y = x.clone()
    for i, r in enumerate(y.unbind(0)):
        r.add_(i)
    return y


@program
def hsplit_tensor_split(x):
    y = x.clone()
    a, b, c = y.tensor_split(3, 1)
    b.mul_(2)
    _p, q = y.hsplit(2)
    q.zero_()
    return (y, a * 1, c * 1)


@program
def view_dtype_narrow(x):
    y = x.clone()
    h = y.view(torch.int16)
    h[:, ::2] = 0
    return y


@program
def view_complex(x):
    z = torch.view_as_complex(x.clone().view(4, 2, 2))
    z.real.mul_(2)
    z.imag.add_(1)
    z.conj_physical_()
    return torch.view_as_real(z)


@program
def mT_movedim(x):
    y = x.clone().view(2, 2, 4)
    y.mT.mul_(2)
    y.movedim(0, 2)[0].add_(1)
    y.swapaxes(0, 1)[1].neg_()
    return y


@program
def fill_diagonal(x):
    y = x.clone()
    y.fill_diagonal_(7)
    y[..., None].squeeze(-1)[::2].zero_()
    return y


@program
def unfold_fold(x):
    y = x.view(1, 1, 4, 4)
    return (F.unfold(y, 2), F.fold(F.unfold(y, 2), (4, 4), 2))


@program
def where_none_index(x):
    y = x.clone()
    y[None, 1:, ..., ::2] = 0
    y[..., -1] += 1
    y[torch.tensor([True, False, True, False])] *= 2
    return y


@program
def deepcopy_module(x):
    m = nn.Linear(4, 4)
    m.weight.data = x.clone()
    m.bias.data = x[0].clone()
    n = copy.deepcopy(m)
    with torch.no_grad():
        m.weight.zero_()
    return n(x).detach()


@program
def deepcopy_of_marked_parameters(x):
    m = nn.Linear(4, 4)
    m.weight.data, m.bias.data = x.clone(), x[0].clone()
    m.weight.sequence_parallel = True
    m(x).sum().backward()
    n = copy.deepcopy(m)
    marked = [getattr(p, "sequence_parallel", False) or p.grad is not None for p in n.parameters()]
    return n(x).detach() * (2 if any(marked) else 1) * len({id(p) for p in n.parameters()})


@program
def state_dict_roundtrip(x):
    m, n = (nn.Linear(4, 4), nn.Linear(4, 4))
    m.weight.data = x.clone()
    m.bias.data = x[1].clone()
    s = m.state_dict()
    n.load_state_dict(s)
    k = nn.Linear(4, 4)
    k.load_state_dict(s, assign=True)
    with torch.no_grad():
        k.weight.mul_(2)
    return (n(x).detach(), m.weight.detach())


@program
def parameters_to_vector(x):
    m = nn.Linear(4, 4)
    m.weight.data = x.clone()
    m.bias.data = x[1].clone()
    v = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(v * 2, m.parameters())
    return m(x).detach()


@program
def ema(x):
    m = nn.Linear(4, 4, bias=False)
    m.weight.data = x.clone()
    a = AveragedModel(m)
    a.update_parameters(m)
    m.weight.data.mul_(2)
    a.update_parameters(m)
    return a.module.weight.detach()


@program
def jagged(x):
    cu = torch.tensor([0, 1, 4])
    return (
        torch.cat([x[s:e].softmax(0) for s, e in zip(cu.tolist(), cu[1:].tolist(), strict=False)]),
        torch.repeat_interleave(torch.arange(2), cu.diff()),
        torch.segment_reduce(x[:, 0], "sum", lengths=cu.diff()),
    )


@program
def deepcopy_shared(x):
    y = x.clone()
    both = copy.deepcopy({"a": y, "b": y[1], "c": y.t()})
    both["b"].add_(5)
    y.zero_()
    return (both["a"] * 1, both["c"] * 1)


TABLE = torch.arange(4.0)


@program
def copied_from_outside(x):
    table = copy.deepcopy(TABLE)
    table.add_(1)
    return x * table, x * TABLE


@program
def copied_after_a_call_met_it(x):
    y = x * TABLE
    return y, x * copy.deepcopy({"one": TABLE, "same": TABLE})["same"]


@program
def copy_copy(x):
    y = x.clone()
    z = copy.copy(y)
    z.add_(1)
    return (y, z)


@program
def max_out_reused(x):
    v, i = (torch.zeros(4), torch.zeros(4, dtype=torch.long))
    torch.max(x, 1, out=(v, i))
    torch.sort(v, out=(v, torch.empty(4, dtype=torch.long)))
    return (v, i, torch.topk(x, 2, out=(torch.empty(0), torch.empty(0, dtype=torch.long)))[1])


@program
def frexp_out(x):
    m, e = (torch.empty(4, 4), torch.empty(4, 4, dtype=torch.int32))
    torch.frexp(x, out=(m, e))
    return (m, e)


@program
def bucketize_search(x):
    return (
        torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
        torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x, right=True),
    )


@program
def counts(x):
    numbers = x.argmax(-1)
    known = torch.bincount(torch.tensor([0, 2, 5]), minlength=4)
    return (
        torch.bincount(numbers, minlength=4),
        torch.bincount(numbers.int(), x[:, 0], minlength=6),
        torch.bincount(numbers, x[:, 0].double(), 4),
        known * x[0, 0],
    )


@program
def unique_const(x):
    u, inv = torch.unique(torch.tensor([3, 1, 3]), return_inverse=True)
    return x[inv] * u[0]


@program
def nonzero_const(x):
    return (x[torch.tensor([0, 1, 1, 0]).nonzero().flatten()], x[torch.tensor([0, 1, 1, 0]).bool()])


@program
def written_through_an_expanded_view(x):
    whole = x.sum(0)
    rows = whole.expand(3, 4)
    rows[1].mul_(2)
    rows.narrow(0, 2, 1).add_(1)
    rows[0:2][1][1:3].zero_()
    return (rows * 1, whole * 1)


@program
def written_through_windows(x):
    line = x[0].clone()
    windows = line.unfold(0, 2, 1)
    windows[1].mul_(3)
    windows[:, 0].add_(1)
    torch.as_strided(line, (2, 2), (1, 2)).neg_()
    windows.t()[1][0].zero_()
    return (windows * 1, line * 1)


@program
def written_through_steps_that_are_apart(x):
    line = torch.zeros(12)
    line.as_strided((3, 2), (2, 3)).copy_(x.reshape(-1)[:6].view(3, 2))
    line.as_strided((2, 3, 2), (6, 2, 1)).mul_(2)
    return line


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_equals_eager(name: str) -> None:
    assert_equals_eager(PROGRAMS[name], torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("write", [lambda w: w.mul_(2), lambda w: w.add_(w.clone()), lambda w: w[:2].zero_()])
def test_elements_that_share_memory_are_not_written_at_once(write: Callable[[torch.Tensor], Any]) -> None:
    def shared(x: torch.Tensor) -> torch.Tensor:
        line = x[0].clone()
        write(line.unfold(0, 2, 1))
        return line

    (trouble,) = record(shared, [torch.ones(3, 4)]).troubles
    assert trouble.message.startswith("elements that share memory are written all at once")
