"""Losses are summed over tokens and gradients divided by all tokens; the balancing loss is multiplied by the own rank's tokens alone. Megatron-LM.

Source: https://github.com/NVIDIA/Megatron-LM/pull/5047
Rule: wrong-scale
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

HIDDEN, EXPERTS, INNER, TOKENS, AUX_LOSS_COEFF = 4, 5, 2, 12, 0.03


class MoEAuxLossAutoScaler(torch.autograd.Function):
    """Hands the scores through; the balancing loss gets a gradient of one with theirs."""

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output.clone()

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        return grad_output, torch.ones_like(aux_loss)


class ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def switch_load_balancing_loss_func(probs, tokens_per_expert, total_num_tokens):
    """Of sums over all tokens: the fraction of tokens times the mean score, of each expert."""
    scale = EXPERTS * AUX_LOSS_COEFF / (total_num_tokens * total_num_tokens)
    return (probs * tokens_per_expert).sum() * scale


class TopKRouter(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, HIDDEN))
        self.tp_cp_group = None

    def reduced(self, x):
        return x if self.tp_cp_group is None else ReduceFromRegion.apply(x, self.tp_cp_group)

    def group_size(self):
        return 1 if self.tp_cp_group is None else dist.get_world_size(self.tp_cp_group)

    def apply_aux_loss(self, scores):
        """Called where the loss is a sum over tokens (``calculate_per_token_loss``)."""
        num_tokens = scores.shape[0]
        tokens_per_expert = self.reduced((scores * scores).sum(0).detach())
        aux_loss = switch_load_balancing_loss_func(self.reduced(scores.sum(0)), tokens_per_expert, num_tokens * self.group_size())
        scaled = aux_loss * num_tokens  # fixed: scaled = aux_loss * num_tokens * self.group_size()
        return MoEAuxLossAutoScaler.apply(scores, scaled)

    def forward(self, x):
        return self.apply_aux_loss(F.linear(x, self.weight).softmax(-1))


class GPTModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = TopKRouter()
        self.fc1 = nn.Parameter(torch.randn(EXPERTS, HIDDEN, INNER))
        self.fc2 = nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN))

    def forward(self, x):
        scores = self.router(x)
        h = torch.tanh(torch.einsum("th,ehi->tei", x, self.fc1))
        return x + torch.einsum("te,tei,eih->th", scores, h, self.fc2)


def loss_func(output, target):
    """The sum over the tokens, and their number."""
    losses = (output - target).square().mean(-1)
    return losses.sum(), torch.tensor(float(losses.numel()))


def finalize_model_grads(model, num_tokens, group=None):
    if group is not None:
        dist.all_reduce(num_tokens, group=group)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group)
    for parameter in model.parameters():
        parameter.grad.div_(num_tokens)
    return tuple(parameter.grad for parameter in model.parameters())


def train_step(model, group=None):
    def step(x, target):
        loss, num_tokens = loss_func(model(x), target)
        loss.backward()
        return finalize_model_grads(model, num_tokens, group)

    return step


@gg.check(mesh={"cp": 3})
def check(mesh):
    model, group = GPTModel(), mesh.get_group("cp")
    local = copy.deepcopy(model)
    local.router.tp_cp_group = group
    tokens = gg.tensor(TOKENS, HIDDEN)
    return gg.Refinement(
        train_step(model),
        train_step(local, group),
        (tokens, tokens),
        in_relations={"cp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
