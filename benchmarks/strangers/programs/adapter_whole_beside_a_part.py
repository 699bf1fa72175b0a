"""The experts' linear layers leave their sum to the dispatcher; their adapters were not told, and hand it a whole result on every rank. Megatron Bridge.

Source: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5635
Rule: extra-reduction, wrong-scale, wrong-relation
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS, RANK, ALPHA = 6, 4, 6, 2, 2, 4


@dataclass(frozen=True)
class Config:
    """Tensor parallelism within the experts."""

    group: Any
    explicit_expert_comm: bool = True

    @property
    def size(self):
        return dist.get_world_size(self.group)

    @property
    def rank(self):
        return dist.get_rank(self.group)


class ColumnParallelLinear(nn.Module):
    def __init__(self, config, width_in, width_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width_out // config.size, width_in))

    def forward(self, x):
        return x @ self.weight.t()


class RowParallelLinear(nn.Module):
    """Sums over the ranks, unless somebody else is to do that."""

    def __init__(self, config, width_in, width_out):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(width_out, width_in // config.size))

    def forward(self, x):
        out = x @ self.weight.t()
        if not self.config.explicit_expert_comm:
            dist.all_reduce(out, group=self.config.group)
        return out


class ParallelLinearAdapter(nn.Module):
    """Two factors beside a row-parallel layer: inputs of the first, outputs of the second are the ranks'."""

    def __init__(self, config, width_in, width_out, partial_output=False):
        super().__init__()
        self.config = config
        self.partial_output = partial_output
        self.linear_in = nn.Parameter(torch.empty(RANK, width_in // config.size))
        self.linear_out = nn.Parameter(torch.empty(width_out // config.size, RANK))

    def joined(self, own):
        """All ranks' outputs; of a part, the own ones and zeros."""
        if self.partial_output:
            parts = [torch.zeros_like(own) for _ in range(self.config.size)]
            parts[self.config.rank] = own
        else:
            parts = [torch.empty_like(own) for _ in range(self.config.size)]
            dist.all_gather(parts, own.contiguous(), group=self.config.group)
        return torch.cat(parts, dim=-1)

    def forward(self, x):
        shrunk = x @ self.linear_in.t()
        dist.all_reduce(shrunk, group=self.config.group)
        return self.joined(shrunk @ self.linear_out.t()) * (ALPHA / RANK)


class LoRALinear(nn.Module):
    """A layer and what is added to it."""

    def __init__(self, to_wrap, adapter):
        super().__init__()
        self.to_wrap, self.adapter = to_wrap, adapter

    def forward(self, x):
        return self.to_wrap(x) + self.adapter(x)  # near


class Expert(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear_fc1 = ColumnParallelLinear(config, HIDDEN, INNER)
        self.linear_fc2 = RowParallelLinear(config, INNER, HIDDEN)

    def forward(self, x):
        return self.linear_fc2(torch.tanh(self.linear_fc1(x)))


class LoRA:
    """Puts adapters where they are wanted."""

    def __init__(self, target_modules):
        self.target_modules = target_modules

    def transform(self, name, module):
        if name not in self.target_modules:
            return module
        config = module.config
        adapter = ParallelLinearAdapter(config, INNER, HIDDEN)  # fixed: adapter = ParallelLinearAdapter(config, INNER, HIDDEN, config.explicit_expert_comm)
        return LoRALinear(module, adapter)

    def __call__(self, model):
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                setattr(module, name, self.transform(name, child))
        return model


class MoELayer(nn.Module):
    """Every expert sees all tokens; the dispatcher puts together what they give."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert(config) for _ in range(EXPERTS))

    def combine(self, out):
        if self.config.explicit_expert_comm:
            dist.all_reduce(out, group=self.config.group)
        return out

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        outs = [probs[:, i, None] * expert(x) for i, expert in enumerate(self.experts)]
        return x + self.combine(torch.stack(outs).sum(0))


class Reference(nn.Module):
    """One rank's, with the names of the other one's state."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.fc1 = nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN))
        self.fc2 = nn.Parameter(torch.randn(EXPERTS, HIDDEN, INNER))
        self.lora_in = nn.Parameter(torch.randn(EXPERTS, RANK, INNER))
        self.lora_out = nn.Parameter(torch.randn(EXPERTS, HIDDEN, RANK))

    @torch.no_grad()
    def forward(self, x):
        probs = self.router(x).softmax(-1)
        out = x
        for i in range(EXPERTS):
            h = torch.tanh(x @ self.fc1[i].t())
            adapted = h @ self.lora_in[i].t() @ self.lora_out[i].t() * (ALPHA / RANK)
            out = out + probs[:, i, None] * (h @ self.fc2[i].t() + adapted)
        return out


class Inference(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    @torch.no_grad()
    def forward(self, x):
        return self.layer(x)


@torch.no_grad()
def load_weights(state, model, mesh):
    rank, size = mesh.get_local_rank("etp"), mesh.size()
    model.layer.router.weight.copy_(state["router.weight"])
    for i, expert in enumerate(model.layer.experts):
        fc2 = expert.linear_fc2
        expert.linear_fc1.weight.copy_(state["fc1"][i].chunk(size, 0)[rank])
        fc2.to_wrap.weight.copy_(state["fc2"][i].chunk(size, 1)[rank])
        fc2.adapter.linear_in.copy_(state["lora_in"][i].chunk(size, 1)[rank])
        fc2.adapter.linear_out.copy_(state["lora_out"][i].chunk(size, 0)[rank])


@gg.check(mesh={"etp": 2})
def check(mesh):
    layer = LoRA({"linear_fc2"})(MoELayer(Config(mesh.get_group("etp"))))
    inputs = (gg.tensor(TOKENS, HIDDEN),)
    impl = Inference(layer)
    return gg.Refinement(Reference(), impl, inputs, load=load_weights, out_relations="replicate", grads=False)
