"""Expert parallelism: slots of other ranks' experts run through the last own expert, and a weight of zero hides that from the output, but not from the gradient of the weights. transformers' batched_mm experts.

Source: https://github.com/huggingface/transformers/issues/48687
Rule: wrong-relation, extra-reduction
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate

import graphguard as gg

TOKENS, VOCAB, HIDDEN, INTERMEDIATE, NUM_EXPERTS, TOP_K = 5, 11, 6, 7, 8, 3


class _AllReduceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, process_group):
        ctx.process_group = process_group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.process_group)
        return grad, None


class _AllReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, process_group):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=process_group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class OlmoeTopKRouter(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(NUM_EXPERTS, HIDDEN))

    def forward(self, hidden_states):
        router_probs = F.linear(hidden_states, self.weight).softmax(-1)
        router_scores, router_indices = router_probs.topk(TOP_K, dim=-1)
        return router_scores, router_indices


def _batched_linear(x, weight):
    return torch.bmm(weight, x.unsqueeze(-1)).squeeze(-1)


def batched_mm_experts_forward(self, hidden_states, top_k_index, top_k_weights):
    num_tokens, hidden_dim = hidden_states.shape
    # S is the number of pairs of a token and an expert
    selected_hidden_states = hidden_states.repeat_interleave(TOP_K, dim=0)
    sample_weights = top_k_weights.reshape(-1)  # (S,)
    expert_ids = top_k_index.reshape(-1)  # (S,)
    # fixed, insert: sample_weights = sample_weights.masked_fill(expert_ids >= self.num_experts, 0.0)
    expert_ids = expert_ids.clamp(0, self.num_experts - 1)  # fault

    gate_up = _batched_linear(selected_hidden_states, self.gate_up_proj[expert_ids])
    gate, up = gate_up.chunk(2, dim=-1)
    proj_out = _batched_linear(F.silu(gate) * up, self.down_proj[expert_ids])

    weighted_out = proj_out * sample_weights.unsqueeze(-1)  # fault
    return weighted_out.view(num_tokens, TOP_K, hidden_dim).sum(dim=1)


class OlmoeExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_experts = NUM_EXPERTS
        self.gate_up_proj = nn.Parameter(torch.randn(NUM_EXPERTS, 2 * INTERMEDIATE, HIDDEN))
        self.down_proj = nn.Parameter(torch.randn(NUM_EXPERTS, HIDDEN, INTERMEDIATE))

    forward = batched_mm_experts_forward


class OlmoeSparseMoeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = OlmoeTopKRouter()
        self.experts = OlmoeExperts()

    def forward(self, hidden_states):
        top_k_weights, top_k_index = self.gate(hidden_states)
        return self.experts(hidden_states, top_k_index, top_k_weights)


class OlmoeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.mlp = OlmoeSparseMoeBlock()
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, input_ids, labels):
        hidden_states = self.embed_tokens(input_ids)
        hidden_states = hidden_states + self.mlp(hidden_states)
        return F.cross_entropy(self.lm_head(hidden_states), labels)


class RouterParallel:
    """A rank's experts are counted from zero; slots of other experts get a sentinel and no weight."""

    def __init__(self, process_group):
        self.process_group = process_group
        self.ep_rank, self.ep_size = dist.get_rank(process_group), dist.get_world_size(process_group)

    def transform_output_post_forward(self, module, args, output):
        router_scores, router_indices = output
        num_local_experts = NUM_EXPERTS // self.ep_size
        # a rank has the gradients of the own experts' slots only
        router_scores = _AllReduceBackward.apply(router_scores, self.process_group)
        non_local = router_indices // num_local_experts != self.ep_rank
        router_scores = router_scores.masked_fill(non_local, 0.0)  # near
        router_indices = (router_indices % num_local_experts).masked_fill(non_local, num_local_experts)
        return router_scores, router_indices


class MoEExpertsParallel:
    """Inputs are whole on every rank, so their gradients are partial; the output is a partial sum."""

    def __init__(self, process_group):
        self.process_group = process_group

    def partition(self, module):
        rank, size = dist.get_rank(self.process_group), dist.get_world_size(self.process_group)
        module.num_experts = NUM_EXPERTS // size
        for name in ("gate_up_proj", "down_proj"):
            part = getattr(module, name).detach().chunk(size)[rank].clone()
            setattr(module, name, nn.Parameter(part))

    def transform_inputs_pre_forward(self, module, args):
        hidden_states, top_k_index, top_k_weights = args
        hidden_states = _AllReduceBackward.apply(hidden_states, self.process_group)
        top_k_weights = _AllReduceBackward.apply(top_k_weights, self.process_group)  # fault
        return hidden_states, top_k_index, top_k_weights

    def transform_output_post_forward(self, module, args, output):
        return _AllReduceForward.apply(output, self.process_group)


def distribute_model(model, process_group):
    router, experts = RouterParallel(process_group), MoEExpertsParallel(process_group)
    experts.partition(model.mlp.experts)
    model.mlp.gate.register_forward_hook(router.transform_output_post_forward)
    model.mlp.experts.register_forward_pre_hook(experts.transform_inputs_pre_forward)
    model.mlp.experts.register_forward_hook(experts.transform_output_post_forward)
    return model


def full_gradient(name, parameter, process_group):
    if process_group is None or ".experts." not in name:
        return parameter.grad
    parts = [torch.empty_like(parameter.grad) for _ in range(dist.get_world_size(process_group))]
    dist.all_gather(parts, parameter.grad.contiguous(), group=process_group)
    return torch.cat(parts)


def training_step(model, process_group=None):
    def step(input_ids, labels):
        loss = model(input_ids, labels)
        loss.backward()
        grads = {name: full_gradient(name, p, process_group) for name, p in model.named_parameters()}
        return {"loss": loss.detach(), **grads}

    return step


@gg.check(mesh={"ep": 2})
def check(mesh):
    model, group = OlmoeModel(), mesh.get_group("ep")
    local = distribute_model(copy.deepcopy(model), group)
    ids = gg.tensor(TOKENS, dtype=torch.int64, high=VOCAB)
    return gg.Refinement(
        training_step(model),
        training_step(local, group),
        (ids, ids),
        in_relations={"ep": Replicate()},
        out_relations="replicate",
        grads=False,
    )
