"""Ranks take every so many of the same permutation of the data; seeded by the time multiplied by the rank, each has a permutation of its own, so that samples come twice and others not at all. LongLive.

Source: https://github.com/NVlabs/LongLive/issues/71
Rule: wrong-shard, wrong-relation
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler

import graphguard as gg

PROMPTS, PROMPT_DIM, LATENT_DIM, HIDDEN, EPOCHS = 18, 5, 3, 8, 2


@dataclass
class Config:
    """``launch_time`` is when the job was started, in seconds, the same for all of its processes."""

    seed: int = 1234
    launch_time: int = 1784012345
    global_batch_size: int = 6
    lr: float = 0.4
    beta: float = 0.8


class TextLatentDataset(Dataset):
    """Prompt embeddings and the latents of a teacher."""

    def __init__(self, prompts, latents):
        self.prompts = prompts
        self.latents = latents

    def __len__(self):
        return len(self.prompts)

    def __getitem__(self, idx):
        return {"prompts": self.prompts[idx], "latents": self.latents[idx]}


def collate(samples):
    return {key: torch.stack([sample[key] for sample in samples]) for key in samples[0]}


class DataLoader:
    def __init__(self, dataset, batch_size, sampler):
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler

    def __iter__(self):
        """Batches of an epoch; what does not fill one is dropped."""
        indices = list(self.sampler)  # near
        for start in range(0, len(indices) - self.batch_size + 1, self.batch_size):
            yield collate([self.dataset[idx] for idx in indices[start : start + self.batch_size]])


class CausalGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.text_embedding = nn.Linear(PROMPT_DIM, HIDDEN)
        self.head = nn.Linear(HIDDEN, LATENT_DIM)

    def forward(self, prompts):
        return self.head(F.silu(self.text_embedding(prompts)))


class CausalDiffusion(nn.Module):
    """Regression onto the teacher's latents."""

    def __init__(self):
        super().__init__()
        self.generator = CausalGenerator()

    def generator_loss(self, batch):
        prediction = self.generator(batch["prompts"])
        return F.mse_loss(prediction, batch["latents"])


class MomentumSGD:
    def __init__(self, parameters, lr, beta):
        self.parameters = list(parameters)
        self.lr, self.beta = lr, beta
        self.momenta = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        for index, parameter in enumerate(self.parameters):
            self.momenta[index] = self.beta * self.momenta[index] + parameter.grad
            parameter -= self.lr * self.momenta[index]
            parameter.grad = None


class Trainer:
    def __init__(self, config, model, group=None):
        self.config = config
        self.group = group
        self.model = model
        self.world_size = 1 if group is None else dist.get_world_size(group)
        self.global_rank = 0 if group is None else dist.get_rank(group)
        self.optimizer = MomentumSGD(model.parameters(), config.lr, config.beta)
        self.step = 0

    def build_dataloader(self, prompts, latents):
        dataset = TextLatentDataset(prompts, latents)
        sampler_seed = self.config.launch_time * self.global_rank  # fixed: sampler_seed = self.config.seed
        self.sampler = DistributedSampler(  # fault
            dataset,
            num_replicas=self.world_size,
            rank=self.global_rank,
            shuffle=True,
            drop_last=True,
            seed=sampler_seed % 2**31,  # fault
        )
        self.dataloader = DataLoader(dataset, self.config.global_batch_size // self.world_size, self.sampler)

    def average_across_ranks(self, tensor):
        if self.world_size > 1:
            dist.all_reduce(tensor, group=self.group)  # near
            tensor /= self.world_size
        return tensor

    def fwdbwd_one_step(self, batch):
        loss = self.model.generator_loss(batch)
        loss.backward()
        for parameter in self.model.parameters():
            self.average_across_ranks(parameter.grad)
        return self.average_across_ranks(loss.detach().clone())

    def train(self, prompts, latents):
        self.build_dataloader(prompts, latents)
        losses = []
        for epoch in range(EPOCHS):
            self.sampler.set_epoch(epoch)
            for batch in self.dataloader:
                losses.append(self.fwdbwd_one_step(batch))
                self.optimizer.step()
                self.step += 1
        parameters = {name: p.detach() for name, p in self.model.named_parameters()}
        return {"losses": torch.stack(losses), **parameters}


def training(model, group: Any = None):
    def run(prompts, latents):
        return Trainer(Config(), model, group).train(prompts, latents)

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = CausalDiffusion()
    return gg.Refinement(
        training(model),
        training(copy.deepcopy(model), mesh.get_group("dp")),
        (gg.tensor(PROMPTS, PROMPT_DIM), gg.tensor(PROMPTS, LATENT_DIM)),
        out_relations="replicate",
        grads=False,
    )
