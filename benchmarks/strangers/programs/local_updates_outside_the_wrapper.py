"""Predictive coding: most weights are moved by their own layer, in the forward pass, and the data-parallel wrapper reduces gradients only, so that each rank's weights go their own way. PC-Transformers.

Source: https://github.com/iCog-Labs-Dev/PC-Transformers/pull/135
Rule: missing-reduction, wrong-relation, wrong-shard
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

STEPS, BATCH, BLOCK_SIZE, VOCAB = 3, 6, 4, 7


@dataclass(frozen=True)
class GPTConfig:
    n_embed: int = 5
    n_hidden: int = 8
    T: int = 3
    local_learning_rate: float = 0.05
    peak_learning_rate: float = 0.3
    warmup_steps: int = 2
    head_learning_rate: float = 0.2
    clamp_value: float = 3.0


class PCLayer(nn.Module):
    """Iterates the activity that a layer reads, and moves the layer's weight by a Hebbian rule in the last iteration."""

    def __init__(self, config):
        super().__init__()
        self.T = config.T
        self.local_lr = config.local_learning_rate
        self.clamp_value = config.clamp_value
        self._x_cache, self._mu_cache, self._error_cache = {}, {}, {}

    def set_learning_rate(self, lr):
        self.local_lr = float(lr)

    def init_x(self, layer_type, x):
        self._x_cache[layer_type] = x

    def get_x(self, layer_type):
        return self._x_cache[layer_type]

    def get_mu(self, layer_type):
        return self._mu_cache[layer_type]

    def get_td_err(self, layer_type):
        return self._error_cache.get(layer_type)

    def clear(self):
        self._x_cache.clear()
        self._mu_cache.clear()
        self._error_cache.clear()

    def forward(self, target_activity, layer_type, layer, t, requires_update, td_err=None):
        x = self._x_cache[layer_type]
        mu = layer(x)
        if layer_type == "fc1":
            mu = F.gelu(mu)
        error = target_activity - mu
        bu_err = error @ layer.weight
        delta_x = bu_err if td_err is None else bu_err - td_err
        x = torch.clamp(x + self.local_lr * delta_x, -self.clamp_value, self.clamp_value)
        if requires_update and t == self.T - 1:
            tokens = x.shape[0] * x.shape[1]
            with torch.no_grad():
                delta_W = torch.einsum("bsh,bsv->hv", error, x) / tokens  # near
                layer.weight.add_(self.local_lr * delta_W)  # fault
                layer.bias.add_(self.local_lr * error.mean(dim=(0, 1)))  # fault
        self._mu_cache[layer_type], self._error_cache[layer_type] = mu, bu_err
        self._x_cache[layer_type] = x


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fc1 = nn.Linear(config.n_embed, config.n_hidden)
        self.fc2 = nn.Linear(config.n_hidden, config.n_embed)
        self.pc_layer1, self.pc_layer2 = PCLayer(config), PCLayer(config)


class PCTransformer(nn.Module):
    """Embedding and block learn by themselves; the head learns by gradients."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(VOCAB, config.n_embed)
        self.mlp = MLP(config)
        self.output = nn.Linear(config.n_embed, VOCAB)

    def pc_parameters(self):
        return list(self.mlp.parameters())

    def forward(self, target_ids, input_ids):
        mlp = self.mlp
        with torch.no_grad():
            target = F.one_hot(target_ids, VOCAB).float() @ self.output.weight
            embedded = self.embedding(input_ids)
            mlp.pc_layer1.init_x("fc1", embedded)
            mlp.pc_layer2.init_x("fc2", F.gelu(mlp.fc1(embedded)))
            for t in range(self.config.T):
                td_err = mlp.pc_layer1.get_td_err("fc1")
                if td_err is not None:
                    td_err = td_err @ mlp.fc1.weight.t()
                mlp.pc_layer2(target, "fc2", mlp.fc2, t, self.training, td_err=td_err)
                mlp.pc_layer1(mlp.pc_layer2.get_x("fc2"), "fc1", mlp.fc1, t, self.training)
        return self.output(mlp.pc_layer2.get_mu("fc2"))


def average_over_ranks(tensors, group):
    with torch.no_grad():
        for tensor in tensors:
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group)


class DistributedDataParallel(nn.Module):
    """Every rank has its part of the batch; gradients are averaged."""

    def __init__(self, module, process_group):
        super().__init__()
        self.module = module
        self.process_group = process_group

    def forward(self, *args):
        output = self.module(*args)
        # fixed, insert: if self.training:
        # fixed, insert:     average_over_ranks(self.module.pc_parameters(), self.process_group)
        return output

    def reduce_gradients(self):
        average_over_ranks([p.grad for p in self.module.parameters() if p.grad is not None], self.process_group)  # near


def reset_pc_modules(model):
    for module in model.modules():
        if isinstance(module, PCLayer):
            module.clear()


def train(model, batches, config):
    model.train()
    ddp = isinstance(model, DistributedDataParallel)
    base_model = model.module if ddp else model
    logged = []
    for global_step, (input_ids, target_ids) in enumerate(batches):
        lr = config.peak_learning_rate
        if global_step < config.warmup_steps:
            lr = config.local_learning_rate + global_step / config.warmup_steps * (lr - config.local_learning_rate)
        for module in model.modules():
            if hasattr(module, "local_lr"):
                module.set_learning_rate(lr)
        logits = model(target_ids, input_ids)
        F.cross_entropy(logits.flatten(0, 1), target_ids.flatten()).backward()
        if ddp:
            model.reduce_gradients()
        with torch.no_grad():
            for parameter in base_model.output.parameters():
                parameter.sub_(config.head_learning_rate * parameter.grad)
                parameter.grad = None
        reset_pc_modules(model)
        logged.append(logits.detach())
    return logged


def run(model, config):
    def impl(input_ids, target_ids):
        batches = zip(input_ids, target_ids, strict=True)
        logged = train(model, batches, config)
        model.eval()
        base_model: Any = getattr(model, "module", model)
        return {
            "logits": torch.stack(logged),
            "fc1": base_model.mlp.fc1.weight.detach().clone(),
            "fc2": base_model.mlp.fc2.weight.detach().clone(),
            "head": base_model.output.weight.detach().clone(),
        }

    return impl


@gg.check(mesh={"dp": 3})
def check(mesh):
    config = GPTConfig()
    model = PCTransformer(config)
    wrapped = DistributedDataParallel(copy.deepcopy(model), mesh.get_group("dp"))
    ids = gg.tensor(STEPS, BATCH, BLOCK_SIZE, dtype=torch.int64, low=0, high=VOCAB)
    samples = {"dp": Shard(1)}
    return gg.Refinement(
        run(model, config),
        run(wrapped, config),
        (ids, ids),
        in_relations=samples,
        out_relations={"logits": samples, "fc1": "replicate", "fc2": "replicate", "head": "replicate"},
        grads=False,
    )
