"""Tokens go to the experts by all_to_all with fixed uneven counts, and back. The way back uses send counts for both: splits swapped.

Rule: wrong-shard, wrong-relation, collective-mismatch
"""
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

DIM, HIDDEN = 4, 3
COUNTS = [[1, 3], [2, 2]]  # COUNTS[r][e]: the tokens of rank r that expert e gets
LOCAL = 4


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send, receive):
        ctx.send, ctx.receive = send, receive
        out = x.new_empty(sum(receive), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), output_split_sizes=receive, input_split_sizes=send)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(sum(ctx.send), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), ctx.receive, ctx.send)  # fixed: dist.all_to_all_single(out, grad.contiguous(), ctx.send, ctx.receive)
        return out, None, None


def spec(x, up, down):
    x, up, down = (t.detach().requires_grad_() for t in (x, up, down))
    rows = []
    start = 0
    for counts in COUNTS:
        for e, n in enumerate(counts):
            part = x[start : start + n]
            rows.append(torch.tanh(part @ up[e]) @ down[e])
            start += n
    out = torch.cat(rows)
    out.square().sum().backward()
    return out.detach(), x.grad, up.grad, down.grad


def impl(x, up, down):
    rank = dist.get_rank()
    x, up, down = (t.detach().requires_grad_() for t in (x, up, down))
    send = COUNTS[rank]
    receive = [COUNTS[r][rank] for r in range(len(COUNTS))]
    mine = Exchange.apply(x, send, receive)
    y = torch.tanh(mine @ up[0]) @ down[0]
    out = Exchange.apply(y, receive, send)
    out.square().sum().backward()
    return out.detach(), x.grad, up.grad, down.grad


@gg.check(mesh={"ep": 2})
def check(mesh):
    parts = {"ep": Shard(0)}
    return gg.Refinement(
        spec, impl,
        inputs=(gg.tensor(2 * LOCAL, DIM), gg.tensor(2, DIM, HIDDEN), gg.tensor(2, HIDDEN, DIM)),
        in_relations=(parts, parts, parts),
        out_relations=(parts, parts, parts, parts),
        grads=False,
    )
