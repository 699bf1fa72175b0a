"""Layers in nanotron's idiom: differentiable collectives, linear modes, and an embedding tied to the head over pipeline stages."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import graphguard as gg

VOCAB, WIDTH, INNER, TOKENS, BATCH = 12, 8, 16, 4, 2


class DifferentiableIdentity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return tensor

    @staticmethod
    def backward(ctx, grad):
        return DifferentiableAllReduceSum.apply(grad, ctx.group), None


class DifferentiableAllReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        if group.size() == 1:
            return tensor
        tensor = tensor.contiguous()
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
        return tensor

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class DifferentiableAllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        tensor = tensor.contiguous()
        whole = torch.empty(tensor.shape[0] * group.size(), *tensor.shape[1:], dtype=tensor.dtype)
        dist.all_gather_into_tensor(whole, tensor, group=group)
        return whole

    @staticmethod
    def backward(ctx, grad):
        return DifferentiableReduceScatterSum.apply(grad, ctx.group), None


class DifferentiableReduceScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        tensor = tensor.contiguous()
        part = torch.empty(tensor.shape[0] // group.size(), *tensor.shape[1:], dtype=tensor.dtype)
        dist.reduce_scatter_tensor(part, tensor, op=dist.ReduceOp.SUM, group=group)
        return part

    @staticmethod
    def backward(ctx, grad):
        return DifferentiableAllGather.apply(grad, ctx.group), None


class TensorParallelColumnLinear(nn.Linear):
    def __init__(self, columns, rows, group, mode):
        super().__init__(columns, rows // group.size(), bias=False)
        self.group, self.mode = group, mode

    def forward(self, x):
        enter = DifferentiableIdentity if self.mode == "ALL_REDUCE" else DifferentiableAllGather
        return F.linear(enter.apply(x, self.group), self.weight)


class TensorParallelRowLinear(nn.Linear):
    def __init__(self, columns, rows, group, mode):
        super().__init__(columns // group.size(), rows, bias=False)
        self.group, self.mode = group, mode

    def forward(self, x):
        leave = DifferentiableAllReduceSum if self.mode == "ALL_REDUCE" else DifferentiableReduceScatterSum
        return leave.apply(F.linear(x, self.weight), self.group)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class ParallelMLP(MLP):
    def __init__(self, group, mode):
        super().__init__()
        self.up = TensorParallelColumnLinear(WIDTH, INNER, group, mode)
        self.down = TensorParallelRowLinear(INNER, WIDTH, group, mode)


def step(model):
    def run(x, target):
        loss = F.mse_loss(model(x), target)
        loss.backward()
        return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}

    return run


def sequence_step(model, group, over_the_ranks):
    """Every rank has a part of the tokens: the loss is the mean of the ranks', and so are the gradients of parameters that every rank has whole."""

    def run(x, target):
        loss = F.mse_loss(model(x), target) / group.size()
        loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters()}
        for name in over_the_ranks:
            dist.all_reduce(gradients[name], group=group)
        dist.all_reduce(loss := loss.detach(), group=group)
        return {"loss": loss, **gradients}

    return run


INPUTS = (gg.tensor(BATCH * TOKENS, WIDTH), gg.tensor(BATCH * TOKENS, WIDTH))


@gg.check(mesh=[{"tp": 2}, {"tp": 4}])
def all_reduce_mode(mesh):
    return gg.Refinement(step(MLP()), step(ParallelMLP(mesh.get_group("tp"), "ALL_REDUCE")), INPUTS)


@gg.check(mesh=[{"tp": 2}, {"tp": 4}])
def reduce_scatter_mode(mesh):
    group = mesh.get_group("tp")
    model = ParallelMLP(group, "REDUCE_SCATTER")
    implementation = sequence_step(model, group, ("norm.weight", "norm.bias"))
    return gg.Refinement(step(MLP()), implementation, INPUTS, shard_inputs=tokens_of_rank)


def tokens_of_rank(inputs, mesh):
    return tuple(x.chunk(mesh["tp"].size())[mesh.get_local_rank("tp")] for x in inputs)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.first, self.second = MLP(), MLP()

    def forward(self, ids):
        return F.linear(self.second(self.first(self.embedding(ids))), self.embedding.weight)


class Stage(nn.Module):
    """One of two stages; each has its own copy of the tied weight."""

    def __init__(self, index):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        setattr(self, ("first", "second")[index], MLP())


def whole_step(model):
    def run(ids, target):
        loss = F.cross_entropy(model(ids).flatten(0, 1), target.flatten())
        loss.backward()
        return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}

    return run


def sync_tied_weights_gradients(model, group):
    dist.all_reduce(model.embedding.weight.grad, op=dist.ReduceOp.SUM, group=group)


def tied_step(stage, index, group, sync=sync_tied_weights_gradients):
    peer = dist.get_global_rank(group, 1 - index)

    def run(ids, target):
        hidden = torch.empty(BATCH, TOKENS, WIDTH)
        if index == 0:
            hidden = stage.first(stage.embedding(ids))
            dist.send(hidden.detach(), peer, group=group)
            dist.recv(grad := torch.empty_like(hidden), peer, group=group)
            hidden.backward(grad)
        else:
            dist.recv(hidden, peer, group=group)
            hidden.requires_grad_()
            logits = F.linear(stage.second(hidden), stage.embedding.weight)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
            loss.backward()
            dist.send(hidden.grad, peer, group=group)
        sync(stage, group)
        found = {name: p.grad for name, p in stage.named_parameters()}
        return found if index == 0 else {"loss": loss.detach(), **found}

    return run


TEXT = tuple(gg.tensor(BATCH, TOKENS, dtype=torch.int64, low=0, high=VOCAB) for _ in range(2))


@gg.check(mesh={"pp": 2})
def tied_over_stages(mesh):
    index = mesh.get_local_rank("pp")
    return gg.Refinement(whole_step(Whole()), tied_step(Stage(index), index, mesh.get_group("pp")), TEXT)
