"""Encoder and decoder with their sequences split over sp; the decoder attends to all of the encoder's states.

The mistake: the cross attention's keys are those of the own part of the encoder's sequence: all of it is needed on every rank.

Rule: wrong-shard, wrong-relation, missing-reduction
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, HEADS, HEAD_DIM = 6, 2, 3


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.v = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x, memory):
        q = self.q(x).unflatten(-1, (HEADS, HEAD_DIM))
        k, v = (p(memory).unflatten(-1, (HEADS, HEAD_DIM)) for p in (self.k, self.v))
        probs = (torch.einsum("bqhd,bkhd->bhqk", q, k) * HEAD_DIM**-0.5).softmax(-1)
        return self.out(torch.einsum("bhqk,bkhd->bqhd", probs, v).flatten(2))


class Seq2Seq(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.encoder_norm = nn.LayerNorm(HIDDEN)
        self.encoder_attn = Attention()
        self.decoder_norm = nn.LayerNorm(HIDDEN)
        self.cross_attn = Attention()

    def gather(self, x):
        if self.group is None:
            return x
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, dim=1)

    def encode(self, source):
        normed = self.encoder_norm(source)
        return source + self.encoder_attn(normed, self.gather(normed))

    def decode(self, target, encoded):
        memory = encoded  # fixed: memory = self.gather(encoded)
        return target + self.cross_attn(self.decoder_norm(target), memory)  # fault

    def forward(self, source, target):
        return self.decode(target, self.encode(source))


@gg.check(mesh={"sp": 2})
def check(mesh):
    return gg.Refinement(
        Seq2Seq(),
        Seq2Seq(mesh.get_group("sp")),
        (gg.tensor(3, 8, HIDDEN), gg.tensor(3, 4, HIDDEN)),
        in_relations={"sp": Shard(1)},
        out_relations={"sp": Shard(1)},
        grads=False,
    )
