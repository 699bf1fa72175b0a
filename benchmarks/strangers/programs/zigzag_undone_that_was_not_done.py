"""A flag cuts the packed tokens into plain parts instead of chunks from both ends; the layer that gathers the sequence puts the chunks of both ends together still. slime.

Source: https://github.com/THUDM/slime/issues/1871
Rule: wrong-relation, wrong-shard
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, DIM = 4, 3
# two documents in one packed sequence
CU_SEQLENS = (0, 8, 12)


@dataclass(frozen=True)
class Args:
    context_parallel_size: int
    allgather_cp: bool


def documents(cu_seqlens):
    return list(pairwise(cu_seqlens))


class HFAttention(nn.Module):
    """The library's layer: it wants whole documents in their order."""

    def __init__(self):
        super().__init__()
        self.qkv_proj = nn.Linear(HIDDEN, 3 * DIM, bias=False)
        self.o_proj = nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, hidden_states, cu_seqlens):
        q, k, v = self.qkv_proj(hidden_states).chunk(3, dim=-1)
        outputs = []
        for start, end in documents(cu_seqlens):
            scores = q[start:end] @ k[start:end].t() * DIM**-0.5
            future = torch.ones(end - start, end - start, dtype=torch.bool).triu(1)
            outputs.append(scores.masked_fill(future, float("-inf")).softmax(-1) @ v[start:end])
        return self.o_proj(torch.cat(outputs))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.attention = HFAttention()

    def forward(self, tokens):
        hidden_states = torch.tanh(self.embed(tokens))
        return hidden_states + self.attention(hidden_states, CU_SEQLENS)


def slice_with_cp(document, cp_rank, cp_size):
    """Two chunks of a document, as far from its start as from its end."""
    chunks = document.chunk(2 * cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def get_batch(tokens, args, cp_rank):
    """The tokens of one rank, in the layout that the arguments say."""
    if args.allgather_cp:
        return tokens.chunk(args.context_parallel_size)[cp_rank]
    parts = [tokens[start:end] for start, end in documents(CU_SEQLENS)]
    return torch.cat([slice_with_cp(part, cp_rank, args.context_parallel_size) for part in parts])


class HuggingfaceAttention(nn.Module):
    """Gathers the sequence for the library's layer, and keeps the own part of its result."""

    def __init__(self, args, cp_group):
        super().__init__()
        self.args = args
        self.cp_group = cp_group
        self.cp_rank = dist.get_rank(cp_group)
        self.hf_attention = HFAttention()

    def all_gather(self, hidden_states):
        parts = [torch.empty_like(hidden_states) for _ in range(self.args.context_parallel_size)]
        dist.all_gather(parts, hidden_states.contiguous(), group=self.cp_group)
        return parts

    def whole_sequence(self, parts):
        """From all ranks' parts, document by document."""
        cp_size = self.args.context_parallel_size
        whole = []
        for start, end in documents([length // cp_size for length in CU_SEQLENS]):
            halves = [part[start:end].chunk(2) for part in parts]
            whole += [first for first, _ in halves]
            whole += [second for _, second in reversed(halves)]
        return torch.cat(whole)

    def own_part(self, output):
        parts = [output[start:end] for start, end in documents(CU_SEQLENS)]
        return torch.cat([slice_with_cp(part, self.cp_rank, self.args.context_parallel_size) for part in parts])

    def forward(self, hidden_states):
        parts = self.all_gather(hidden_states)
        whole = self.whole_sequence(parts)  # fixed: whole = torch.cat(parts) if self.args.allgather_cp else self.whole_sequence(parts)
        output = self.hf_attention(whole, CU_SEQLENS)  # near
        return self.own_part(output)  # fixed: return output.chunk(len(parts))[self.cp_rank] if self.args.allgather_cp else self.own_part(output)


class ParallelModel(nn.Module):
    def __init__(self, args, cp_group):
        super().__init__()
        self.args = args
        self.cp_rank = dist.get_rank(cp_group)
        self.embed = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.attention = HuggingfaceAttention(args, cp_group)

    @torch.no_grad()
    def forward(self, tokens):
        hidden_states = torch.tanh(self.embed(get_batch(tokens, self.args, self.cp_rank)))
        return hidden_states + self.attention(hidden_states)


def load_weights(state, model, mesh):
    with torch.no_grad():
        model.embed.weight.copy_(state["embed.weight"])
        model.attention.hf_attention.qkv_proj.weight.copy_(state["attention.qkv_proj.weight"])
        model.attention.hf_attention.o_proj.weight.copy_(state["attention.o_proj.weight"])


@gg.check(mesh={"cp": 2})
def check(mesh):
    impl = ParallelModel(Args(context_parallel_size=2, allgather_cp=True), mesh.get_group("cp"))
    return gg.Refinement(
        Model(),
        impl,
        (gg.tensor(CU_SEQLENS[-1], HIDDEN),),
        in_relations="replicate",
        out_relations={"cp": Shard(0)},
        load=load_weights,
        grads=False,
    )
