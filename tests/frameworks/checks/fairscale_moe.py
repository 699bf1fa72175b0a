"""fairscale's mixture of experts, unmodified: top-2 gates with a capacity, tokens sent to their experts' ranks by all-to-all; with gradients."""

import torch
import torch.distributed as dist
from fairscale.nn.moe import MOELayer, Top2Gate
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

ROWS, TOKENS, WIDTH, HIDDEN, EXPERTS = 8, 4, 4, 6, 4
PART = {"ep": Shard(0)}


def summed(grad, group):
    """The gate is the same on all ranks, so its gradients are added up."""
    grad = grad.clone()
    dist.all_reduce(grad, group=group)
    return grad


def expert():
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))


class Layer(nn.Module):
    """Every rank gates its own tokens, with noise of its own; the specification takes the ranks' tokens in turn."""

    def __init__(self, group, first, parts):
        super().__init__()
        self.first, self.parts = first, parts
        experts = nn.ModuleList(expert() for _ in range(EXPERTS // dist.get_world_size(group)))
        self.moe = MOELayer(Top2Gate(WIDTH, EXPERTS), experts, group)
        self.moe.gate.wg.weight.register_hook(lambda grad: summed(grad, group))

    def forward(self, x):
        out = []
        for place, part in enumerate(x.chunk(self.parts)):
            torch.manual_seed(self.first + place)
            out.append(self.moe(part))
        return torch.cat(out)


def load(state, impl, mesh):
    """A rank's experts are the specification's from its first on."""
    count = EXPERTS // mesh["ep"].size()
    with torch.no_grad():
        for name, parameter in impl.named_parameters():
            head, mark, rest = name.partition("experts.")
            place, _, tail = rest.partition(".")
            whole = f"{head}{mark}{int(place) + count * mesh.get_local_rank('ep')}.{tail}" if mark else name
            parameter.copy_(state[whole])


def pair(mesh, layer=Layer):
    rank, ranks = mesh.get_local_rank("ep"), mesh.size()
    whole, mine = Layer(dist.new_subgroups(1)[0], 0, ranks), layer(mesh.get_group("ep"), rank, 1)
    return gg.Refinement(
        whole, mine, (gg.tensor(ROWS, TOKENS, WIDTH),), in_relations=PART, out_relations=PART, load=load
    )


@gg.check(mesh={"ep": 2})
def mixture(mesh):
    return pair(mesh)
