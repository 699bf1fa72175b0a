"""Losses are means over tokens; micro-batches are weighed by how many samples they have, and ranks alike, whatever tokens these hold. verl's actor with FSDP.

Source: https://github.com/verl-project/verl/issues/5625
Rule: wrong-scale, wrong-relation
"""

import copy
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, RESPONSE, VOCAB, HIDDEN, FFN, LR = 15, 6, 8, 9, 10, 0.4
MICRO_BATCHES = (1, 4)


def masked_sum(values, mask):
    return (values * mask).sum()


def agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size=1, batch_num_tokens=None):
    """A matrix of losses as one number; what is not told of the batch is counted in what is given."""
    if loss_agg_mode == "token-mean":
        if batch_num_tokens is None:
            batch_num_tokens = loss_mask.sum()  # near
        return masked_sum(loss_mat, loss_mask) / batch_num_tokens * dp_size
    if loss_agg_mode == "seq-mean-token-sum":
        return (loss_mat * loss_mask).sum(-1).mean()
    raise ValueError(f"Invalid loss_agg_mode: {loss_agg_mode}")


def compute_policy_loss(old_log_prob, log_prob, advantages, response_mask, config):
    ratio = (log_prob - old_log_prob).exp()
    clipped = ratio.clamp(1 - config.clip_ratio, 1 + config.clip_ratio)
    pg_losses = torch.maximum(-advantages * ratio, -advantages * clipped)
    return agg_loss(pg_losses, response_mask, config.loss_agg_mode, **config.global_batch_info)


@dataclass
class ActorConfig:
    micro_batches: tuple
    loss_agg_mode: str = "token-mean"
    clip_ratio: float = 0.25
    global_batch_info: dict = field(default_factory=dict)


class Policy(nn.Module):
    """Logits of each token from the one before."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.mlp = nn.Linear(HIDDEN, FFN)
        self.lm_head = nn.Linear(FFN, VOCAB, bias=False)

    def forward(self, input_ids):
        return self.lm_head(torch.tanh(self.mlp(self.embed(input_ids))))


def logprobs_from_logits(logits, labels):
    return logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)


class DataParallelPPOActor:
    """Gradients are averaged over the ranks, as by the sharded modules."""

    def __init__(self, config, actor_module, group=None):
        self.config = config
        self.actor_module = actor_module
        self.group = group
        self.dp_size = 1 if group is None else dist.get_world_size(group)
        self.actor_optimizer = torch.optim.SGD(actor_module.parameters(), lr=LR)

    def _forward_micro_batch(self, micro_batch):
        logits = self.actor_module(micro_batch["responses"][:, :-1])
        return logprobs_from_logits(logits, micro_batch["responses"][:, 1:])

    def _split(self, mini_batch):
        parts = {name: tensor.split(self.config.micro_batches) for name, tensor in mini_batch.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(len(self.config.micro_batches))]

    def _optimizer_step(self):
        if self.group is not None:
            for parameter in self.actor_module.parameters():
                dist.all_reduce(parameter.grad, group=self.group)
                parameter.grad /= self.dp_size
        self.actor_optimizer.step()

    def update_policy(self, mini_batch):
        ppo_mini_batch_size = mini_batch["responses"].shape[0]
        # fixed, insert: batch_num_tokens = mini_batch["response_mask"].sum()
        # fixed, insert: if self.group is not None:
        # fixed, insert:     dist.all_reduce(batch_num_tokens, group=self.group)
        # fixed, insert: self.config.global_batch_info = {"dp_size": self.dp_size, "batch_num_tokens": batch_num_tokens}
        self.actor_optimizer.zero_grad()
        total = torch.zeros(())
        for micro_batch in self._split(mini_batch):
            log_prob = self._forward_micro_batch(micro_batch)
            policy_loss = compute_policy_loss(
                micro_batch["old_log_probs"],
                log_prob,
                micro_batch["advantages"],
                micro_batch["response_mask"],
                self.config,
            )
            loss_scale_factor = micro_batch["responses"].shape[0] / ppo_mini_batch_size  # fixed: loss_scale_factor = 1.0
            loss = policy_loss * loss_scale_factor
            loss.backward()
            total += loss.detach()
        self._optimizer_step()
        if self.group is not None:
            dist.all_reduce(total, group=self.group)
            total = total / self.dp_size
        return total


def update(actor):
    def step(responses, response_mask, old_log_probs, advantages):
        batch = {
            "responses": responses,
            "response_mask": response_mask.float(),
            "old_log_probs": old_log_probs,
            "advantages": advantages,
        }
        loss = actor.update_policy(batch)
        return {"actor/pg_loss": loss, **{n: p.detach() for n, p in actor.actor_module.named_parameters()}}

    return step


@gg.check(mesh={"dp": 3})
def check(mesh):
    policy = Policy()
    whole = DataParallelPPOActor(ActorConfig((SAMPLES,)), policy)
    config = ActorConfig(MICRO_BATCHES)
    ranks = DataParallelPPOActor(config, copy.deepcopy(policy), mesh.get_group("dp"))
    mask = gg.tensor(SAMPLES, RESPONSE, dtype=torch.int64, high=2)
    numbers = gg.tensor(SAMPLES, RESPONSE)
    inputs = (gg.tensor(SAMPLES, RESPONSE + 1, dtype=torch.int64, high=VOCAB), mask, numbers, numbers)
    return gg.Refinement(
        update(whole), update(ranks), inputs, in_relations={"dp": Shard(0)}, out_relations="replicate", grads=False
    )
