"""Checks of the usual parallelisms on small meshes, whose ranks run one program."""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

WIDTH, HIDDEN, TOKENS, HEADS, HEAD = 6, 16, 8, 4, 4


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(_: Any, grad: torch.Tensor) -> Any:
        return grad, None


class Gather(torch.autograd.Function):
    """All-gather along a dim; its gradient is reduced and scattered."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, dim: int) -> torch.Tensor:
        ctx.group, ctx.dim = group, dim
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        parts = [part.contiguous() for part in grad.chunk(dist.get_world_size(ctx.group), ctx.dim)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts, group=ctx.group)
        return own, None, None


class Scatter(torch.autograd.Function):
    """Reduce-scatter along a dim; its gradient is gathered."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, dim: int) -> torch.Tensor:
        ctx.group, ctx.dim = group, dim
        parts = [part.contiguous() for part in x.chunk(dist.get_world_size(group), dim)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts, group=group)
        return own

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        parts = [torch.empty_like(grad) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, grad.contiguous(), group=ctx.group)
        return torch.cat(parts, ctx.dim), None, None


class MLP(nn.Module):
    def __init__(self, group: Any = None, sequence: bool = False) -> None:
        super().__init__()
        self.group, self.sequence = group, sequence
        hidden = HIDDEN // (1 if group is None else dist.get_world_size(group))
        self.up = nn.Linear(WIDTH, hidden, bias=False)
        self.down = nn.Linear(hidden, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return self.down(F.silu(self.up(x)))
        if self.sequence:
            return Scatter.apply(self.down(F.silu(self.up(Gather.apply(x, self.group, 0)))), self.group, 0)
        return Reduce.apply(self.down(F.silu(self.up(Copy.apply(x, self.group)))), self.group)


@gg.check(mesh={"tp": 8})
def mlp(mesh: Any) -> Any:
    return gg.Refinement(MLP(), MLP(mesh.get_group("tp")), (gg.tensor(TOKENS, WIDTH),), out_relations="replicate")


@gg.check(mesh={"tp": 8})
def sequence(mesh: Any) -> Any:
    return gg.Refinement(
        MLP(),
        MLP(mesh.get_group("tp"), sequence=True),
        (gg.tensor(TOKENS, WIDTH),),
        in_relations={"tp": Shard(0)},
        out_relations={"tp": Shard(0)},
    )


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x: torch.Tensor) -> torch.Tensor:
    angles = torch.outer(torch.arange(TOKENS).float(), 10.0 ** -torch.arange(0, HEAD, 2).float())
    angles = torch.cat([angles, angles], -1)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


