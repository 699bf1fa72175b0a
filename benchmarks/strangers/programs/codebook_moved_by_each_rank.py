"""A codebook is learnt by an optimizer of its own, inside the forward pass; the data-parallel wrapper averages the gradients of the autoencoder later, and knows nothing of this step, so that each rank's codebook goes its own way. vector-quantize-pytorch.

Source: https://github.com/lucidrains/vector-quantize-pytorch/issues/222
Rule: gradient-not-reduced, missing-reduction, wrong-relation
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, FRAMES, CHANNELS, DIM, CODES = 12, 5, 7, 6, 9


@dataclass(frozen=True)
class Config:
    group: Any = None
    commitment_weight: float = 0.25
    codebook_lr: float = 0.7
    lr: float = 0.05
    steps: int = 2

    @property
    def use_ddp(self):
        return self.group is not None


def maybe_all_reduce_mean(tensor, config):
    if config.use_ddp:
        dist.all_reduce(tensor, group=config.group)
        tensor.div_(dist.get_world_size(config.group))
    return tensor


def average_gradients(parameters, config):
    for parameter in parameters:
        if parameter.grad is not None:
            maybe_all_reduce_mean(parameter.grad, config)


class EuclideanCodebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(CODES, DIM))

    def forward(self, x):
        distances = x.square().sum(-1, keepdim=True) - 2 * x @ self.embed.t() + self.embed.square().sum(-1)
        embed_ind = distances.argmin(dim=-1)
        return F.embedding(embed_ind, self.embed), embed_ind


class VectorQuantize(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self._codebook = EuclideanCodebook()
        self.in_place_codebook_optimizer = torch.optim.SGD(self._codebook.parameters(), lr=config.codebook_lr)

    def learn_codebook(self, x):
        """The codes go to the vectors that have chosen them."""
        with torch.enable_grad():
            quantize, _ = self._codebook(x.detach())
            loss = F.mse_loss(quantize, x.detach())
            loss.backward()
        # fixed, insert: average_gradients(self._codebook.parameters(), self.config)
        self.in_place_codebook_optimizer.step()  # fault
        self.in_place_codebook_optimizer.zero_grad()

    def forward(self, x):
        if self.training:
            self.learn_codebook(x)
        quantize, embed_ind = self._codebook(x)
        quantize = quantize.detach()
        commit_loss = F.mse_loss(quantize, x) * self.config.commitment_weight
        return x + (quantize - x).detach(), embed_ind, commit_loss


class SimpleVQAutoEncoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.encoder = nn.Linear(CHANNELS, DIM)
        self.vector_quantize = VectorQuantize(config)
        self.decoder = nn.Linear(DIM, CHANNELS)

    def forward(self, x):
        quantize, _, commit_loss = self.vector_quantize(torch.tanh(self.encoder(x)))
        return self.decoder(quantize), commit_loss

    def trained(self):
        """What the outer optimizer and the wrapper know."""
        return [*self.encoder.parameters(), *self.decoder.parameters()]


class Trainer:
    def __init__(self, config, state):
        self.config = config
        self.model = SimpleVQAutoEncoder(config)
        self.model.load_state_dict(copy.deepcopy(state))
        self.optimizer = torch.optim.SGD(self.model.trained(), lr=config.lr)

    def training_step(self, x):
        self.optimizer.zero_grad()
        out, commit_loss = self.model(x)
        rec_loss = (out - x).abs().mean()
        (rec_loss + commit_loss).backward()
        average_gradients(self.model.trained(), self.config)
        self.optimizer.step()
        return maybe_all_reduce_mean(rec_loss.detach().clone(), self.config)

    def train(self, x):
        self.model.train()
        losses = [self.training_step(x) for _ in range(self.config.steps)]
        state = self.model.state_dict()
        return {
            "rec_loss": torch.stack(losses),
            "codebook": state["vector_quantize._codebook.embed"],
            "encoder": state["encoder.weight"],
            "decoder": state["decoder.weight"],
        }


@gg.check(mesh={"dp": 4})
def check(mesh):
    state = SimpleVQAutoEncoder(Config()).state_dict()
    return gg.Refinement(
        Trainer(Config(), state).train,
        Trainer(Config(mesh.get_group("dp")), state).train,
        (gg.tensor(SAMPLES, FRAMES, CHANNELS),),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
