"""The output layer gathers the logits where it is told to, and the loss takes them for one part of the vocabulary still: each rank counts all words. Megatron-LM.

Source: https://github.com/NVIDIA/Megatron-LM/issues/7452
Rule: extra-reduction, wrong-relation, wrong-shard
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, VOCABULARY = 4, 5, 6


class _CopyToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _GatherFromModelParallelRegion(torch.autograd.Function):
    """All parts of the last dim; the gradient is the own part of what every rank has."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx, grad):
        parts = grad.chunk(dist.get_world_size(ctx.group), dim=-1)
        return parts[dist.get_rank(ctx.group)].contiguous(), None


class VocabUtility:
    @staticmethod
    def vocab_range_from_per_partition_vocab_size(per_partition_vocab_size, rank):
        first = rank * per_partition_vocab_size
        return first, first + per_partition_vocab_size


class _VocabParallelCrossEntropy(torch.autograd.Function):
    """The loss of every token, from the logits of the own part of the vocabulary."""

    @staticmethod
    def forward(ctx, vocab_parallel_logits, target, group):
        highest = vocab_parallel_logits.amax(-1)
        dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=group)
        logits = vocab_parallel_logits - highest.unsqueeze(-1)
        rank, partition_vocab_size = dist.get_rank(group), logits.shape[-1]
        start, end = VocabUtility.vocab_range_from_per_partition_vocab_size(partition_vocab_size, rank)
        target_mask = (target < start) | (target >= end)
        masked_target = (target - start).masked_fill(target_mask, 0)
        predicted_logits = logits.gather(-1, masked_target.unsqueeze(-1)).squeeze(-1)
        predicted_logits = predicted_logits.masked_fill(target_mask, 0.0)
        dist.all_reduce(predicted_logits, group=group)
        exp_logits = logits.exp()
        sum_exp_logits = exp_logits.sum(-1)
        dist.all_reduce(sum_exp_logits, group=group)
        ctx.save_for_backward(exp_logits / sum_exp_logits.unsqueeze(-1), target_mask, masked_target)
        return sum_exp_logits.log() - predicted_logits

    @staticmethod
    def backward(ctx, grad_output):
        softmax, target_mask, masked_target = ctx.saved_tensors
        here = (~target_mask).to(softmax.dtype).unsqueeze(-1)
        chosen = F.one_hot(masked_target, softmax.shape[-1]).to(softmax.dtype) * here
        return (softmax - chosen) * grad_output.unsqueeze(-1), None, None


class ColumnParallelLinear:
    def __init__(self, weight, group, gather_output):
        self.weight, self.group, self.gather_output = weight, group, gather_output

    def __call__(self, x, runtime_gather_output=None):
        output_parallel = _CopyToModelParallelRegion.apply(x, self.group) @ self.weight.t()
        gather_output = self.gather_output if runtime_gather_output is None else runtime_gather_output
        return _GatherFromModelParallelRegion.apply(output_parallel, self.group) if gather_output else output_parallel


class GPTModel:
    """The end of one: a part of the output layer's weight on every rank."""

    def __init__(self, weight, group, parallel_output=True):
        self.group = group
        self.parallel_output = parallel_output
        self.output_layer = ColumnParallelLinear(weight, group, gather_output=not parallel_output)

    def compute_language_model_loss(self, labels, logits):
        return _VocabParallelCrossEntropy.apply(logits, labels, self.group)  # near

    def postprocess(self, hidden_states, labels=None):
        logits = self.output_layer(hidden_states)
        if labels is None:
            return logits
        # fixed, insert: if not self.parallel_output: return F.cross_entropy(logits, labels, reduction="none")
        return self.compute_language_model_loss(labels, logits)  # fault


def sft_step(hidden_states, weight, labels, loss_mask, loss_of):
    hidden_states, weight = hidden_states.detach().requires_grad_(), weight.detach().requires_grad_()
    losses = loss_of(hidden_states, weight, labels)
    (losses * loss_mask).sum().backward()
    return {"losses": losses.detach(), "hidden_states": hidden_states.grad, "weight": weight.grad}


def spec(hidden_states, weight, labels, loss_mask):
    def loss_of(hidden_states, weight, labels):
        return F.cross_entropy(hidden_states @ weight.t(), labels, reduction="none")

    return sft_step(hidden_states, weight, labels, loss_mask, loss_of)


def provider(group, parallel_output):
    """What makes the model; a trainer that wants whole logits elsewhere asks for them here."""

    def impl(hidden_states, weight, labels, loss_mask):
        def loss_of(hidden_states, weight, labels):
            return GPTModel(weight, group, parallel_output).postprocess(hidden_states, labels)

        return sft_step(hidden_states, weight, labels, loss_mask, loss_of)

    return impl


@gg.check(mesh={"tp": 3})
def check(mesh):
    impl = provider(mesh.get_group("tp"), parallel_output=False)
    labels = gg.tensor(TOKENS, dtype=torch.int64, high=VOCABULARY)
    inputs = (gg.tensor(TOKENS, HIDDEN), gg.tensor(VOCABULARY, HIDDEN), labels, gg.tensor(TOKENS))
    rows = {"tp": Shard(0)}
    return gg.Refinement(
        spec, impl, inputs, in_relations=({}, rows, {}, {}), out_relations=({}, {}, rows), grads=False
    )