class Layer(nn.Module):
    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group
        self.heads = HEADS // (1 if group is None else dist.get_world_size(group))
        self.first, self.second, self.mlp = Norm(), Norm(), MLP(group)
        self.q, self.k, self.v = (nn.Linear(WIDTH, self.heads * HEAD, bias=False) for _ in range(3))
        self.o = nn.Linear(self.heads * HEAD, WIDTH, bias=False)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (w(x).view(1, TOKENS, self.heads, HEAD).transpose(1, 2) for w in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(1, TOKENS, -1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + (
            self.attend(y) if self.group is None else Reduce.apply(self.attend(Copy.apply(y, self.group)), self.group)
        )
        return x + self.mlp(self.second(x))


@gg.check(mesh={"tp": 4})
def layer(mesh: Any) -> Any:
    return gg.Refinement(
        Layer(), Layer(mesh.get_group("tp")), (gg.tensor(1, TOKENS, WIDTH),), out_relations="replicate"
    )


def gradients(weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> Any:
    weight, bias = weight.detach().requires_grad_(), bias.detach().requires_grad_()
    return torch.autograd.grad(F.mse_loss(F.linear(x, weight, bias), target), (weight, bias))


def averaged(weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> Any:
    grads = gradients(weight, bias, x, target)
    for grad in grads:
        dist.all_reduce(grad)
        grad.div_(dist.get_world_size())
    return grads


def parts(inputs: Any, mesh: Any) -> Any:
    weight, bias, x, target = inputs
    rank, ranks = mesh.get_local_rank("dp"), mesh["dp"].size()
    return weight, bias, x.chunk(ranks)[rank], target.chunk(ranks)[rank]


@gg.check(mesh={"dp": 8})
def data_parallel(mesh: Any) -> Any:
    inputs = (gg.tensor(3, 5), gg.tensor(3), gg.tensor(16, 5), gg.tensor(16, 3))
    return gg.Refinement(gradients, averaged, inputs, shard_inputs=parts, out_relations="replicate")


def step(up: torch.Tensor, down: torch.Tensor, x: torch.Tensor, dp: Any = None, tp: Any = None) -> Any:
    up, down = up.detach().requires_grad_(), down.detach().requires_grad_()
    hidden = F.silu((x if tp is None else Copy.apply(x, tp)) @ up)
    y = hidden @ down
    y = y if tp is None else Reduce.apply(y, tp)
    grads = torch.autograd.grad(y.pow(2).mean(), (up, down))
    if dp is not None:
        for grad in grads:
            dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=dp)
    return grads


@gg.check(mesh={"dp": 4, "tp": 4})
def two_axes(mesh: Any) -> Any:
    def impl(up: torch.Tensor, down: torch.Tensor, x: torch.Tensor) -> Any:
        return step(up, down, x, mesh.get_group("dp"), mesh.get_group("tp"))

    inputs = (gg.tensor(WIDTH, HIDDEN), gg.tensor(HIDDEN, WIDTH), gg.tensor(TOKENS, WIDTH))
    relations = ({"tp": Shard(1)}, {"tp": Shard(0)}, {"dp": Shard(0)})
    return gg.Refinement(step, impl, inputs, in_relations=relations, out_relations=({"tp": Shard(1)}, {"tp": Shard(0)}))


def routed(
    score: torch.Tensor, up: torch.Tensor, down: torch.Tensor, x: torch.Tensor, mesh: Any = None
) -> torch.Tensor:
    scores = F.softmax(x @ score, dim=-1)
    chosen, index = scores.topk(2, dim=-1)
    weights = torch.zeros_like(scores).scatter(-1, index, chosen)
    if mesh is not None:
        weights = weights.chunk(mesh.size(), dim=-1)[mesh.get_local_rank("ep")]
    y = torch.einsum("teh,edh->ted", F.silu(torch.einsum("td,ehd->teh", x, up)), down)
    y = (weights.unsqueeze(-1) * y).sum(1)
    if mesh is not None:
        dist.all_reduce(y)
    return y


@gg.check(mesh={"ep": 4})
def experts(mesh: Any) -> Any:
    def impl(score: torch.Tensor, up: torch.Tensor, down: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return routed(score, up, down, x, mesh)

    inputs = (gg.tensor(WIDTH, 8), gg.tensor(8, 5, WIDTH), gg.tensor(8, WIDTH, 5), gg.tensor(TOKENS, WIDTH))
    relations = ("replicate", {"ep": Shard(0)}, {"ep": Shard(0)}, "replicate")
    return gg.Refinement(routed, impl, inputs, in_relations=relations, out_relations="replicate")


def sharded(up: torch.Tensor, down: torch.Tensor, x: torch.Tensor, group: Any = None) -> Any:
    def whole(w: torch.Tensor) -> torch.Tensor:
        return w if group is None else Gather.apply(w, group, 0)

    up, down = up.detach().requires_grad_(), down.detach().requires_grad_()
    y = F.silu(x @ whole(up)) @ whole(down)
    grads = torch.autograd.grad(y.pow(2).sum(), (up, down))
    return y, *grads


@gg.check(mesh={"fsdp": 4})
def fsdp(mesh: Any) -> Any:
    def impl(up: torch.Tensor, down: torch.Tensor, x: torch.Tensor) -> Any:
        return sharded(up, down, x, mesh.get_group("fsdp"))

    inputs = (gg.tensor(8, HIDDEN), gg.tensor(HIDDEN, WIDTH), gg.tensor(TOKENS, 8))
    rows = {"fsdp": Shard(0)}
    return gg.Refinement(sharded, impl, inputs, in_relations=(rows, rows, rows), out_relations=(rows, rows, rows))


@gg.check(mesh={"cp": 4})
def columns_by_position(mesh: Any) -> Any:
    """Each rank adds what depends on the positions of its own tokens."""

    def spec(x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(TOKENS).unsqueeze(-1) * 0.5

    def impl(x: torch.Tensor) -> torch.Tensor:
        own = TOKENS // mesh.size()
        return x + (torch.arange(own) + mesh.get_local_rank("cp") * own).unsqueeze(-1) * 0.5

    rows = {"cp": Shard(0)}
    return gg.Refinement(spec, impl, (gg.tensor(TOKENS, WIDTH),), in_relations=rows, out_relations=rows)


@gg.check(mesh={"ep": 4})
def exchanged(mesh: Any) -> Any:
    """Rows are sent to those that have their columns, and back: heads for tokens."""

    def spec(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.einsum("thd,hde->the", x, w)

    def swapped(x: torch.Tensor, give: int, take: int) -> torch.Tensor:
        out = [part.contiguous() for part in x.chunk(mesh.size(), give)]
        into = [torch.empty_like(part) for part in out]
        dist.all_to_all(into, out)
        return torch.cat(into, take)

    def impl(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return swapped(torch.einsum("thd,hde->the", swapped(x, 1, 0), w), 0, 1)

    rows = {"ep": Shard(0)}
    inputs = (gg.tensor(TOKENS, HEADS, 3), gg.tensor(HEADS, 3, 2))
    return gg.Refinement(spec, impl, inputs, in_relations=(rows, rows), out_relations=rows)


@gg.check(mesh={"pp": 2, "dp": 4})
def stages(mesh: Any) -> Any:
    """Two stages, one of which sends to the other; every stage has the result of the last."""

    def spec(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.silu(x @ w) @ v

    def impl(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        here, ranks = mesh.get_local_rank("pp"), dist.get_process_group_ranks(mesh.get_group("pp"))
        y = torch.empty(x.shape[0], HIDDEN)
        if here == 0:
            dist.send(F.silu(x @ w), ranks[1])
        else:
            dist.recv(y, ranks[0])
            y = y @ v
        out = y if here else torch.empty(x.shape[0], WIDTH)
        dist.broadcast(out, ranks[1], group=mesh.get_group("pp"))
        return out

    inputs = (gg.tensor(TOKENS, WIDTH), gg.tensor(WIDTH, HIDDEN), gg.tensor(HIDDEN, WIDTH))
    rows = {"dp": Shard(0)}
    return gg.Refinement(spec, impl, inputs, in_relations=(rows, "replicate", "replicate"), out_relations=rows)


def trained(first: torch.Tensor, second: torch.Tensor, x: torch.Tensor) -> Any:
    """The gradients of both halves of an MLP."""
    first, second = first.detach().requires_grad_(), second.detach().requires_grad_()
    loss = (F.silu(x @ first) @ second).pow(2).mean()
    return dict(zip(("first", "second"), torch.autograd.grad(loss, (first, second)), strict=True))


@gg.check(mesh={"pp": 2, "dp": 2, "tp": 2})
def pipeline(mesh: Any) -> Any:
    """Each stage has the gradient of its own half alone."""

    def impl(first: torch.Tensor, second: torch.Tensor, x: torch.Tensor) -> Any:
        here, ranks = mesh.get_local_rank("pp"), dist.get_process_group_ranks(mesh.get_group("pp"))
        tp = mesh.get_group("tp")
        hidden = torch.empty(x.shape[0], first.shape[1])
        if here == 0:
            first = first.detach().requires_grad_()
            out = F.silu(Copy.apply(x, tp) @ first)
            dist.send(out.detach(), ranks[1])
            dist.recv(hidden, ranks[1])
            (grad,) = torch.autograd.grad(out, (first,), hidden)
        else:
            dist.recv(hidden, ranks[0])
            hidden, second = hidden.requires_grad_(), second.detach().requires_grad_()
            loss = Reduce.apply(hidden @ second, tp).pow(2).mean()
            back, grad = torch.autograd.grad(loss, (hidden, second))
            dist.send(back, ranks[0])
        dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=mesh.get_group("dp"))
        return {"second" if here else "first": grad}

    inputs = (gg.tensor(WIDTH, HIDDEN), gg.tensor(HIDDEN, WIDTH), gg.tensor(TOKENS, WIDTH))
    return gg.Refinement(
        trained,
        impl,
        inputs,
        in_relations=({"tp": Shard(1)}, {"tp": Shard(0)}, {"dp": Shard(0)}),
        out_relations={"first": {"tp": Shard(1)}, "second": {"tp": Shard(0)}},
    )


@gg.check(mesh={"dp": 2, "tp": 2})
def nested(mesh: Any) -> Any:
    """Rows that one axis cuts, and then the other."""
    rows = {"dp": Shard(0), "tp": Shard(0)}
    return gg.Refinement(F.silu, F.silu, (gg.tensor(TOKENS, WIDTH),), in_relations=rows, out_relations=rows)


def rotated(up: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Heads of columns, each pair of numbers turned by its place, as complex numbers."""
    heads = (x @ up).unflatten(1, (-1, HEAD))
    angles = torch.outer(torch.arange(float(TOKENS)), 0.1 ** torch.arange(HEAD / 2))
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(heads.unflatten(2, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns[:, None]).flatten(1)


@gg.check(mesh={"tp": 4})
def complex_rotations(mesh: Any) -> Any:
    inputs = (gg.tensor(WIDTH, HEADS * HEAD), gg.tensor(TOKENS, WIDTH))
    return gg.Refinement(rotated, rotated, inputs, in_relations=({"tp": Shard(1)}, {}), out_relations={"tp": Shard(1)})


WORDS = 12


@gg.check(mesh={"dp": 2, "tp": 3})
def vocabulary(mesh: Any) -> Any:
    """Rows of a table by number, each rank of one axis having some of them: where these begin moves with the rank."""

    def impl(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        first = mesh.get_local_rank("tp") * table.shape[0]
        outside = (ids < first) | (ids >= first + table.shape[0])
        found = F.embedding((ids - first).masked_fill(outside, 0), table)
        found = found.masked_fill(outside[:, None], 0.0)
        dist.all_reduce(found, group=mesh.get_group("tp"))
        return found

    def spec(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, table)

    inputs = (gg.tensor(WORDS, WIDTH), gg.tensor(TOKENS, dtype=torch.int64, low=0, high=WORDS))
    rows = {"dp": Shard(0)}
    return gg.Refinement(spec, impl, inputs, in_relations=({"tp": Shard(0)}, rows), out_relations=rows)


@gg.check(mesh={"tp": 4})
def words(mesh: Any) -> Any:
    """The loss of logits of which every rank has some columns, and its gradient; the target's place is bounded to the rank's columns."""

    def spec(head: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> Any:
        head = head.detach().requires_grad_()
        loss = F.cross_entropy(x @ head, target)
        return {"loss": loss.detach(), "grad": torch.autograd.grad(loss, head)[0]}

    def impl(head: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> Any:
        group, head = mesh.get_group("tp"), head.detach().requires_grad_()
        logits = x @ head
        low, high = ((mesh.get_local_rank("tp") + at) * logits.shape[1] - at for at in (0, 1))
        largest = logits.detach().amax(1)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        total = Reduce.apply((logits - largest[:, None]).exp().sum(1), group)
        inside = (target >= low) & (target <= high)
        hit = logits.gather(1, (target.clamp(low, high) - low)[:, None])[:, 0] * inside
        loss = (largest + total.log() - Reduce.apply(hit, group)).mean()
        return {"loss": loss.detach(), "grad": torch.autograd.grad(loss, head)[0]}

    inputs = (
        gg.tensor(WIDTH, WORDS),
        gg.tensor(TOKENS, WIDTH),
        gg.tensor(TOKENS, dtype=torch.int64, low=0, high=WORDS),
    )
    part = {"tp": Shard(1)}
    return gg.Refinement(spec, impl, inputs, in_relations=(part, {}, {}), out_relations={"loss": {}, "grad": part})


@gg.check(mesh={"dp": 4, "tp": 2})
def rolled(mesh: Any) -> Any:
    """Columns that each rank of one axis rolls by a number of its own, and back, which is not followed: this axis is no digit."""

    def impl(up: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        by = 2 * mesh.get_local_rank("tp") + 1
        return (x @ up).roll(by, 1).relu().roll(-by, 1)

    def spec(up: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (x @ up).relu()

    inputs = (gg.tensor(WIDTH, HIDDEN), gg.tensor(TOKENS, WIDTH))
    rows, columns = {"dp": Shard(0)}, {"tp": Shard(1)}
    return gg.Refinement(spec, impl, inputs, in_relations=(columns, rows), out_relations={**rows, **columns})


def in_bfloat16(up: torch.Tensor, down: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """An MLP in bfloat16 behind a norm in float32."""
    normed = F.rms_norm(x.float(), (WIDTH,), eps=1e-5).bfloat16()
    return F.silu(normed @ up) @ down


@gg.check(mesh={"tp": 4})
def mixed_precision(mesh: Any) -> Any:
    def impl(up: torch.Tensor, down: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return Reduce.apply(in_bfloat16(up, down, x), mesh.get_group("tp"))

    inputs = tuple(gg.tensor(*shape, dtype=torch.bfloat16) for shape in ((WIDTH, HIDDEN), (HIDDEN, WIDTH), (3, WIDTH)))
    relations = ({"tp": Shard(1)}, {"tp": Shard(0)}, {})
    return gg.Refinement(in_bfloat16, impl, inputs, in_relations=relations, out_relations="replicate")


def in_float32(up: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ up).square()


@gg.check(mesh={"tp": 4})
def narrowed(mesh: Any) -> Any:
    """The ranks compute in bfloat16 what the specification computes in float32: no proof."""

    def impl(up: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return in_float32(up.bfloat16(), x.bfloat16()).float()

    columns = {"tp": Shard(1)}
    inputs = (gg.tensor(WIDTH, HIDDEN), gg.tensor(3, WIDTH))
    return gg.Refinement(in_float32, impl, inputs, in_relations=(columns, {}), out_relations=columns)
