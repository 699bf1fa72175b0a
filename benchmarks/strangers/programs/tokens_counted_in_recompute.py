"""The layer counts each expert's tokens while it runs; under activation checkpointing it runs again in the backward pass, and counts them twice. torchtitan.

Source: https://github.com/pytorch/torchtitan/pull/1593
Rule: wrong-scale, wrong-relation
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard
from torch.utils.checkpoint import checkpoint

import graphguard as gg

TOKENS, DIM, INNER, EXPERTS, TOP_K, LAYERS, LOAD_BALANCE_COEFF = 6, 3, 4, 5, 2, 2, 0.01


class TokenChoiceTopKRouter(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)

    def forward(self, x):
        """The scores of the chosen experts, nothing for the others; how many tokens chose each."""
        scores = torch.sigmoid(self.gate(x))
        selected = torch.topk(scores, TOP_K, dim=1).indices
        chosen = F.one_hot(selected, EXPERTS).sum(1).to(scores.dtype)
        return scores * chosen, chosen.sum(0)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = TokenChoiceTopKRouter()
        self.w1 = nn.Parameter(torch.randn(EXPERTS, DIM, INNER))
        self.w2 = nn.Parameter(torch.randn(EXPERTS, INNER, DIM))
        self.expert_bias = torch.zeros(EXPERTS)
        self.tokens_per_expert = torch.zeros(EXPERTS)

    def forward(self, x):
        top_scores, num_tokens_per_expert = self.router(x)
        with torch.no_grad():
            self.tokens_per_expert = self.tokens_per_expert + num_tokens_per_expert  # fault
        h = F.silu(torch.einsum("td,edi->tei", x, self.w1))
        return torch.einsum("te,tei,eid->td", top_scores, h, self.w2)


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.moe = MoE()

    def forward(self, x):
        return x + self.moe(x)


class DeepSeekV3Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(TransformerBlock() for _ in range(LAYERS))
        self.activation_checkpoint_mode = "none"

    def forward(self, x):
        for layer in self.layers:
            x = self.run(layer, x)
        return x

    def run(self, layer, x):
        if self.activation_checkpoint_mode == "none":
            return layer(x)
        return checkpoint(layer, x, use_reentrant=False)  # near


class OptimizersContainer:
    """Before each step the experts' biases move towards an equal share of all tokens."""

    def __init__(self, model, dp_group=None):
        self.model = model
        self.dp_group = dp_group
        self.size = 1 if dp_group is None else dist.get_world_size(dp_group)

    @torch.no_grad()
    def update_expert_bias(self):
        tokens_per_expert_by_layer = torch.vstack([layer.moe.tokens_per_expert for layer in self.model.layers])
        # fixed, insert: if self.model.activation_checkpoint_mode == "full": tokens_per_expert_by_layer = tokens_per_expert_by_layer / 2
        if self.dp_group is not None:
            dist.all_reduce(tokens_per_expert_by_layer, group=self.dp_group)
        share = TOKENS * TOP_K / EXPERTS
        for tokens, layer in zip(tokens_per_expert_by_layer, self.model.layers, strict=True):
            layer.moe.expert_bias = layer.moe.expert_bias + LOAD_BALANCE_COEFF * (share - tokens)
        return torch.stack([layer.moe.expert_bias for layer in self.model.layers])

    def reduced_grads(self):
        grads = [parameter.grad for parameter in self.model.parameters()]
        for grad in grads if self.dp_group is not None else ():
            dist.all_reduce(grad, group=self.dp_group)
        return grads


def train_step(model, dp_group=None):
    optimizers = OptimizersContainer(model, dp_group)

    def step(x, target):
        ((model(x) - target).square().sum() / (TOKENS * DIM)).backward()
        return {"expert_bias": optimizers.update_expert_bias(), "grads": optimizers.reduced_grads()}

    return step


def parallelize(model):
    local = copy.deepcopy(model)
    local.activation_checkpoint_mode = "full"
    return local


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = DeepSeekV3Model()
    tokens = gg.tensor(TOKENS, DIM)
    return gg.Refinement(
        train_step(model),
        train_step(parallelize(model), mesh.get_group("dp")),
        (tokens, tokens),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
