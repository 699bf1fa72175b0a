"""MLA decoding with absorbed weights, heads split over tp: queries are multiplied into the latent space.

The mistake: kv_b_proj holds each head's [nope | v] rows: the first half of all rows is not the nope part of the heads.

Rule: wrong-shard, wrong-relation
"""
import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

HIDDEN, HEADS, NOPE, ROPE, V, LORA, CONTEXT = 6, 4, 3, 2, 2, 5, 7
SCALE = (NOPE + ROPE) ** -0.5


class MLA(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * (NOPE + ROPE), bias=False)
        self.kv_b_proj = nn.Linear(LORA, HEADS * (NOPE + V), bias=False)
        self.o_proj = nn.Linear(HEADS * V, HIDDEN, bias=False)

    def forward(self, x, latent, k_pe):
        q = self.q_proj(x).unflatten(-1, (HEADS, NOPE + ROPE))
        q_nope, q_pe = q.split([NOPE, ROPE], dim=-1)
        kv = self.kv_b_proj(latent).unflatten(-1, (HEADS, NOPE + V))
        k_nope, v = kv.split([NOPE, V], dim=-1)
        scores = torch.einsum("thd,shd->ths", q_nope, k_nope) + torch.einsum("thd,sd->ths", q_pe, k_pe)
        out = torch.einsum("ths,shd->thd", (scores * SCALE).softmax(-1), v)
        return self.o_proj(out.flatten(1))


class AbsorbedMLA(nn.Module):
    def __init__(self, mla, group):
        super().__init__()
        self.group = group
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        self.heads = HEADS // world
        self.q_proj = nn.Parameter(mla.q_proj.weight.detach().chunk(world)[rank].clone())
        self.kv_b_proj = nn.Parameter(mla.kv_b_proj.weight.detach().chunk(world)[rank].clone())
        self.o_proj = nn.Parameter(mla.o_proj.weight.detach().chunk(world, dim=1)[rank].clone())

    def process_weights_after_loading(self):
        w_kc, w_vc = self.kv_b_proj.split([self.heads * NOPE, self.heads * V])  # fixed: kv_b = self.kv_b_proj.unflatten(0, (self.heads, NOPE + V))
        return w_kc.unflatten(0, (self.heads, NOPE)), w_vc.unflatten(0, (self.heads, V))  # fixed: return kv_b.split([NOPE, V], dim=1)

    def forward(self, x, latent, k_pe):
        w_kc, w_vc = self.process_weights_after_loading()
        q = (x @ self.q_proj.t()).unflatten(-1, (self.heads, NOPE + ROPE))
        q_nope, q_pe = q.split([NOPE, ROPE], dim=-1)
        q_latent = torch.einsum("thd,hdl->thl", q_nope, w_kc)
        scores = torch.einsum("thl,sl->ths", q_latent, latent) + torch.einsum("thd,sd->ths", q_pe, k_pe)
        attended = torch.einsum("ths,sl->thl", (scores * SCALE).softmax(-1), latent)
        out = torch.einsum("thl,hdl->thd", attended, w_vc)
        y = out.flatten(1) @ self.o_proj.t()
        dist.all_reduce(y, group=self.group)
        return y


@gg.check(mesh={"tp": 2})
def check(mesh):
    mla = MLA()
    return gg.Refinement(
        mla,
        AbsorbedMLA(mla, mesh.get_group("tp")),
        (gg.tensor(3, HIDDEN), gg.tensor(CONTEXT, LORA), gg.tensor(CONTEXT, ROPE)),
        out_relations="replicate",
        grads=False,
    )
