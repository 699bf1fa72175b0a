"""Expert parallelism by masks: each rank keeps the scores of its own experts, so that it has their gradients alone, and nothing adds them up for the router. Transformers.

Source: https://github.com/huggingface/transformers/pull/48205
Rule: gradient-not-reduced, missing-reduction
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS, TOP_K = 5, 3, 4, 6, 2


class _AllReduceBackward(torch.autograd.Function):
    """The same on every rank; each rank's gradient is a part of the whole one."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _AllReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class TopKRouter:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, hidden_states):
        router_logits = hidden_states @ self.weight.t()
        router_scores, router_indices = router_logits.softmax(-1).topk(TOP_K, dim=-1)
        return router_logits, router_scores, router_indices


class Experts:
    """Indices that are no expert's here are skipped."""

    def __init__(self, up_proj, down_proj):
        self.up_proj, self.down_proj = up_proj, down_proj

    def __call__(self, hidden_states, router_scores, router_indices):
        out = torch.zeros_like(hidden_states)
        for expert in range(self.up_proj.shape[0]):
            weight = router_scores.masked_fill(router_indices != expert, 0.0).sum(-1, keepdim=True)
            inner = torch.tanh(hidden_states @ self.up_proj[expert])
            out = out + weight * (inner @ self.down_proj[expert])
        return out


class SparseMoeBlock:
    def __init__(self, gate, experts):
        self.gate, self.experts = gate, experts

    def __call__(self, hidden_states):
        _, router_scores, router_indices = self.gate(hidden_states)
        return self.experts(hidden_states, router_scores, router_indices)


class TensorParallelLayer:
    """Wraps a module: what goes in and what comes out are changed."""

    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def transform_input_pre_forward(self, args):
        return args

    def transform_output_post_forward(self, output):
        return output

    def prepare_module(self, module):
        def forward(*args):
            return self.transform_output_post_forward(module(*self.transform_input_pre_forward(args)))

        return forward


class RouterParallel(TensorParallelLayer):
    """From all experts' indices to those of this rank; the others get one more than there are, and no weight."""

    def transform_output_post_forward(self, output):
        router_logits, router_scores, router_indices = output
        num_local_experts = router_logits.shape[-1] // self.size
        first = self.rank * num_local_experts
        non_local = (router_indices < first) | (router_indices >= first + num_local_experts)
        # fixed, insert: router_scores = _AllReduceBackward.apply(router_scores, self.group)
        router_scores = router_scores.masked_fill(non_local, 0.0)  # fault
        router_indices = (router_indices - first).masked_fill(non_local, num_local_experts)
        return router_logits, router_scores, router_indices


class MoeTensorParallelExperts(TensorParallelLayer):
    """All ranks have all tokens, and sum up what their experts give."""

    def transform_input_pre_forward(self, args):
        hidden_states, router_scores, router_indices = args
        return _AllReduceBackward.apply(hidden_states, self.group), router_scores, router_indices  # near

    def transform_output_post_forward(self, output):
        return _AllReduceForward.apply(output, self.group)


EP_PLAN = {"gate": RouterParallel, "experts": MoeTensorParallelExperts}


def apply_plan(block, group):
    for name, style in EP_PLAN.items():
        setattr(block, name, style(group).prepare_module(getattr(block, name)))
    return block


def train_step(group=None):
    def step(hidden_states, gate, up_proj, down_proj, target):
        leaves = {"hidden_states": hidden_states, "gate": gate, "up_proj": up_proj, "down_proj": down_proj}
        leaves = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
        block = SparseMoeBlock(TopKRouter(leaves["gate"]), Experts(leaves["up_proj"], leaves["down_proj"]))
        if group is not None:
            block = apply_plan(block, group)
        loss = (block(leaves["hidden_states"]) - target).square().sum()
        loss.backward()
        return {"loss": loss.detach(), **{name: leaf.grad for name, leaf in leaves.items()}}

    return step


@gg.check(mesh={"ep": 3})
def check(mesh):
    weights = (gg.tensor(EXPERTS, HIDDEN, INNER), gg.tensor(EXPERTS, INNER, HIDDEN))
    inputs = (gg.tensor(TOKENS, HIDDEN), gg.tensor(EXPERTS, HIDDEN), *weights, gg.tensor(TOKENS, HIDDEN))
    mine = {"ep": Shard(0)}
    return gg.Refinement(
        train_step(),
        train_step(mesh.get_group("ep")),
        inputs,
        in_relations=({}, {}, mine, mine, {}),
        out_relations=({}, {}, {}, mine, mine),
        grads=False,
    )
