"""Ring attention: the backward pass goes round the chunks, and each step differentiates with the keys that the forward pass saved, in the manner of diffusers.

Source: https://github.com/huggingface/diffusers/issues/14265
Rule: wrong-relation, wrong-shard, gradient-not-reduced
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SEQUENCE, HEADS, HEAD_DIM = 6, 2, 5


def scores_of(query, key):
    """(sequence, heads, dim)"""
    return torch.einsum("qhd,khd->hqk", query, key) * HEAD_DIM**-0.5


def gathered(x, group):
    """Every rank's chunk."""
    chunks = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(chunks, x.contiguous(), group=group)
    return chunks


def passed_back(x, group):
    """What the next rank has."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    out = torch.empty_like(x)
    sent = dist.P2POp(dist.isend, x.contiguous(), (rank - 1) % ranks, group)
    received = dist.P2POp(dist.irecv, out, (rank + 1) % ranks, group)
    for work in dist.batch_isend_irecv([sent, received]):
        work.wait()
    return out


def attention_backward_op(ctx, grad_out, key=None, value=None):
    query, saved_key, saved_value, out, lse = ctx.saved_tensors
    key = saved_key if key is None else key
    value = saved_value if value is None else value
    probs = (scores_of(query, key) - lse.unsqueeze(-1)).exp()
    grad_value = torch.einsum("hqk,qhd->khd", probs, grad_out)
    grad_probs = torch.einsum("qhd,khd->hqk", grad_out, value)
    delta = (grad_out * out).sum(-1).transpose(0, 1)
    grad_scores = probs * (grad_probs - delta.unsqueeze(-1)) * HEAD_DIM**-0.5
    return torch.einsum("hqk,khd->qhd", grad_scores, key), torch.einsum("hqk,qhd->khd", grad_scores, query), grad_value


class TemplatedRingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, group):
        scores = [scores_of(query, chunk) for chunk in gathered(key, group)]
        lse = torch.cat(scores, dim=-1).logsumexp(-1)
        out = torch.zeros_like(query)
        for block, chunk in zip(scores, gathered(value, group)):
            out = out + torch.einsum("hqk,khd->qhd", (block - lse.unsqueeze(-1)).exp(), chunk)
        ctx.group = group
        ctx.save_for_backward(query, key, value, out, lse)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        query, key, value, _, _ = ctx.saved_tensors
        ranks, next_rank = dist.get_world_size(ctx.group), dist.get_rank(ctx.group)
        keys, values = gathered(key, ctx.group), gathered(value, ctx.group)
        grad_query, grad_key, grad_value = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
        for _ in range(ranks):
            key, value = keys[next_rank], values[next_rank]
            next_rank = (next_rank + 1) % ranks
            of_query, of_key, of_value = attention_backward_op(ctx, grad_out)  # fixed: of_query, of_key, of_value = attention_backward_op(ctx, grad_out, key, value)
            grad_query = grad_query + of_query
            grad_key = passed_back(grad_key + of_key, ctx.group)
            grad_value = passed_back(grad_value + of_value, ctx.group)
        return grad_query, grad_key, grad_value, None


class Attention(nn.Module):
    def forward(self, query, key, value):
        return torch.einsum("hqk,khd->qhd", scores_of(query, key).softmax(-1), value)


class RingAttention(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, query, key, value):
        return TemplatedRingAttention.apply(query, key, value, self.group)


@gg.check(mesh={"cp": 2})
def check(mesh):
    rows = {"cp": Shard(0)}
    inputs = tuple(gg.tensor(SEQUENCE, HEADS, HEAD_DIM) for _ in range(3))
    return gg.Refinement(Attention(), RingAttention(mesh.get_group("cp")), inputs, in_relations=rows, out_relations=rows)
