"""DeepSpeed's mixture of experts, unmodified: gates with a capacity, tokens sent to their experts' ranks by all-to-all, the loss that balances; with gradients."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cuda")  # what a job on GPUs finds; on a CPU DeepSpeed builds an extension

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.moe.experts import Experts
from deepspeed.moe.sharded_moe import MOELayer, TopKGate
from torch import nn
from torch.distributed.nn.functional import all_reduce
from torch.distributed.tensor import Shard

import graphguard as gg

ROWS, TOKENS, WIDTH, HIDDEN, EXPERTS = 6, 3, 4, 7, 4
PART = {"ep": Shard(0)}


class Layer(nn.Module):
    """Every rank gates its own tokens; the specification takes the ranks' tokens in turn."""

    def __init__(self, group, parts, k):
        super().__init__()
        self.parts, ranks = parts, dist.get_world_size(group)
        expert = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
        gate = TopKGate(WIDTH, EXPERTS, k=k, min_capacity=1, use_rts=False, top2_2nd_expert_sampling=False)
        self.moe = MOELayer(gate, Experts(expert, EXPERTS // ranks), "ep", ranks, EXPERTS // ranks)
        self.moe._set_ep_group(group)
        gate.wg.weight.register_hook(lambda grad: all_reduce(grad, group=group))  # the gate is the same on all ranks

    def forward(self, x):
        return torch.cat([self.moe(part, None) + 0.01 * self.moe.l_aux for part in x.chunk(self.parts)])


def load(state, impl, mesh):
    """A rank's experts are the specification's from its first on."""
    count = EXPERTS // mesh["ep"].size()
    with torch.no_grad():
        for name, parameter in impl.named_parameters():
            head, mark, rest = name.partition("deepspeed_experts.")
            place, _, tail = rest.partition(".")
            whole = f"{head}{mark}{int(place) + count * mesh.get_local_rank('ep')}.{tail}" if mark else name
            parameter.copy_(state[whole])


def pair(mesh, k, layer=Layer):
    deepspeed.init_distributed(verbose=False)
    whole, mine = Layer(dist.new_subgroups(1)[0], mesh.size(), k), layer(mesh.get_group("ep"), 1, k)
    return gg.Refinement(
        whole, mine, (gg.tensor(ROWS, TOKENS, WIDTH),), in_relations=PART, out_relations=PART, load=load
    )


@gg.check(mesh={"ep": 2})
def one_expert_a_token(mesh):
    return pair(mesh, 1)


@gg.check(mesh={"ep": 2})
def two_experts_a_token(mesh):
    return pair(mesh, 2)


@gg.check(mesh={"ep": 2})
def three_experts_a_token(mesh):
    return pair(mesh, 3)
