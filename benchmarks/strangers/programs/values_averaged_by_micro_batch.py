"""Losses of micro-batches are summed, each divided by the tokens of all ranks' mini-batch; the critic's loss is not told of these, and divides by its own tokens, so that every micro-batch counts as a whole. verl.

Source: https://github.com/verl-project/verl/pull/6957
Rule: wrong-scale, wrong-relation, missing-reduction
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

FEATURES, HIDDEN, VOCAB, RESPONSE, LR = 5, 6, 8, 6, 0.1
# tokens of each response; micro-batches take two of them
LENGTHS = (6, 2, 1, 3, 5, 4, 2, 1, 6, 6, 3, 2)
SAMPLES = len(LENGTHS)
LOSS_KEYS = ("dp_size", "batch_num_tokens", "global_batch_size")


@dataclass(frozen=True)
class EngineConfig:
    group: Any = None
    micro_batch_size_per_gpu: int = 2

    @property
    def dp_size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def dp_rank(self):
        return 0 if self.group is None else dist.get_rank(self.group)


@dataclass(frozen=True)
class AlgoConfig:
    clip_ratio: float = 0.2
    cliprange_value: float = 0.5
    loss_agg_mode: str = "token-mean"
    kl_loss_coef: float = 0.1


def masked_sum(values, mask):
    return (values * mask).sum()


def agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size=1, batch_num_tokens=None, global_batch_size=None):
    """One number of a loss per token; gradients will be averaged over the ranks."""
    if loss_agg_mode == "token-mean":
        if batch_num_tokens is None:
            batch_num_tokens = loss_mask.sum()  # fault
        return masked_sum(loss_mat, loss_mask) / batch_num_tokens * dp_size  # near
    if loss_agg_mode == "seq-mean-token-sum":
        if global_batch_size is None:
            global_batch_size = loss_mat.shape[0]
        return masked_sum(loss_mat, loss_mask) / global_batch_size * dp_size
    raise ValueError(f"Invalid loss_agg_mode: {loss_agg_mode}")


def compute_policy_loss(old_log_prob, log_prob, advantages, response_mask, clip_ratio, loss_agg_mode, **global_info):
    ratio = (log_prob - old_log_prob).exp()
    clipped = ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
    pg_losses = torch.maximum(-advantages * ratio, -advantages * clipped)
    return agg_loss(pg_losses, response_mask, loss_agg_mode, **global_info)


def compute_value_loss(vpreds, returns, values, response_mask, cliprange_value, loss_agg_mode, **global_info):
    vpredclipped = torch.clamp(vpreds, min=values - cliprange_value, max=values + cliprange_value)
    vf_losses = torch.maximum((vpreds - returns).square(), (vpredclipped - returns).square())
    return 0.5 * agg_loss(vf_losses, response_mask, loss_agg_mode, **global_info)


def ppo_loss(config, model_output, data):
    """The actor's."""
    global_info = {key: data[key] for key in LOSS_KEYS}
    mask, log_prob = data["response_mask"], model_output
    loss = compute_policy_loss(
        data["old_log_probs"], log_prob, data["advantages"], mask, config.clip_ratio, config.loss_agg_mode, **global_info
    )
    kld = (log_prob - data["old_log_probs"]).square()
    return loss + config.kl_loss_coef * agg_loss(kld, mask, config.loss_agg_mode, **global_info)


def value_loss(config, model_output, data):
    """The critic's."""
    return compute_value_loss(
        model_output,
        data["returns"],
        data["values"],
        data["response_mask"],
        config.cliprange_value,
        config.loss_agg_mode,
        # fixed, insert: **{key: data[key] for key in LOSS_KEYS},
    )


class Actor(nn.Module):
    def __init__(self, w1, w2):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(w1.detach().clone()), nn.Parameter(w2.detach().clone())

    def forward(self, data):
        log_probs = (torch.tanh(data["features"] @ self.w1) @ self.w2).log_softmax(-1)
        return log_probs.gather(-1, data["responses"][..., None])[..., 0]


