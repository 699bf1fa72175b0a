"""Gradients are accumulated over micro-batches and reduced with one of them; the test of the batch's number makes that the first, so that what the others add stays each rank's own. FunASR's trainer with DDP.

Source: https://github.com/modelscope/FunASR/pull/3472
Rule: gradient-not-reduced, missing-reduction
"""

import copy
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

BATCHES, UTTERANCES, FRAMES, FBANK, HIDDEN, MEMORY, VOCAB = 4, 6, 3, 5, 7, 2, 11


@dataclass
class TrainConf:
    accum_grad: int = 2
    lr: float = 0.2
    warmup_steps: int = 3
    momentum: float = 0.5
    length_weight: float = 0.3


class Encoder(nn.Module):
    """Each frame, beside a memory of them all."""

    def __init__(self):
        super().__init__()
        self.linear_in = nn.Linear(FBANK, HIDDEN)
        self.memory = nn.Linear(HIDDEN, MEMORY, bias=False)

    def forward(self, speech):
        frames = torch.tanh(self.linear_in(speech))
        memory = self.memory(frames.mean(1, keepdim=True))
        return torch.cat((frames, memory.expand(-1, frames.shape[1], -1)), dim=-1)


class Paraformer(nn.Module):
    """Says one token for each utterance, and how much there is to be said."""

    def __init__(self, conf):
        super().__init__()
        self.conf = conf
        self.encoder = Encoder()
        self.decoder = nn.Linear(HIDDEN + MEMORY, VOCAB)
        self.predictor = nn.Linear(HIDDEN + MEMORY, 1)

    def forward(self, speech, text, weight):
        encoded = self.encoder(speech)
        loss_att = F.cross_entropy(self.decoder(encoded.mean(1)), text)
        alphas = self.predictor(encoded).squeeze(-1).sum(1)
        loss_pre = (alphas - weight).square().mean()
        return loss_att + self.conf.length_weight * loss_pre


class DistributedDataParallel(nn.Module):
    """Averages a gradient as soon as it has come, unless it is told to wait."""

    def __init__(self, module, process_group):
        super().__init__()
        self.module = module
        self.process_group = process_group
        self.require_backward_grad_sync = True
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._reduce)

    def _reduce(self, parameter):
        if self.require_backward_grad_sync:
            dist.all_reduce(parameter.grad, group=self.process_group)  # near
            parameter.grad.div_(dist.get_world_size(self.process_group))

    @contextmanager
    def no_sync(self):
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def forward(self, *args):
        return self.module(*args)


class MomentumSGD:
    def __init__(self, parameters, conf):
        self.parameters = list(parameters)
        self.conf = conf
        self.buffers = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self, lr):
        for parameter, buffer in zip(self.parameters, self.buffers, strict=True):
            buffer.mul_(self.conf.momentum).add_(parameter.grad)
            parameter.sub_(lr * buffer)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


class WarmupLR:
    def __init__(self, conf):
        self.conf = conf
        self.last_step = 0

    def step(self):
        self.last_step += 1

    def get_lr(self):
        return self.conf.lr * min(1.0, (self.last_step + 1) / self.conf.warmup_steps)


class Trainer:
    def __init__(self, conf, process_group=None):
        self.accum_grad = conf.accum_grad
        self.use_ddp = process_group is not None
        self.process_group = process_group

    def _loss_of_all(self, loss):
        """For the log."""
        loss = loss.detach().clone()
        if self.use_ddp:
            dist.all_reduce(loss, group=self.process_group)
            loss = loss / dist.get_world_size(self.process_group)
        return loss

    def train_epoch(self, model, optim, scheduler, dataloader_train):
        losses = []
        optim.zero_grad()
        for batch_idx, batch in enumerate(dataloader_train):
            my_context = nullcontext
            if self.use_ddp:
                my_context = model.no_sync if batch_idx % self.accum_grad != 0 else my_context  # fixed: my_context = model.no_sync if (batch_idx + 1) % self.accum_grad != 0 else my_context
            with my_context():
                loss = model(*batch)
                losses.append(self._loss_of_all(loss))
                loss = loss / self.accum_grad
                loss.backward()
            if (batch_idx + 1) % self.accum_grad == 0:
                optim.step(scheduler.get_lr())
                scheduler.step()
                optim.zero_grad()
        return torch.stack(losses)


def train(model, conf, process_group=None):
    wrapped = model if process_group is None else DistributedDataParallel(model, process_group)
    trainer = Trainer(conf, process_group)

    def run(speech, text, weight):
        optim = MomentumSGD(model.parameters(), conf)
        batches = zip(speech, text, weight, strict=True)
        losses = trainer.train_epoch(wrapped, optim, WarmupLR(conf), batches)
        return {"losses": losses} | {
            name.replace(".", "_"): parameter.detach().clone() for name, parameter in model.named_parameters()
        }

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    conf = TrainConf()
    model = Paraformer(conf)
    batches = (
        gg.tensor(BATCHES, UTTERANCES, FRAMES, FBANK),
        gg.tensor(BATCHES, UTTERANCES, dtype=torch.int64, low=0, high=VOCAB),
        gg.tensor(BATCHES, UTTERANCES),
    )
    return gg.Refinement(
        train(model, conf),
        train(copy.deepcopy(model), conf, mesh.get_group("dp")),
        batches,
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
