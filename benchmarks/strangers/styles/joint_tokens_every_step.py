"""Ring attention of a diffusion transformer: image tokens are split, text tokens are joint, on every rank.

The mistake: the joint (text) keys, whole on every rank, are attended to in each of the sp = 2 steps of the ring: they count twice in the softmax.

Rule: wrong-scale, extra-reduction, wrong-relation
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

HIDDEN, HEADS, HEAD_DIM = 6, 2, 3


def block(q, k, v):
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * HEAD_DIM**-0.5
    lse = scores.logsumexp(-1)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v), lse.transpose(1, 2).unsqueeze(-1)


def merge(out, lse, block_out, block_lse):
    if out is None:
        return block_out, block_lse
    new_lse = torch.logaddexp(lse, block_lse)
    return torch.exp(lse - new_lse) * out + torch.exp(block_lse - new_lse) * block_out, new_lse


class RingComm:
    def __init__(self, group):
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def rotate(self, tensor):
        received = torch.empty_like(tensor)
        ops = [
            dist.P2POp(dist.isend, tensor.contiguous(), group=self.group, group_peer=(self.rank + 1) % self.world),
            dist.P2POp(dist.irecv, received, group=self.group, group_peer=(self.rank - 1) % self.world),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return received


def ring_attention(q, k, v, joint_k, joint_v, group):
    comm = RingComm(group)
    out, lse = None, None
    for step in range(comm.world):
        key, value = k, v
        if joint_k is not None:  # fixed: if step == 0:
            key, value = torch.cat([joint_k, k], dim=1), torch.cat([joint_v, v], dim=1)  # fault
        out, lse = merge(out, lse, *block(q, key, value))  # fault
        if step + 1 < comm.world:
            k, v = comm.rotate(k), comm.rotate(v)
    return out


class JointAttention(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.to_qkv = nn.Linear(HIDDEN, 3 * HEADS * HEAD_DIM, bias=False)
        self.add_kv = nn.Linear(HIDDEN, 2 * HEADS * HEAD_DIM, bias=False)
        self.to_out = nn.Linear(HEADS * HEAD_DIM, HIDDEN)

    def forward(self, image, text):
        q, k, v = (t.unflatten(-1, (HEADS, HEAD_DIM)) for t in self.to_qkv(image).chunk(3, dim=-1))
        joint_k, joint_v = (t.unflatten(-1, (HEADS, HEAD_DIM)) for t in self.add_kv(text).chunk(2, dim=-1))
        if self.group is None:
            out, _ = block(q, torch.cat([joint_k, k], dim=1), torch.cat([joint_v, v], dim=1))
        else:
            out = ring_attention(q, k, v, joint_k, joint_v, self.group)
        return self.to_out(out.flatten(2))


@gg.check(mesh={"sp": 2})
def check(mesh):
    return gg.Refinement(
        JointAttention(),
        JointAttention(mesh.get_group("sp")),
        (gg.tensor(2, 4, HIDDEN), gg.tensor(2, 3, HIDDEN)),
        in_relations=({"sp": Shard(1)}, {"sp": Replicate()}),
        out_relations={"sp": Shard(1)},
        grads=False,
    )
