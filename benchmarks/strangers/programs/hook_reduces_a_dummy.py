"""A hook reduces the experts' shared adapter, and sees a dummy: the gradient is in main_grad. Megatron Bridge.

Source: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/6009
Rule: gradient-not-reduced, missing-reduction
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

MICRO_BATCHES, TOKENS, HIDDEN, EXPERTS, RANK, ALPHA = 3, 10, 4, 6, 2, 1.5


class ExpertParallel:
    """Every rank has some of the tokens and some of the experts."""

    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def gather(self, x):
        out = torch.empty(self.size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.group)
        return out

    def scatter(self, x):
        out = torch.empty(x.shape[0] // self.size, *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=self.group)
        return out

    def sum(self, x):
        x = x.clone()
        dist.all_reduce(x, group=self.group)
        return x


class _ReduceScatterTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ep):
        ctx.ep = ep
        return ep.scatter(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.ep.gather(grad), None


class LinearWithGradAccumulation(torch.autograd.Function):
    """The weight's gradient is added to ``main_grad`` at once; autograd gets something of its shape."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        ctx.weight.main_grad = ctx.weight.main_grad + grad.t() @ x  # near
        dummy = torch.zeros_like(ctx.weight)
        return grad @ ctx.weight, dummy


def trainable(weight):
    parameter = nn.Parameter(weight.detach().clone())
    parameter.main_grad = torch.zeros_like(parameter)
    return parameter


class SharedOuterGroupedExpertAdapter:
    """One matrix inward for all experts, so all ranks have it; one matrix outward for each expert."""

    def __init__(self, linear_in, linear_out, ep=None):
        self.ep = ep
        self.linear_in = trainable(linear_in)
        self.linear_out = [trainable(weight) for weight in linear_out]
        if ep is not None:
            self.linear_in.register_hook(ep.sum)  # fault

    def __call__(self, x, expert):
        inner = LinearWithGradAccumulation.apply(x, self.linear_in)
        return ALPHA / RANK * LinearWithGradAccumulation.apply(inner, self.linear_out[expert])

    def synchronize_shared(self):
        """The experts of the other ranks use it as well."""
        if self.ep is not None:
            self.linear_in.main_grad = self.ep.sum(self.linear_in.main_grad)


class MoELayer:
    """The router and the experts are frozen; every token goes to every expert, by its weight."""

    def __init__(self, router, experts, adapter, ep=None):
        self.router, self.experts, self.adapter, self.ep = router, experts, adapter, ep

    def own_probs(self, x):
        probs = (x @ self.router.t()).softmax(-1)
        return probs if self.ep is None else probs.chunk(self.ep.size, dim=-1)[self.ep.rank]

    def __call__(self, tokens):
        x = tokens if self.ep is None else self.ep.gather(tokens)
        probs = self.own_probs(x)
        out = torch.zeros_like(x)
        for index, weight in enumerate(self.experts):
            out = out + probs[:, index : index + 1] * torch.tanh(x @ weight.t() + self.adapter(x, index))
        return tokens + (out if self.ep is None else _ReduceScatterTokens.apply(out, self.ep))


def finalize_model_grads(layer, num_tokens):
    """After the last micro-batch, before the optimizer: losses are sums over tokens until here."""
    adapter = layer.adapter
    # fixed, insert: adapter.synchronize_shared()
    for parameter in (adapter.linear_in, *adapter.linear_out):
        parameter.main_grad = parameter.main_grad / num_tokens


def train_step(ep=None):
    def step(tokens, target, router, experts, linear_in, linear_out):
        adapter = SharedOuterGroupedExpertAdapter(linear_in, linear_out, ep)
        layer = MoELayer(router, experts, adapter, ep)
        losses = []
        for micro_batch, wanted in zip(tokens, target, strict=True):
            loss = (layer(micro_batch) - wanted).square().sum()
            loss.backward()
            losses.append(loss.detach())
        num_tokens = MICRO_BATCHES * TOKENS
        finalize_model_grads(layer, num_tokens)
        loss = (sum(losses) if ep is None else ep.sum(sum(losses))) / num_tokens
        outward = torch.stack([parameter.main_grad for parameter in adapter.linear_out])
        return {"loss": loss, "linear_in": adapter.linear_in.main_grad, "linear_out": outward}  # near

    return step


@gg.check(mesh={"ep": 2})
def check(mesh):
    batch = (gg.tensor(MICRO_BATCHES, TOKENS, HIDDEN), gg.tensor(MICRO_BATCHES, TOKENS, HIDDEN))
    frozen = (gg.tensor(EXPERTS, HIDDEN), gg.tensor(EXPERTS, HIDDEN, HIDDEN))
    adapters = (gg.tensor(RANK, HIDDEN), gg.tensor(EXPERTS, HIDDEN, RANK))
    whole, mine, tokens = {"ep": Replicate()}, {"ep": Shard(0)}, {"ep": Shard(1)}
    return gg.Refinement(
        train_step(),
        train_step(ExpertParallel(mesh.get_group("ep"))),
        batch + frozen + adapters,
        in_relations=(tokens, tokens, whole, mine, whole, mine),
        out_relations=(whole, whole, mine),
        grads=False,
    )
