"""A checkpoint holds the experts' weights in more parts than there are tensor-parallel ranks; each rank reads the part of its own number, and the rest of its weights stays as it was made. SGLang's Grok-2.

Source: https://github.com/sgl-project/sglang/pull/36438
Rule: wrong-shard, wrong-relation
"""

import fnmatch
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INTERMEDIATE, NUM_EXPERTS, TOP_K, EPS = 5, 8, 18, 4, 2, 1e-5
PRESHARDED = 6
SHARD_DIMS = {"w1": 0, "w3": 0, "w2": 1}


@dataclass(frozen=True)
class TensorParallel:
    group: Any = None

    @property
    def size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def rank(self):
        return 0 if self.group is None else dist.get_rank(self.group)


def expert_name(expert, weight):
    return f"model.layers.0.block_sparse_moe.experts.{expert}.{weight}.weight"


def save_presharded(norm, gate, w1, w2, w3):
    """The files of the checkpoint: the experts' parts, and what every rank needs whole."""
    files = {
        "pytorch_model-00000-TP-common.safetensors": {
            "model.layers.0.pre_moe_norm.weight": norm,
            "model.layers.0.block_sparse_moe.gate.weight": gate,
        }
    }
    experts = {"w1": w1, "w2": w2, "w3": w3}
    for shard in range(PRESHARDED):
        files[f"pytorch_model-00001-TP-{shard:03d}.safetensors"] = {
            expert_name(expert, name): weight[expert].chunk(PRESHARDED, SHARD_DIMS[name])[shard]
            for name, weight in experts.items()
            for expert in range(NUM_EXPERTS)
        }
    return files


class FusedMoE(nn.Module):
    """The experts' hidden units are divided among the ranks."""

    def __init__(self, tp):
        super().__init__()
        self.tp = tp
        self.intermediate_size_per_partition = INTERMEDIATE // tp.size
        self.w1 = torch.zeros(NUM_EXPERTS, self.intermediate_size_per_partition, HIDDEN)
        self.w3 = torch.zeros(NUM_EXPERTS, self.intermediate_size_per_partition, HIDDEN)
        self.w2 = torch.zeros(NUM_EXPERTS, HIDDEN, self.intermediate_size_per_partition)

    def weight_loader(self, name, expert_id, loaded_weight):
        """Of a presharded checkpoint: what is loaded is the rank's already, up to padding."""
        dim = SHARD_DIMS[name]
        expert_data = getattr(self, name)[expert_id]
        expert_data = expert_data.narrow(dim, 0, loaded_weight.shape[dim])
        expert_data.copy_(loaded_weight)  # near

    def forward(self, hidden_states, topk_weights):
        gate = torch.einsum("th,efh->tef", hidden_states, self.w1)
        up = torch.einsum("th,efh->tef", hidden_states, self.w3)
        out = torch.einsum("tef,ehf->teh", F.gelu(gate) * up, self.w2)
        return (out * topk_weights[..., None]).sum(1)


class Grok1MoE(nn.Module):
    def __init__(self, tp):
        super().__init__()
        self.tp = tp
        self.gate = torch.zeros(NUM_EXPERTS, HIDDEN)
        self.experts = FusedMoE(tp)

    def forward(self, hidden_states):
        router_probs = F.linear(hidden_states, self.gate).softmax(-1)
        threshold = router_probs.topk(TOP_K, dim=-1).values[:, -1:]
        topk_weights = torch.where(router_probs >= threshold, router_probs, 0.0)
        out = self.experts(hidden_states, topk_weights)
        if self.tp.size > 1:
            out = out.contiguous()
            dist.all_reduce(out, group=self.tp.group)
        return out


class Grok1ForCausalLM(nn.Module):
    def __init__(self, tp):
        super().__init__()
        self.pre_moe_norm = torch.zeros(HIDDEN)
        self.block_sparse_moe = Grok1MoE(tp)

    def load_weights(self, weights):
        hit_names = set()
        for name, loaded_weight in weights:
            hit_names.add(name)
            if ".experts." in name:
                *_, expert_id, weight_name, _ = name.split(".")
                self.block_sparse_moe.experts.weight_loader(weight_name, int(expert_id), loaded_weight)
            elif name.endswith("gate.weight"):
                self.block_sparse_moe.gate.copy_(loaded_weight)
            else:
                self.pre_moe_norm.copy_(loaded_weight)
        all_names = {expert_name(expert, name) for expert in range(NUM_EXPERTS) for name in SHARD_DIMS}
        if missing := all_names - hit_names:
            raise ValueError(f"#missing_exclude_scales: {len(missing)}")

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        normed = hidden_states * torch.rsqrt(variance + EPS) * self.pre_moe_norm
        return hidden_states + self.block_sparse_moe(normed)


class PreshardedModelLoader:
    def __init__(self, tp):
        self.tp = tp

    def _prepare_presharded_weights(self, files):
        own = [self.tp.rank]  # fixed: own = range(self.tp.rank * PRESHARDED // self.tp.size, (self.tp.rank + 1) * PRESHARDED // self.tp.size)
        allow_patterns = [f"*-TP-{shard:03d}.safetensors" for shard in own]
        allow_patterns.append("*-TP-common.safetensors")
        return [name for pattern in allow_patterns for name in sorted(files) if fnmatch.fnmatch(name, pattern)]

    def _get_weights_iterator(self, files):
        """A tensor that is in several files is put together."""
        parts = {}
        for file in self._prepare_presharded_weights(files):
            for name, tensor in files[file].items():
                parts.setdefault(name, []).append(tensor)
        for name, tensors in parts.items():
            if len(tensors) == 1:
                yield name, tensors[0]
            else:
                yield name, torch.cat(tensors, dim=SHARD_DIMS[name.split(".")[-2]])

    def load_model(self, files):
        model = Grok1ForCausalLM(self.tp)
        model.load_weights(self._get_weights_iterator(files))
        return model


def reference(hidden_states, norm, gate, w1, w2, w3):
    """The specification: no files."""
    model = Grok1ForCausalLM(TensorParallel())
    model.pre_moe_norm, model.block_sparse_moe.gate = norm, gate
    experts = model.block_sparse_moe.experts
    experts.w1, experts.w2, experts.w3 = w1, w2, w3
    return model(hidden_states)


def serve(tp):
    @torch.no_grad()
    def run(hidden_states, *weights):
        return PreshardedModelLoader(tp).load_model(save_presharded(*weights))(hidden_states)

    return run


@gg.check(mesh={"tp": 3})
def check(mesh):
    up, down = gg.tensor(NUM_EXPERTS, INTERMEDIATE, HIDDEN), gg.tensor(NUM_EXPERTS, HIDDEN, INTERMEDIATE)
    inputs = (gg.tensor(TOKENS, HIDDEN), gg.tensor(HIDDEN), gg.tensor(NUM_EXPERTS, HIDDEN), up, down, up)
    return gg.Refinement(reference, serve(TensorParallel(mesh.get_group("tp"))), inputs, out_relations="replicate", grads=False)
