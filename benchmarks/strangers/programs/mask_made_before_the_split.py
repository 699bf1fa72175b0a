"""The mask that keeps documents apart is made of the whole batch; a pipeline's schedule splits the batch into micro-batches afterwards, and all of them count their samples from the mask's first. torchtitan with FlexAttention.

Source: https://github.com/pytorch/torchtitan/issues/1723
Rule: wrong-relation, wrong-shard
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

BATCH, TOKENS, VOCAB, DIM, EOS = 6, 5, 4, 4, 0


@dataclass(frozen=True)
class JobConfig:
    pp_group: Any = None
    n_layers: int = 3
    microbatch_size: int = 2

    @property
    def stages(self):
        return 1 if self.pp_group is None else dist.get_world_size(self.pp_group)

    @property
    def stage(self):
        return 0 if self.pp_group is None else dist.get_rank(self.pp_group)


def block_causal_mask_mod(batch, eos_id):
    """Tokens see those before them in the same document."""
    ends = (batch == eos_id).to(torch.int64)
    document_ids = ends.cumsum(1) - ends

    def mask_mod(b, q_idx, kv_idx):
        same = document_ids[b, q_idx] == document_ids[b, kv_idx]  # near
        return same & (q_idx >= kv_idx)

    return mask_mod


class FlexAttention(nn.Module):
    """All layers read the mask from their class."""

    mask_mods: ClassVar[dict] = {}

    @classmethod
    def init_attention_mask(cls, batch, eos_id):
        cls.mask_mods["block_causal"] = block_causal_mask_mod(batch, eos_id)

    def forward(self, q, k, v):
        b = torch.arange(q.shape[0])[:, None, None]
        positions = torch.arange(q.shape[1])
        mask = self.mask_mods["block_causal"](b, positions[None, :, None], positions[None, None, :])  # near
        scores = (q @ k.transpose(1, 2)) * DIM**-0.5
        return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


class TransformerBlock(nn.Module):
    def __init__(self, wqkv, wo):
        super().__init__()
        self.wqkv, self.wo = nn.Parameter(wqkv.detach().clone()), nn.Parameter(wo.detach().clone())
        self.inner_attention = FlexAttention()

    def forward(self, x):
        q, k, v = F.linear(x, self.wqkv).chunk(3, dim=-1)
        return x + F.linear(self.inner_attention(q, k, v), self.wo)


class Transformer(nn.Module):
    """A stage's layers; the first one has the embedding, the last one the output."""

    def __init__(self, tensors, config):
        super().__init__()
        self.is_first, self.is_last = config.stage == 0, config.stage == config.stages - 1
        embedding, *layers, output = tensors
        per_stage = config.n_layers // config.stages
        own = range(config.stage * per_stage, (config.stage + 1) * per_stage)
        self.layers = nn.ModuleDict({str(i): TransformerBlock(layers[2 * i], layers[2 * i + 1]) for i in own})
        if self.is_first:
            self.tok_embeddings = nn.Parameter(embedding.detach().clone())
        if self.is_last:
            self.output = nn.Parameter(output.detach().clone())

    def forward(self, x, input_batch):
        # fixed, insert: FlexAttention.init_attention_mask(input_batch, EOS)
        hidden = F.embedding(input_batch, self.tok_embeddings) if self.is_first else x
        for layer in self.layers.values():
            hidden = layer(hidden)
        return F.linear(hidden, self.output) if self.is_last else hidden


def cross_entropy_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class ScheduleGPipe:
    def __init__(self, module, config, loss_fn):
        self.module, self.config, self.loss_fn = module, config, loss_fn

    def peer(self, offset):
        return dist.get_global_rank(self.config.pp_group, self.config.stage + offset)

    def receive(self, chunk, offset):
        received = torch.empty(*chunk.shape, DIM)
        dist.recv(received, self.peer(offset), group=self.config.pp_group)
        return received

    def step(self, target, losses, input_batch):
        size, saved = self.config.microbatch_size, []
        chunks = list(input_batch.split(size))
        for chunk, labels in zip(chunks, target.split(size), strict=True):
            x = None if self.module.is_first else self.receive(chunk, -1).requires_grad_()
            output = self.module(x, chunk)
            if self.module.is_last:
                output = self.loss_fn(output, labels) / len(chunks)
                losses.append(output.detach())
            else:
                dist.send(output.detach(), self.peer(1), group=self.config.pp_group)
            saved.append((x, output))
        for chunk, (x, output) in zip(chunks, saved, strict=True):
            output.backward(None if self.module.is_last else self.receive(chunk, 1))
            if not self.module.is_first:
                dist.send(x.grad, self.peer(-1), group=self.config.pp_group)


class Trainer:
    def __init__(self, config, tensors):
        self.config = config
        self.model = Transformer(tensors, config)
        self.pp_schedule = ScheduleGPipe(self.model, config, cross_entropy_loss)

    def forward_backward_step(self, inputs, labels):
        FlexAttention.init_attention_mask(inputs, EOS)  # fault
        if self.config.stages == 1:
            loss = cross_entropy_loss(self.model(None, inputs), labels)
            loss.backward()
            return loss.detach()
        losses = []
        self.pp_schedule.step(target=labels, losses=losses, input_batch=inputs)  # near
        return self.from_stage(torch.stack(losses).sum() if losses else None, self.config.stages - 1, ())

    def from_stage(self, own, stage, shape):
        if self.config.stages == 1:
            return own
        tensor = own.clone() if self.config.stage == stage else torch.empty(shape)
        dist.broadcast(tensor, dist.get_global_rank(self.config.pp_group, stage), group=self.config.pp_group)
        return tensor


def train_step(config):
    def step(inputs, labels, *tensors):
        trainer = Trainer(config, tensors)
        result = {"loss": trainer.forward_backward_step(inputs, labels)}
        layers, per_stage = trainer.model.layers, config.n_layers // config.stages
        for i in range(config.n_layers):
            for j, name in enumerate(("wqkv", "wo")):
                own = getattr(layers[str(i)], name).grad if str(i) in layers else None
                result[f"layer{i}_{name}"] = trainer.from_stage(own, i // per_stage, tensors[1 + 2 * i + j].shape)
        return result

    return step


@gg.check(mesh={"pp": 3})
def check(mesh):
    ids = gg.tensor(BATCH, TOKENS, dtype=torch.int64, high=VOCAB)
    layers = (gg.tensor(3 * DIM, DIM), gg.tensor(DIM, DIM)) * JobConfig().n_layers
    inputs = (ids, ids, gg.tensor(VOCAB, DIM), *layers, gg.tensor(VOCAB, DIM))
    impl = train_step(JobConfig(mesh.get_group("pp")))
    return gg.Refinement(train_step(JobConfig()), impl, inputs, out_relations="replicate", grads=False)
