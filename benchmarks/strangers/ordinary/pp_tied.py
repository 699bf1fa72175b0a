"""A pipeline of two stages with a tied embedding. Embedding on stage 0 and head on stage 1 share a weight; its gradient is not summed over the stages.

Rule: gradient-not-reduced
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import graphguard as gg

STEPS, TOKENS, VOCAB, DIM, LR = 2, 5, 9, 4, 0.1


def spec(embed, mid, ids, labels):
    for step in range(STEPS):
        embed, mid = embed.detach().requires_grad_(), mid.detach().requires_grad_()
        h = torch.tanh(F.embedding(ids[step], embed) @ mid)
        F.cross_entropy(h @ embed.t(), labels[step]).backward()
        embed, mid = embed - LR * embed.grad, mid - LR * mid.grad
    return embed.detach(), mid.detach()


def impl(embed, mid, ids, labels):
    rank = dist.get_rank()
    for step in range(STEPS):
        embed, mid = embed.detach().requires_grad_(), mid.detach().requires_grad_()
        if rank == 0:
            h = F.embedding(ids[step], embed)
            dist.send(h.detach(), dst=1)
            grad = torch.empty_like(h)
            dist.recv(grad, src=1)
            h.backward(grad)
        else:
            h = torch.empty(TOKENS, DIM)
            dist.recv(h, src=0)
            h.requires_grad_()
            logits = torch.tanh(h @ mid) @ embed.t()
            F.cross_entropy(logits, labels[step]).backward()
            dist.send(h.grad, dst=0)
            mid = mid - LR * mid.grad
        # fixed, insert: dist.all_reduce(embed.grad)
        embed = embed - LR * embed.grad  # fault
    return embed.detach(), (mid.detach() if rank == 1 else None)


@gg.check(mesh={"pp": 2})
def check(mesh):
    return gg.Refinement(
        spec, impl,
        inputs=(
            gg.tensor(VOCAB, DIM), gg.tensor(DIM, DIM),
            gg.tensor(STEPS, TOKENS, dtype=torch.int64, high=VOCAB), gg.tensor(STEPS, TOKENS, dtype=torch.int64, high=VOCAB),
        ),
        grads=False,
    )
