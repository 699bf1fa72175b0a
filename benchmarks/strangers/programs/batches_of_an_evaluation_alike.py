"""A reward model's loss and accuracy are means of the batches' means, though a rank's last batch has fewer pairs. OpenRLHF.

Source: https://github.com/OpenRLHF/OpenRLHF/pull/1336
Rule: wrong-scale, wrong-relation
"""

import copy
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

PAIRS, TOKENS, VOCAB, HIDDEN = 15, 4, 6, 7


@dataclass(frozen=True)
class EvalConfig:
    micro_eval_batch_size: int
    margin_loss: bool = False


class DeepspeedStrategy:
    """What a trainer asks of the ranks; without a group there is one."""

    def __init__(self, group=None):
        self.group = group
        self.world_size = 1 if group is None else dist.get_world_size(group)

    def all_reduce(self, data, op="mean"):
        if isinstance(data, dict):
            return {name: self.all_reduce(value, op) for name, value in data.items()}
        if self.world_size == 1:
            return data
        data = data.clone()
        if op == "mean":
            data /= self.world_size
        dist.all_reduce(data, group=self.group)
        return data

    def all_gather(self, data):
        if self.world_size == 1:
            return data
        gathered = [torch.zeros_like(data) for _ in range(self.world_size)]
        dist.all_gather(gathered, data.contiguous(), group=self.group)
        return torch.cat(gathered)


class RewardModel(nn.Module):
    """A number for a sequence, of its last token that counts."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.mix = nn.Linear(HIDDEN, HIDDEN)
        self.value_head = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, input_ids):
        hidden = torch.tanh(self.mix(self.embed(input_ids)).cumsum(1))
        return self.value_head(hidden).squeeze(-1)[:, -1]


class PairWiseLoss(nn.Module):
    def forward(self, chosen_reward, reject_reward, margin=None):
        if margin is not None:
            return -F.logsigmoid(chosen_reward - reject_reward - margin).mean()
        return -F.logsigmoid(chosen_reward - reject_reward).mean()


class EvalDataLoader:
    """A rank's pairs in batches; the last one may be smaller, and is kept."""

    def __init__(self, dataset, batch_size):
        self.dataset = dataset
        self.batch_size = batch_size

    def __len__(self):
        pairs = self.dataset["chosen_ids"].shape[0]
        return -(-pairs // self.batch_size)

    def __iter__(self):
        parts = {name: tensor.split(self.batch_size) for name, tensor in self.dataset.items()}
        for i in range(len(self)):
            yield {name: part[i] for name, part in parts.items()}


class RewardModelTrainer:
    def __init__(self, model, strategy, config):
        self.model, self.strategy, self.config = model, strategy, config
        self.loss_fn = PairWiseLoss()

    def concatenated_forward(self, batch):
        """Both responses of a pair at once."""
        both = torch.cat([batch["chosen_ids"], batch["reject_ids"]])
        return self.model(both).chunk(2)

    def loss_of(self, batch, chosen_reward, reject_reward):
        margin = batch["margin"] if self.config.margin_loss else None
        return self.loss_fn(chosen_reward, reject_reward, margin)

    def reward_statistics(self, rewards):
        rewards = self.strategy.all_gather(rewards)
        return {"reward_mean": rewards.mean(), "reward_var": rewards.var(unbiased=False)}

    @torch.no_grad()
    def evaluate(self, eval_dataloader):
        acc, loss_sum, rewards = torch.zeros(()), torch.zeros(()), []
        # fixed, insert: num_pairs = 0
        for batch in eval_dataloader:
            chosen_reward, reject_reward = self.concatenated_forward(batch)
            loss = self.loss_of(batch, chosen_reward, reject_reward)
            rewards += [chosen_reward, reject_reward]
            acc += (chosen_reward > reject_reward).float().mean()  # fixed: acc += (chosen_reward > reject_reward).float().sum()
            loss_sum += loss  # fixed: loss_sum += loss * chosen_reward.shape[0]
            # fixed, insert: num_pairs += chosen_reward.shape[0]
        acc_mean = acc / len(eval_dataloader)  # fixed: acc_mean = acc / num_pairs
        loss_mean = loss_sum / len(eval_dataloader)  # fixed: loss_mean = loss_sum / num_pairs
        logs = {"eval_loss": loss_mean, "acc_mean": acc_mean}
        logs = self.strategy.all_reduce(logs)  # near
        return logs | self.reward_statistics(torch.cat(rewards))


def evaluation(trainer):
    def run(chosen_ids, reject_ids, margin):
        dataset = {"chosen_ids": chosen_ids, "reject_ids": reject_ids, "margin": margin}
        return trainer.evaluate(EvalDataLoader(dataset, trainer.config.micro_eval_batch_size))

    return run


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = RewardModel()
    parallel = copy.deepcopy(model)
    spec = RewardModelTrainer(model, DeepspeedStrategy(), EvalConfig(PAIRS, margin_loss=True))
    impl = RewardModelTrainer(parallel, DeepspeedStrategy(mesh.get_group("dp")), EvalConfig(2, margin_loss=True))
    ids = gg.tensor(PAIRS, TOKENS, dtype=torch.int64, high=VOCAB)
    return gg.Refinement(
        evaluation(spec),
        evaluation(impl),
        (ids, ids, gg.tensor(PAIRS)),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
