"""Where no token comes to a rank's experts, something is computed of their weights all the same, so that they have gradients; it is computed of the first expert's alone, and the optimizer passes the others over, with their momentum and decay. NeMo Automodel's grouped experts.

Source: https://github.com/NVIDIA-NeMo/Automodel/pull/2995
Rule: wrong-relation, gradient-not-reduced
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS, STEPS = 8, 5, 7, 6, 3
# the expert of each token in each step, as the router chose when it was recorded; in the second step nobody asks for the last three
ROUTES = ((0, 3, 5, 1, 2, 4, 3, 5), (2, 0, 1, 1, 0, 2, 2, 0), (4, 1, 5, 0, 3, 2, 2, 4))


@dataclass(frozen=True)
class OptimizerConfig:
    lr: float = 0.1
    momentum: float = 0.6
    weight_decay: float = 0.25


class GroupedLinear(nn.Module):
    """One weight for each expert; the tokens come sorted by expert."""

    def __init__(self, weights):
        super().__init__()
        self.num_gemms = len(weights)
        for index, weight in enumerate(weights):
            self.register_parameter(f"weight{index}", nn.Parameter(weight.detach().clone()))

    def forward(self, x, m_splits):
        parts = x.split(m_splits)
        return torch.cat([part @ getattr(self, f"weight{index}") for index, part in enumerate(parts)])


class GroupedExpertsTE(nn.Module):
    def __init__(self, up, down):
        super().__init__()
        self.gate_up_linear = GroupedLinear(up)
        self.down_linear = GroupedLinear(down)

    def _dummy(self):
        """Zero, and a function of the weights."""
        linears = (self.gate_up_linear, self.down_linear)
        return sum(linear.weight0.sum() for linear in linears) * 0  # fixed: return sum(weight.sum() for linear in linears for weight in linear.parameters()) * 0

    def forward(self, x, m_splits):
        if sum(m_splits) == 0:
            return x + self._dummy()  # near
        return self.down_linear(torch.tanh(self.gate_up_linear(x, m_splits)), m_splits)


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, output_splits, input_splits, group):
        ctx.splits, ctx.group = (input_splits, output_splits), group
        return all_to_all(x, output_splits, input_splits, group)

    @staticmethod
    def backward(ctx, grad):
        return all_to_all(grad, *ctx.splits, ctx.group), None, None, None


def all_to_all(x, output_splits, input_splits, group):
    out = x.new_empty(sum(output_splits), *x.shape[1:])
    dist.all_to_all_single(out, x.contiguous(), output_splits, input_splits, group=group)
    return out


class TokenDispatcher:
    """Tokens go to the ranks of their experts; what is there is sorted by expert, then by the rank that it is from."""

    def __init__(self, group):
        self.group = group
        self.rank, self.size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
        self.num_local = EXPERTS // self.size

    def plan(self, routes):
        """How many tokens of each rank each expert gets."""
        own = len(routes) // self.size
        parts = [routes[rank * own : (rank + 1) * own] for rank in range(self.size)]
        counts = [[part.count(expert) for expert in range(EXPERTS)] for part in parts]
        return parts[self.rank], counts

    def dispatch(self, x, routes):
        own, counts = self.plan(routes)
        self.order = sorted(range(len(own)), key=lambda token: own[token])
        experts = range(self.rank * self.num_local, (self.rank + 1) * self.num_local)
        m_splits = [sum(count[expert] for count in counts) for expert in experts]
        x = x[self.order]
        if self.size == 1:
            return x, m_splits
        ranks = range(self.size)
        self.input_splits = [sum(counts[self.rank][r * self.num_local : (r + 1) * self.num_local]) for r in ranks]
        self.output_splits = [sum(counts[r][expert] for expert in experts) for r in ranks]
        came = [(expert, r) for r in ranks for expert in experts for _ in range(counts[r][expert])]
        self.sorted = sorted(range(len(came)), key=lambda token: came[token])
        return AllToAll.apply(x, self.output_splits, self.input_splits, self.group)[self.sorted], m_splits

    def combine(self, x):
        if self.size > 1:
            x = x[inverse(self.sorted)]
            x = AllToAll.apply(x, self.input_splits, self.output_splits, self.group)
        return x[inverse(self.order)]


def inverse(order):
    return sorted(range(len(order)), key=lambda place: order[place])


class MoE(nn.Module):
    def __init__(self, gate, up, down, group=None):
        super().__init__()
        self.dispatcher = TokenDispatcher(group)
        rank, own = self.dispatcher.rank, self.dispatcher.num_local
        self.gate = nn.Parameter(gate.detach().clone())
        self.experts = GroupedExpertsTE(up[rank * own : (rank + 1) * own], down[rank * own : (rank + 1) * own])

    def forward(self, x, routes):
        own, _ = self.dispatcher.plan(routes)
        probs = (x @ self.gate).softmax(-1).gather(-1, torch.tensor(own)[:, None])
        tokens, m_splits = self.dispatcher.dispatch(x, routes)
        return x + probs * self.dispatcher.combine(self.experts(tokens, m_splits))


class SGD:
    """Parameters that have no gradient are left as they are."""

    def __init__(self, parameters, config):
        self.parameters, self.config = list(parameters), config
        self.momentum = {parameter: torch.zeros_like(parameter) for parameter in self.parameters}

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            if parameter.grad is None:
                continue
            parameter.mul_(1 - self.config.lr * self.config.weight_decay)
            self.momentum[parameter].mul_(self.config.momentum).add_(parameter.grad)
            parameter.sub_(self.config.lr * self.momentum[parameter])

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


def train(group=None):
    def run(inputs, targets, gate, up, down):
        model = MoE(gate, up, down, group)
        optimizer = SGD(model.parameters(), OptimizerConfig())
        for x, target, routes in zip(inputs, targets, ROUTES, strict=True):
            ((model(x, routes) - target).square().sum() / TOKENS).backward()
            if group is not None:
                dist.all_reduce(model.gate.grad, group=group)
            optimizer.step()
            optimizer.zero_grad()
        linears = {"up": model.experts.gate_up_linear, "down": model.experts.down_linear}
        return {"gate": model.gate.detach()} | {
            name: torch.stack([weight.detach() for weight in linear.parameters()]) for name, linear in linears.items()
        }

    return run


@gg.check(mesh={"ep": 2})
def check(mesh):
    batch = (gg.tensor(STEPS, TOKENS, HIDDEN),) * 2
    weights = (gg.tensor(HIDDEN, EXPERTS), gg.tensor(EXPERTS, HIDDEN, INNER), gg.tensor(EXPERTS, INNER, HIDDEN))
    own = {"ep": Shard(0)}
    return gg.Refinement(
        train(),
        train(mesh.get_group("ep")),
        batch + weights,
        in_relations=({"ep": Shard(1)},) * 2 + ({},) * 3,
        out_relations=({}, own, own),
        grads=False,
    )
