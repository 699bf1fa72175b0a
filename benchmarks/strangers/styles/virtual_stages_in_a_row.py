"""Interleaved pipeline: each rank has two chunks, and activations go round the ranks twice.

The mistake: rank 1's first chunk holds layer 2, where layer 1 is needed: chunks are dealt in a row, the schedule goes round the ranks.

Rule: wrong-relation, wrong-shard
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

DIM, HIDDEN, LAYERS, CHUNKS, BATCH = 4, 6, 4, 2, 3


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def layers_of_chunk(chunk, rank, world):
    each = LAYERS // (world * CHUNKS)
    stage = rank * CHUNKS + chunk  # fixed: stage = chunk * world + rank
    return range(stage * each, (stage + 1) * each)


class InterleavedPipeline(nn.Module):
    def __init__(self, model, group):
        super().__init__()
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.chunks = nn.ModuleList(
            nn.ModuleList(copy.deepcopy(model.layers[i]) for i in layers_of_chunk(chunk, self.rank, self.world)) for chunk in range(CHUNKS)  # fault
        )

    def run_chunk(self, chunk, x):
        for layer in self.chunks[chunk]:
            x = layer(x)
        return x

    def receive(self, source):
        buffer = torch.empty(BATCH, DIM)
        dist.recv(buffer, group=self.group, group_src=source)
        return buffer

    def forward(self, x):
        last = CHUNKS * self.world - 1
        for chunk in range(CHUNKS):
            stage = chunk * self.world + self.rank
            h = x if stage == 0 else self.receive((self.rank - 1) % self.world)
            h = self.run_chunk(chunk, h)
            if stage < last:
                dist.send(h.contiguous(), group=self.group, group_dst=(self.rank + 1) % self.world)
        out = h.contiguous() if self.rank == self.world - 1 else torch.empty(BATCH, DIM)
        dist.broadcast(out, group=self.group, group_src=self.world - 1)
        return out


@gg.check(mesh={"pp": 2})
def check(mesh):
    model = Transformer()
    return gg.Refinement(
        model, InterleavedPipeline(model, mesh.get_group("pp")), (gg.tensor(BATCH, DIM),), out_relations="replicate", grads=False
    )
