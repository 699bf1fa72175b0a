"""The loss is divided by all tokens and multiplied by the data-parallel ranks, as gradients are averaged over them; ZeRO-3 averages over the sequence-parallel ranks as well. tmax, an open-instruct GRPO trainer.

Source: https://github.com/hamishivi/tmax/pull/9
Rule: wrong-scale
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

PROMPTS, SEQUENCE, VOCAB, HIDDEN, HEADS, HEAD_DIM, BETA, LR = 14, 15, 11, 9, 12, 8, 0.07, 0.2
NAMES = ("embed", "qkv", "o_proj", "lm_head")


@dataclass
class Args:
    deepspeed_stage: int = 0
    world_size: int = 1
    sequence_parallel_size: int = 1
    dp_group: Any = None
    sp_group: Any = None
    world_group: Any = None


class _SeqAllToAll(torch.autograd.Function):
    """Cuts one dim and joins the other; the gradient goes the way back."""

    @staticmethod
    def forward(ctx, x, group, scatter_dim, gather_dim):
        ctx.group, ctx.dims = group, (gather_dim, scatter_dim)
        parts = torch.stack([part.contiguous() for part in x.chunk(dist.get_world_size(group), dim=scatter_dim)])
        out = torch.empty_like(parts)
        dist.all_to_all_single(out, parts, group=group)
        return torch.cat(out.unbind(), dim=gather_dim)

    @staticmethod
    def backward(ctx, grad):
        return _SeqAllToAll.apply(grad, ctx.group, *ctx.dims), None, None, None


class _GatherParameter(torch.autograd.Function):
    """The whole from its partitions; its gradient is averaged over the ranks that have them."""

    @staticmethod
    def forward(ctx, partition, shape, group):
        ctx.group, ctx.size = group, partition.numel()
        flat = torch.empty(dist.get_world_size(group) * partition.numel())
        dist.all_gather_into_tensor(flat, partition, group=group)
        return flat[: shape.numel()].view(shape)

    @staticmethod
    def backward(ctx, grad):
        size = dist.get_world_size(ctx.group)
        flat = torch.zeros(size * ctx.size)
        flat[: grad.numel()] = grad.flatten()
        out = torch.empty(ctx.size)
        dist.reduce_scatter_tensor(out, flat, group=ctx.group)
        return out / size, None, None  # near


class DeepSpeedEngine:
    """Stage 3: every rank of the world keeps one piece of each parameter. Stage 0: all of them."""

    def __init__(self, tensors, args):
        self.args = args
        self.shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self.params = {name: self._partition(t.detach()).requires_grad_() for name, t in tensors.items()}

    def _partition(self, tensor):
        if self.args.deepspeed_stage != 3:
            return tensor.clone()
        flat = tensor.flatten()
        size = -(-flat.numel() // self.args.world_size)
        padded = torch.cat([flat, torch.zeros(size * self.args.world_size - flat.numel())])
        return padded[size * dist.get_rank(self.args.world_group) :][:size].clone()

    def gathered(self, name):
        if self.args.deepspeed_stage != 3:
            return self.params[name]
        return _GatherParameter.apply(self.params[name], self.shapes[name], self.args.world_group)

    def backward(self, loss):
        loss.backward()

    def step(self):
        with torch.no_grad():
            for parameter in self.params.values():
                parameter -= LR * parameter.grad


class PolicyTrainer:
    def __init__(self, tensors, args):
        self.args = args
        self.model = DeepSpeedEngine(tensors, args)

    def attention(self, hidden, weight):
        qkv = (hidden @ weight).unflatten(-1, (HEADS, 3 * HEAD_DIM))
        if self.args.sp_group is not None:
            qkv = _SeqAllToAll.apply(qkv, self.args.sp_group, 2, 1)
        q, k, v = qkv.chunk(3, dim=-1)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * HEAD_DIM**-0.5
        later = torch.ones(SEQUENCE, SEQUENCE).tril() == 0
        out = torch.einsum("bhqk,bkhd->bqhd", scores.masked_fill(later, float("-inf")).softmax(-1), v)
        if self.args.sp_group is not None:
            out = _SeqAllToAll.apply(out, self.args.sp_group, 1, 2)
        return out.flatten(2)

    def forward(self, query_responses):
        hidden = self.model.gathered("embed")[query_responses]
        hidden = hidden + self.attention(hidden, self.model.gathered("qkv")) @ self.model.gathered("o_proj")
        return hidden @ self.model.gathered("lm_head")

    def all_reduce(self, tensor):
        if self.args.world_group is not None:
            dist.all_reduce(tensor, group=self.args.world_group)
        return tensor

    def loss_multiplier(self):
        """What undoes the mean of the gradients."""
        dp_world_size = self.args.world_size // self.args.sequence_parallel_size  # near
        return dp_world_size  # fixed: return self.args.world_size if self.args.deepspeed_stage == 3 else dp_world_size

    def step(self, query_responses, labels, response_masks, advantages, ref_logprobs):
        total_valid_tokens = self.all_reduce(response_masks.sum())
        logprobs = self.forward(query_responses).log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
        pg_losses = -advantages[:, None] * (logprobs - logprobs.detach()).exp()
        ref_logprobs_diff = ref_logprobs - logprobs
        kl = ref_logprobs_diff.exp() - 1 - ref_logprobs_diff
        loss = ((pg_losses + BETA * kl) * response_masks).sum() / total_valid_tokens
        self.model.backward(loss * self.loss_multiplier())
        self.model.step()
        return self.all_reduce(loss.detach().clone())


def train(args):
    def step(query_responses, labels, response_masks, advantages, ref_logprobs, *tensors):
        trainer = PolicyTrainer(dict(zip(NAMES, tensors, strict=True)), args)
        loss = trainer.step(query_responses, labels, response_masks.float(), advantages, ref_logprobs)
        return {"loss": loss, **{name: trainer.model.gathered(name).detach() for name in NAMES}}

    return step


@gg.check(mesh={"dp": 2, "sp": 3})
def check(mesh):
    args = Args(3, mesh.size(), mesh.size(1), mesh.get_group("dp"), mesh.get_group("sp"), dist.group.WORLD)
    tokens = gg.tensor(PROMPTS, SEQUENCE, dtype=torch.int64, high=VOCAB)
    masks = gg.tensor(PROMPTS, SEQUENCE, dtype=torch.int64, high=2)
    batch = (tokens, tokens, masks, gg.tensor(PROMPTS), gg.tensor(PROMPTS, SEQUENCE))
    projections = (gg.tensor(HIDDEN, 3 * HEADS * HEAD_DIM), gg.tensor(HEADS * HEAD_DIM, HIDDEN))
    tensors = (gg.tensor(VOCAB, HIDDEN), *projections, gg.tensor(HIDDEN, VOCAB))
    parts, prompts = {"dp": Shard(0), "sp": Shard(1)}, {"dp": Shard(0), "sp": Replicate()}
    whole = {"dp": Replicate(), "sp": Replicate()}
    return gg.Refinement(
        train(Args()),
        train(args),
        (*batch, *tensors),
        in_relations=(parts, parts, parts, prompts, parts, *[whole] * len(NAMES)),
        out_relations="replicate",
        grads=False,
    )