class Critic(nn.Module):
    def __init__(self, w1, w2):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(w1.detach().clone()), nn.Parameter(w2.detach().clone())

    def forward(self, data):
        return (torch.tanh(data["features"] @ self.w1) @ self.w2)[..., 0]


class FSDPEngine:
    """Accumulates the gradients of micro-batches; they are averaged over the data-parallel ranks."""

    def __init__(self, module, config):
        self.module, self.config = module, config

    def forward_backward_batch(self, data, loss_function):
        config = self.config
        batch_num_tokens = data["response_mask"].sum()
        if config.group is not None:
            dist.all_reduce(batch_num_tokens, group=config.group)
        info = {"dp_size": config.dp_size, "batch_num_tokens": batch_num_tokens}
        info["global_batch_size"] = len(data["response_mask"]) * config.dp_size
        total = torch.zeros(())
        parts = {key: value.split(config.micro_batch_size_per_gpu) for key, value in data.items()}
        for micro_batch in zip(*parts.values(), strict=True):
            micro_data = dict(zip(parts, micro_batch, strict=True)) | info
            loss = loss_function(model_output=self.module(micro_data), data=micro_data)
            loss.backward()
            total = total + loss.detach()
        return total

    @torch.no_grad()
    def optimizer_step(self):
        for parameter in self.module.parameters():
            if self.config.group is not None:
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=self.config.group)  # near
            parameter.sub_(LR * parameter.grad)


class TrainingWorker:
    def __init__(self, module, config, loss_fn):
        self.engine, self.loss_fn = FSDPEngine(module, config), loss_fn

    def train_batch(self, data):
        loss = self.engine.forward_backward_batch(data, self.loss_fn)
        if self.engine.config.group is not None:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=self.engine.config.group)
        self.engine.optimizer_step()
        return loss


def response_mask(config):
    own = SAMPLES // config.dp_size
    lengths = torch.tensor(LENGTHS[config.dp_rank * own : (config.dp_rank + 1) * own])
    return (torch.arange(RESPONSE) < lengths[:, None]).float()


def update(config):
    def step(features, responses, old_log_probs, advantages, values, returns, *weights):
        data = {"features": features, "responses": responses, "old_log_probs": old_log_probs}
        data |= {"advantages": advantages, "values": values, "returns": returns, "response_mask": response_mask(config)}
        algo = AlgoConfig()
        actor = TrainingWorker(Actor(*weights[:2]), config, partial(ppo_loss, algo))
        critic = TrainingWorker(Critic(*weights[2:]), config, partial(value_loss, algo))
        outputs = {"vf_loss": critic.train_batch(data), "pg_loss": actor.train_batch(data)}
        for name, worker in (("actor", actor), ("critic", critic)):
            outputs |= {f"{name}_{key}": value.detach() for key, value in worker.engine.module.named_parameters()}
        return outputs

    return step


@gg.check(mesh={"dp": 3})
def check(mesh):
    per_token = gg.tensor(SAMPLES, RESPONSE)
    batch = (gg.tensor(SAMPLES, RESPONSE, FEATURES), gg.tensor(SAMPLES, RESPONSE, dtype=torch.int64, low=0, high=VOCAB))
    batch += (per_token,) * 4
    first = gg.tensor(FEATURES, HIDDEN)
    weights = (first, gg.tensor(HIDDEN, VOCAB), first, gg.tensor(HIDDEN, 1))
    relations = ({"dp": Shard(0)},) * len(batch) + ({},) * len(weights)
    return gg.Refinement(
        update(EngineConfig(micro_batch_size_per_gpu=SAMPLES)),
        update(EngineConfig(mesh.get_group("dp"))),
        batch + weights,
        in_relations=relations,
        out_relations="replicate",
        grads=False,
    )
