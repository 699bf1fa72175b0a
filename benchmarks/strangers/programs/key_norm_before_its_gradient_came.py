"""Ulysses with the exchange inside the projection: the backward pass of the keys' norm runs before the exchange of their gradient is waited for. VeOmni's DiT.

Source: https://github.com/ByteDance-Seed/VeOmni/pull/419
Rule: wrong-relation, wrong-shard, gradient-not-reduced
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

SEQUENCE, HIDDEN, HEADS, DIM, EPS = 6, 5, 4, 3, 1e-6


def attention(q, k, v):
    """(sequence, heads, dim)"""
    scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


def rms_forward_affine(x, weight):
    """Every head by itself; and what the backward pass needs."""
    rstd = (x.square().mean(-1, keepdim=True) + EPS).rsqrt()
    return x * rstd * weight, rstd


def rms_backward_affine(grad, x, rstd, weight):
    """One row per token and head."""
    rows, rstd = x.reshape(-1, DIM), rstd.reshape(-1, 1)
    grad = grad.reshape(-1, DIM)
    normed = rows * rstd
    grad_normed = grad * weight
    grad_x = rstd * (grad_normed - normed * (grad_normed * normed).mean(-1, keepdim=True))
    return grad_x.reshape(x.shape), (grad * normed).sum(0)


class SequenceParallel:
    def __init__(self, group):
        self.group = group
        self.size = dist.get_world_size(group)

    def to_heads(self, x):
        """Starts to exchange a part of the sequence for a part of the heads; the result is a function to wait with."""
        sequence, heads, dim = x.shape
        x = x.reshape(sequence, self.size, heads // self.size, dim).transpose(0, 1).contiguous()
        out = torch.empty_like(x)
        work = dist.all_to_all_single(out, x, group=self.group, async_op=True)

        def collect():
            work.wait()
            return out.reshape(self.size * sequence, heads // self.size, dim)

        return collect

    def to_sequence(self, x):
        """The way back."""
        sequence, heads, dim = x.shape
        x = x.reshape(self.size, sequence // self.size, heads, dim).contiguous()
        out = torch.empty_like(x)
        work = dist.all_to_all_single(out, x, group=self.group, async_op=True)

        def collect():
            work.wait()
            return out.transpose(0, 1).reshape(sequence // self.size, self.size * heads, dim)

        return collect


class AsyncUlyssesQKVProjection(torch.autograd.Function):
    """Each projection's exchange runs while the next one is computed, in both directions."""

    @staticmethod
    def forward(ctx, hidden, weight_q, weight_k, weight_v, norm_q, norm_k, sp):
        q = (hidden @ weight_q.t()).unflatten(-1, (HEADS, DIM))
        q_normed, rstd_q = rms_forward_affine(q, norm_q)
        q_res = sp.to_heads(q_normed)
        k = (hidden @ weight_k.t()).unflatten(-1, (HEADS, DIM))
        k_normed, rstd_k = rms_forward_affine(k, norm_k)
        k_res = sp.to_heads(k_normed)
        v_res = sp.to_heads((hidden @ weight_v.t()).unflatten(-1, (HEADS, DIM)))
        ctx.sp = sp
        ctx.save_for_backward(hidden, weight_q, weight_k, weight_v, norm_q, norm_k, q, k, rstd_q, rstd_k)
        return q_res(), k_res(), v_res()

    @staticmethod
    def backward(ctx, grad_q, grad_k, grad_v):
        hidden, weight_q, weight_k, weight_v, norm_q, norm_k, q, k, rstd_q, rstd_k = ctx.saved_tensors
        grad_q_res = ctx.sp.to_sequence(grad_q)
        grad_k_res = ctx.sp.to_sequence(grad_k)
        grad_v_res = ctx.sp.to_sequence(grad_v)
        # queries
        grad_q = grad_q_res()
        grad_q, grad_norm_q = rms_backward_affine(grad_q, q, rstd_q, norm_q)
        grad_q = grad_q.flatten(1)
        grad_hidden = grad_q @ weight_q
        # keys
        grad_k, grad_norm_k = rms_backward_affine(grad_k, k, rstd_k, norm_k)  # fixed: grad_k = grad_k_res()
        grad_k = grad_k_res()  # fixed: grad_k, grad_norm_k = rms_backward_affine(grad_k, k, rstd_k, norm_k)
        grad_k = grad_k.flatten(1)
        grad_hidden = grad_hidden + grad_k @ weight_k
        # values
        grad_v = grad_v_res().flatten(1)
        grad_hidden = grad_hidden + grad_v @ weight_v
        grad_weights = [grad.t() @ hidden for grad in (grad_q, grad_k, grad_v)]
        return grad_hidden, *grad_weights, grad_norm_q, grad_norm_k, None


class AsyncUlyssesOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sp):
        ctx.sp = sp
        return sp.to_sequence(x)()

    @staticmethod
    def backward(ctx, grad):
        return ctx.sp.to_heads(grad)(), None


NAMES = ("hidden", "weight_q", "weight_k", "weight_v", "norm_q", "norm_k")


def gradients_of(output, leaves):
    (output.square() * 0.5).sum().backward()
    return {"output": output.detach(), **{name: leaf.grad for name, leaf in zip(NAMES, leaves)}}


def spec(*inputs):
    leaves = hidden, weight_q, weight_k, weight_v, norm_q, norm_k = [x.detach().requires_grad_() for x in inputs]
    q, k, v = ((hidden @ weight.t()).unflatten(-1, (HEADS, DIM)) for weight in (weight_q, weight_k, weight_v))
    output = attention(rms_forward_affine(q, norm_q)[0], rms_forward_affine(k, norm_k)[0], v)
    return gradients_of(output, leaves)


def train_step(sp):
    def impl(*inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]
        q, k, v = AsyncUlyssesQKVProjection.apply(*leaves, sp)
        result = gradients_of(AsyncUlyssesOutput.apply(attention(q, k, v), sp), leaves)
        for name in NAMES[1:]:
            dist.all_reduce(result[name], group=sp.group)
        return result

    return impl


@gg.check(mesh={"sp": 2})
def check(mesh):
    weights = [gg.tensor(HEADS * DIM, HIDDEN) for _ in range(3)]
    inputs = (gg.tensor(SEQUENCE, HIDDEN), *weights, gg.tensor(DIM), gg.tensor(DIM))
    rows = {"sp": Shard(0)}
    return gg.Refinement(
        spec,
        train_step(SequenceParallel(mesh.get_group("sp"))),
        inputs,
        in_relations=(rows, {}, {}, {}, {}, {}),
        out_relations=(rows, rows, {}, {}, {}, {}, {}),
        grads=False,
    )
