"""The cross-correlation is averaged over the ranks by a collective that autograd does not see: the loss is right, all gradients are divided by the number of ranks. lightly's BarlowTwinsLoss.

Source: https://github.com/lightly-ai/lightly/issues/1977
Rule: gradient-not-reduced, wrong-scale
"""

import copy

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, FEATURES, WIDTH, EMBEDDING = 12, 7, 8, 5
LAMBDA, GAMMA, VARIANCE_WEIGHT, LR = 0.02, 1.0, 0.6, 0.1


def normalize(z, ghost_batches=1):
    """Batch norm without weights; each of the ghost batches by itself."""
    z = z.unflatten(0, (ghost_batches, -1))
    mean = z.mean(1, keepdim=True)
    var = (z - mean).pow(2).mean(1, keepdim=True)
    return ((z - mean) * torch.rsqrt(var + 1e-5)).flatten(0, 1)


class VarianceLoss(nn.Module):
    """Keeps each dimension's second moment up."""

    def __init__(self, gather_distributed=False, group=None):
        super().__init__()
        self.gather_distributed = gather_distributed
        self.group = group

    def forward(self, z):
        moment = z.pow(2).mean(0)
        if self.gather_distributed:
            world_size = dist.get_world_size(self.group)
            if world_size > 1:
                moment = moment / world_size
                moment = dist_nn.all_reduce(moment, group=self.group)  # near
        return F.relu(GAMMA - torch.sqrt(moment + 1e-4)).mean()


class BarlowTwinsLoss(nn.Module):
    def __init__(self, lambda_param=LAMBDA, gather_distributed=False, group=None, ghost_batches=1):
        super().__init__()
        self.lambda_param = lambda_param
        self.gather_distributed = gather_distributed
        self.group = group
        self.ghost_batches = ghost_batches

    def forward(self, z_a, z_b):
        z_a_norm, z_b_norm = normalize(z_a, self.ghost_batches), normalize(z_b, self.ghost_batches)
        c = z_a_norm.T @ z_b_norm / z_a.shape[0]
        if self.gather_distributed:
            world_size = dist.get_world_size(self.group)
            if world_size > 1:
                c = c / world_size
                dist.all_reduce(c, group=self.group)  # fixed: c = dist_nn.all_reduce(c, group=self.group)
        invariance_loss = (torch.diagonal(c) - 1).pow(2).sum()
        redundancy_reduction_loss = (c - torch.diag(torch.diagonal(c))).pow(2).sum()
        return invariance_loss + self.lambda_param * redundancy_reduction_loss


class BarlowTwinsProjectionHead(nn.Module):
    def __init__(self, input_dim, hidden_dim, output_dim):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(input_dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, output_dim, bias=False)
        )

    def forward(self, x):
        return self.layers(x)


class BarlowTwins(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())
        self.projection_head = BarlowTwinsProjectionHead(WIDTH, 2 * WIDTH, EMBEDDING)

    def forward(self, x):
        return self.projection_head(self.backbone(x))


class DistributedDataParallel(nn.Module):
    """Averages the gradients when the backward pass is over."""

    def __init__(self, module, process_group):
        super().__init__()
        self.module = module
        self.process_group = process_group

    def forward(self, x):
        return self.module(x)

    def synchronize(self):
        size = dist.get_world_size(self.process_group)
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad, group=self.process_group)
            parameter.grad /= size  # near


class Trainer:
    def __init__(self, model, group=None, ghost_batches=1):
        self.model = model
        self.group = group
        gather = group is not None
        self.wrapped = DistributedDataParallel(model, group) if gather else model
        self.criterion = BarlowTwinsLoss(gather_distributed=gather, group=group, ghost_batches=ghost_batches)
        self.variance = VarianceLoss(gather_distributed=gather, group=group)

    def training_step(self, x0, x1):
        z0, z1 = self.wrapped(x0), self.wrapped(x1)
        invariance = self.criterion(z0, z1)
        variance = self.variance(z0) + self.variance(z1)
        loss = invariance + VARIANCE_WEIGHT * variance
        loss.backward()
        if self.group is not None:
            self.wrapped.synchronize()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter -= LR * parameter.grad
        return {
            "barlow_twins": invariance.detach(),
            "variance": variance.detach(),
            **{name: parameter.detach() for name, parameter in self.model.named_parameters()},
        }


@gg.check(mesh={"ddp": 3})
def check(mesh):
    model = BarlowTwins()
    one = Trainer(model, ghost_batches=mesh.size())
    all_ranks = Trainer(copy.deepcopy(model), mesh.get_group("ddp"))
    view = gg.tensor(SAMPLES, FEATURES)
    return gg.Refinement(
        one.training_step,
        all_ranks.training_step,
        (view, view),
        in_relations={"ddp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
