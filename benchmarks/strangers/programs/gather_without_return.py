"""The function that gathers features does so and forgets to return them: each rank has its own pairs only, and a contrastive loss without the negatives of the others. stable-pretraining.

Source: https://github.com/galilai-group/stable-pretraining/pull/409
Rule: dead-collective, missing-reduction, wrong-relation, nonlinear-on-partial
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

PAIRS, PIXELS, WORDS, WIDTH, EMBEDDING = 6, 7, 5, 8, 4


@dataclass(frozen=True)
class World:
    """Of a data-parallel job; without a group, of a single process."""

    group: Any = None

    @property
    def size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    def is_dist_avail_and_initialized(self):
        return self.group is not None and dist.is_initialized()


def all_gather(tensor, world):
    """The tensors of all ranks, with gradients; a tuple of one if there is one process."""
    if world.is_dist_avail_and_initialized():
        torch.distributed.nn.functional.all_gather(tensor, group=world.group)  # fixed: return torch.distributed.nn.functional.all_gather(tensor, group=world.group)
    return (tensor,)  # fault


def all_reduce_mean(tensor, world):
    if not world.is_dist_avail_and_initialized():
        return tensor
    tensor = tensor.clone()
    dist.all_reduce(tensor, group=world.group)
    return tensor / world.size


class InfoNCELoss(nn.Module):
    """Each anchor is to find the candidate of its number."""

    def __init__(self, world):
        super().__init__()
        self.world = world

    def _compute(self, anchors, candidates, logit_scale):
        anchors = torch.cat(all_gather(F.normalize(anchors, dim=-1), self.world))
        candidates = torch.cat(all_gather(F.normalize(candidates, dim=-1), self.world))
        logits = anchors @ candidates.t() * logit_scale
        targets = torch.arange(logits.shape[0])
        return F.cross_entropy(logits, targets)  # near


class CLIPLoss(InfoNCELoss):
    """Images among texts, and texts among images."""

    def __init__(self, world, init_temperature=0.5):
        super().__init__(world)
        self.log_scale = nn.Parameter(torch.tensor(1.0 / init_temperature).log())

    def forward(self, feats_i, feats_j):
        scale = self.log_scale.exp()
        loss_i = self._compute(feats_i, feats_j, scale)
        loss_j = self._compute(feats_j, feats_i, scale)
        return 0.5 * (loss_i + loss_j)


class Encoder(nn.Module):
    def __init__(self, width_in):
        super().__init__()
        self.backbone = nn.Linear(width_in, WIDTH)
        self.projector = nn.Linear(WIDTH, EMBEDDING, bias=False)

    def forward(self, x):
        return self.projector(torch.tanh(self.backbone(x)))


class CLIPModule(nn.Module):
    """What a trainer is given: the encoders, and a forward pass to the loss."""

    def __init__(self, world):
        super().__init__()
        self.vision_model = Encoder(PIXELS)
        self.text_model = Encoder(WORDS)
        self.clip_loss = CLIPLoss(world)

    def forward(self, batch):
        out = {"image_embeds": self.vision_model(batch["image"]), "text_embeds": self.text_model(batch["text"])}
        out["loss"] = self.clip_loss(out["image_embeds"], out["text_embeds"])
        return out


class Trainer:
    """Gradients are averaged over the ranks, as DistributedDataParallel does."""

    def __init__(self, module, world, lr=0.5):
        self.module, self.world = module, world
        self.optimizer = torch.optim.SGD(module.parameters(), lr=lr)

    def training_step(self, batch):
        self.optimizer.zero_grad()
        out = self.module(batch)
        out["loss"].backward()
        for parameter in self.module.parameters():
            parameter.grad = all_reduce_mean(parameter.grad, self.world)
        self.optimizer.step()
        return all_reduce_mean(out["loss"].detach(), self.world)


def fit(module, world):
    def step(image, text):
        loss = Trainer(module, world).training_step({"image": image, "text": text})
        named = {name.replace(".", "_"): parameter.detach() for name, parameter in module.named_parameters()}
        return {"train/loss": loss, **named}

    return step


@gg.check(mesh={"ddp": 3})
def check(mesh):
    module = CLIPModule(World())
    parallel = copy.deepcopy(module)
    world = World(mesh.get_group("ddp"))
    parallel.clip_loss.world = world
    return gg.Refinement(
        fit(module, World()),
        fit(parallel, world),
        (gg.tensor(PAIRS, PIXELS), gg.tensor(PAIRS, WORDS)),
        in_relations={"ddp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
