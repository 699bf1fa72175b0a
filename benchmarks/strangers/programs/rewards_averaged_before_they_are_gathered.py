"""An epoch's last batch is filled up with samples from the start, which the gather drops again; the trainer hands it each rank's mean, where nothing is left to drop. TRL's RewardTrainer.

Source: https://github.com/huggingface/trl/issues/7010
Rule: wrong-relation, wrong-scale
"""

import copy
from collections import defaultdict
from itertools import chain, islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

SAMPLES, BATCH_SIZE, FEATURES, HIDDEN = 11, 2, 4, 7


class BatchSamplerShard:
    """The batches of one process; all processes get as many samples, whatever is left."""

    def __init__(self, num_samples, batch_size, num_processes, process_index):
        self.num_samples = num_samples
        self.batch_size = batch_size
        self.num_processes = num_processes
        self.process_index = process_index

    @property
    def total_batch_size(self):
        return self.batch_size * self.num_processes

    def __len__(self):
        return -(-self.num_samples // self.total_batch_size)

    def __iter__(self):
        wanted = len(self) * self.total_batch_size
        indices = list(islice(chain(range(self.num_samples), range(self.num_samples)), wanted))
        for start in range(0, wanted, self.total_batch_size):
            offset = start + self.process_index * self.batch_size
            yield indices[offset : offset + self.batch_size]


class Accelerator:
    """Knows how many samples of the last batch are real."""

    def __init__(self, group=None):
        self.group = group
        self.num_processes = 1 if group is None else dist.get_world_size(group)
        self.process_index = 0 if group is None else dist.get_rank(group)
        self.remainder = -1
        self.end_of_dataloader = False

    def prepare_data_loader(self, num_samples, batch_size):
        sampler = BatchSamplerShard(num_samples, batch_size, self.num_processes, self.process_index)
        self.remainder = num_samples % sampler.total_batch_size
        for step, indices in enumerate(sampler):
            self.end_of_dataloader = step == len(sampler) - 1
            yield indices

    def gather(self, tensor):
        tensor = tensor.reshape(-1)
        if self.group is None:
            return tensor
        out = torch.empty(self.num_processes * tensor.shape[0])
        dist.all_gather_into_tensor(out, tensor.contiguous(), group=self.group)
        return out

    def gather_for_metrics(self, tensor):
        data = self.gather(tensor)  # near
        if self.end_of_dataloader and self.remainder > 0:
            return data[: self.remainder]
        return data


class RewardModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(FEATURES, HIDDEN)
        self.score = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, inputs):
        return self.score(torch.tanh(self.backbone(inputs))).squeeze(-1)


class RewardTrainer:
    """Evaluation: the mean of each metric over all samples."""

    def __init__(self, model, accelerator, batch_size, center_rewards_coefficient=0.3):
        self.model = model
        self.accelerator = accelerator
        self.batch_size = batch_size
        self.center_rewards_coefficient = center_rewards_coefficient
        self._metrics = defaultdict(list)

    def compute_loss(self, chosen, rejected):
        rewards_chosen, rewards_rejected = self.model(chosen), self.model(rejected)
        margin = rewards_chosen - rewards_rejected
        loss = -F.logsigmoid(margin)
        loss = loss + self.center_rewards_coefficient * (rewards_chosen + rewards_rejected).square()
        self._record("loss", loss)
        self._record("margin", margin)
        self._record("mean_reward", torch.stack([rewards_chosen, rewards_rejected]).mean(0))

    def _record(self, name, values):
        values = values.mean()  # fixed: values = values.detach()
        self._metrics[name].append(self.accelerator.gather_for_metrics(values))

    @torch.no_grad()
    def evaluate(self, chosen, rejected):
        self._metrics.clear()
        for indices in self.accelerator.prepare_data_loader(chosen.shape[0], self.batch_size):
            self.compute_loss(chosen[indices], rejected[indices])
        return {f"eval_{name}": torch.cat(values).mean() for name, values in self._metrics.items()}


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = RewardModel()
    spec = RewardTrainer(model, Accelerator(), batch_size=SAMPLES)
    impl = RewardTrainer(copy.deepcopy(model), Accelerator(mesh.get_group("dp")), BATCH_SIZE)
    pairs = (gg.tensor(SAMPLES, FEATURES), gg.tensor(SAMPLES, FEATURES))
    return gg.Refinement(spec.evaluate, impl.evaluate, pairs, out_relations="replicate", grads=False)
