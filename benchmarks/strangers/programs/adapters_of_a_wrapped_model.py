"""A model is sharded, then adapters are put in: they are whole on every rank, and nothing averages their gradients, as the hooks of the sharding know its own parameters only. FastVideo's LoRA.

Source: https://github.com/hao-ai-lab/FastVideo/pull/1666
Rule: gradient-not-reduced, missing-reduction
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

SAMPLES, CHANNELS, HIDDEN, RANK, ACCUMULATION, ALPHA, LR = 12, 10, 14, 4, 3, 9.0, 0.1
LORA_TARGETS = ("to_q", "to_v")


class _Unshard(torch.autograd.Function):
    """All-gathers a parameter where it is used; its gradient is averaged and scattered."""

    @staticmethod
    def forward(ctx, shard, group):
        ctx.group = group
        full = torch.empty(dist.get_world_size(group) * shard.shape[0], *shard.shape[1:])
        dist.all_gather_into_tensor(full, shard.contiguous(), group=group)
        return full

    @staticmethod
    def backward(ctx, grad):
        size = dist.get_world_size(ctx.group)
        out = torch.empty(grad.shape[0] // size, *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out / size, None


def all_reduce_mean(tensor, group):
    dist.all_reduce(tensor, group=group)
    tensor /= dist.get_world_size(group)


class ReplicatedLinear(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.group = None

    def full_weight(self):
        return self.weight if self.group is None else _Unshard.apply(self.weight, self.group)

    def forward(self, x):
        return F.linear(x, self.full_weight())


class LoRALinear(nn.Module):
    """A base layer that is frozen, and what is learnt beside it."""

    def __init__(self, base_layer, lora_A, lora_B):
        super().__init__()
        self.base_layer = base_layer
        self.base_layer.weight.requires_grad_(False)
        self.lora_A, self.lora_B = nn.Parameter(lora_A.detach().clone()), nn.Parameter(lora_B.detach().clone())

    def forward(self, x):
        return self.base_layer(x) + F.linear(F.linear(x, self.lora_A), self.lora_B) * (ALPHA / RANK)


class WanTransformer(nn.Module):
    """Predicts the velocity of noisy latents; the last layer is trained as well."""

    def __init__(self, to_q, to_v, proj_out):
        super().__init__()
        self.to_q, self.to_v, self.proj_out = ReplicatedLinear(to_q), ReplicatedLinear(to_v), ReplicatedLinear(proj_out)

    def forward(self, latents, timestep):
        hidden = torch.tanh(self.to_q(latents)) * self.to_v(latents) + timestep[:, None]
        return self.proj_out(torch.tanh(hidden))


def fully_shard(model, group):
    """Each rank keeps its rows of the weights that are there."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    for module in model.modules():
        if isinstance(module, ReplicatedLinear):
            module.weight = nn.Parameter(module.weight.detach().chunk(size)[rank].clone())
            module.group = group


def convert_to_lora_layers(model, adapters, group):
    for name in LORA_TARGETS:
        layer = LoRALinear(getattr(model, name), *adapters[name])
        for parameter in (layer.lora_A, layer.lora_B):
            parameter.requires_grad_(True)
            # fixed, insert: if group is not None:
            # fixed, insert:     parameter.register_post_accumulate_grad_hook(lambda p: all_reduce_mean(p.grad, group))
        setattr(model, name, layer)


class TrainingPipeline:
    """Flow matching, with gradients of several batches in each step."""

    def __init__(self, model, group=None):
        self.transformer = model
        self.group = group
        self.optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=LR)

    def _transformer_forward_and_compute_loss(self, latents, noise, timestep):
        noisy = (1 - timestep[:, None]) * latents + timestep[:, None] * noise
        prediction = self.transformer(noisy, timestep)
        return F.mse_loss(prediction, noise - latents)

    def train_one_step(self, latents, noise, timestep):
        total_loss = torch.zeros(())
        for i in range(ACCUMULATION):
            loss = self._transformer_forward_and_compute_loss(latents[i], noise[i], timestep[i]) / ACCUMULATION
            loss.backward()
            total_loss += loss.detach()
        if self.group is not None:
            all_reduce_mean(total_loss, self.group)
        self.optimizer.step()
        return total_loss


def train(group=None):
    def step(latents, noise, timestep, to_q, to_v, proj_out, *factors):
        model = WanTransformer(to_q, to_v, proj_out)
        if group is not None:
            fully_shard(model, group)
        convert_to_lora_layers(model, {"to_q": factors[:2], "to_v": factors[2:]}, group)
        loss = TrainingPipeline(model, group).train_one_step(latents, noise, timestep)
        trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
        return {"loss": loss, "proj_out": trained.pop("proj_out.weight"), **trained}

    return step


@gg.check(mesh={"dp": 2})
def check(mesh):
    batch = (gg.tensor(ACCUMULATION, SAMPLES, CHANNELS), gg.tensor(ACCUMULATION, SAMPLES, CHANNELS))
    weights = (gg.tensor(HIDDEN, CHANNELS), gg.tensor(HIDDEN, CHANNELS), gg.tensor(CHANNELS, HIDDEN))
    factors = (gg.tensor(RANK, CHANNELS), gg.tensor(HIDDEN, RANK)) * len(LORA_TARGETS)
    samples, whole = {"dp": Shard(1)}, {"dp": Replicate()}
    return gg.Refinement(
        train(),
        train(mesh.get_group("dp")),
        (*batch, gg.tensor(ACCUMULATION, SAMPLES), *weights, *factors),
        in_relations=(*[samples] * 3, *[whole] * (len(weights) + len(factors))),
        out_relations=("replicate", {"dp": Shard(0)}, *["replicate"] * len(factors)),
        grads=False,
    )
