"""Documents are packed into one sequence, and attention keeps them apart by their ids; a pipeline's step reads tokens and labels of the batch alone, and its stages call their layers without the ids. KempnerForge.

Source: https://github.com/KempnerInstitute/KempnerForge/issues/204
Rule: wrong-relation
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

SAMPLES, MICRO_BATCHES, SEQ_LEN, VOCAB, DIM, HEADS, N_LAYERS = 4, 2, 7, 9, 8, 2, 3
HEAD_DIM, THETA, IGNORED = DIM // HEADS, 100.0, -100
# lengths of the documents that were packed into each sample
PACKED = ((3, 4), (7,), (2, 2, 3), (5, 2))


@dataclass(frozen=True)
class DataConfig:
    pack_sequences: bool = True


class PackedDataset:
    """Tokens with labels and with the number of each token's document."""

    def __init__(self, config):
        self.config = config

    def batch(self, tokens):
        batch = {"input_ids": tokens, "labels": F.pad(tokens[:, 1:], (0, 1), value=IGNORED)}
        if self.config.pack_sequences:
            ids = [[number for number, length in enumerate(lengths) for _ in range(length)] for lengths in PACKED]
            batch["doc_ids"] = torch.tensor(ids)
            crossing = F.pad(batch["doc_ids"][:, 1:] != batch["doc_ids"][:, :-1], (0, 1), value=True)
            batch["labels"] = batch["labels"].masked_fill(crossing, IGNORED)
        return batch


def precompute_rope_frequencies():
    angles = torch.outer(torch.arange(float(SEQ_LEN)), THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
    return angles.cos(), angles.sin()


def apply_rope(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class TransformerBlock(nn.Module):
    def __init__(self, qkv, out, up, down):
        super().__init__()
        self.qkv, self.out, self.up, self.down = (nn.Parameter(w.detach().clone()) for w in (qkv, out, up, down))

    def attention(self, x, cos, sin, doc_ids):
        q, k, v = (part.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for part in F.linear(x, self.qkv).chunk(3, dim=-1))
        q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        if doc_ids is not None:
            mask = mask & (doc_ids[:, None, :, None] == doc_ids[:, None, None, :])
        scores = (q @ k.transpose(-1, -2) * HEAD_DIM**-0.5).masked_fill(~mask, float("-inf"))  # near
        return F.linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), self.out)

    def forward(self, x, cos, sin, doc_ids=None):
        x = x + self.attention(x, cos, sin, doc_ids)
        return x + F.linear(torch.tanh(F.linear(x, self.up)), self.down)


def compute_layer_assignment(n_layers, pp_size):
    base, remainder = divmod(n_layers, pp_size)
    counts = [base + (stage_id < remainder) for stage_id in range(pp_size)]
    return [(sum(counts[:i]), sum(counts[: i + 1])) for i in range(pp_size)]


class PipelineStageModule(nn.Module):
    """Some layers; the first stage embeds, the last one has the head. One stage is the whole model."""

    def __init__(self, stage_id, num_stages, embedding, head, layers):
        super().__init__()
        self.is_first, self.is_last = stage_id == 0, stage_id == num_stages - 1
        start, end = compute_layer_assignment(N_LAYERS, num_stages)[stage_id]
        self.token_embedding = nn.Parameter(embedding.detach().clone()) if self.is_first else None
        self.layers = nn.ModuleDict({str(i): TransformerBlock(*layers[i]) for i in range(start, end)})
        self.output_head = nn.Parameter(head.detach().clone()) if self.is_last else None
        self._rope_cos, self._rope_sin = precompute_rope_frequencies()

    def forward(self, x):  # fixed: def forward(self, x, doc_ids=None):
        if self.is_first:
            x = F.embedding(x, self.token_embedding)
        for layer in self.layers.values():
            x = layer(x, self._rope_cos, self._rope_sin)  # fixed: x = layer(x, self._rope_cos, self._rope_sin, doc_ids=doc_ids)
        return F.linear(x, self.output_head) if self.is_last else x


def cross_entropy(logits, labels, valid):
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
    return loss / valid


class ScheduleGPipe:
    """All micro-batches forward, then all of them backward."""

    def __init__(self, stage, group):
        self.stage, self.group = stage, group
        self.rank = dist.get_rank(group)

    def _recv(self, rows, source):
        received = torch.empty(rows, SEQ_LEN, DIM)
        dist.recv(received, source, group=self.group)
        return received

    def step(self, input_ids, labels, valid, **kwargs):
        stage, pending, total = self.stage, [], torch.zeros(())
        chunks = {name: value.chunk(MICRO_BATCHES) for name, value in kwargs.items()}
        micro_batches = zip(input_ids.chunk(MICRO_BATCHES), labels.chunk(MICRO_BATCHES), strict=True)
        for i, (tokens, targets) in enumerate(micro_batches):
            x = tokens if stage.is_first else self._recv(len(tokens), self.rank - 1).requires_grad_()
            output = stage(x, **{name: value[i] for name, value in chunks.items()})
            if stage.is_last:
                output = cross_entropy(output, targets, valid)
                total = total + output.detach()
            else:
                dist.send(output.detach().contiguous(), self.rank + 1, group=self.group)
            pending.append((x, output))
        for x, output in pending:
            output.backward(None if stage.is_last else self._recv(len(output), self.rank + 1))
            if not stage.is_first:
                dist.send(x.grad.contiguous(), self.rank - 1, group=self.group)
        return total


def pipeline_step(schedule, batch):
    valid = (batch["labels"] != IGNORED).sum()
    return schedule.step(batch["input_ids"], batch["labels"], valid)  # fixed: return schedule.step(batch["input_ids"], batch["labels"], valid, doc_ids=batch.get("doc_ids"))


def gradients(stage):
    """Of the stage's own parameters; nothing of the others'."""
    grads = {name: parameter.grad for name, parameter in stage.named_parameters()}
    shapes = {"qkv": (3 * DIM, DIM), "out": (DIM, DIM), "up": (2 * DIM, DIM), "down": (DIM, 2 * DIM)}
    names = {f"layers.{i}.{name}": shape for i in range(N_LAYERS) for name, shape in shapes.items()}
    names |= {"token_embedding": (VOCAB, DIM), "output_head": (VOCAB, DIM)}
    return {name.replace(".", "_"): grads.get(name, torch.zeros(shape)) for name, shape in names.items()}


def grouped(layers):
    return [layers[4 * i : 4 * i + 4] for i in range(N_LAYERS)]


def spec(tokens, embedding, head, *layers):
    """One device: the documents' ids go into the model with the tokens."""
    batch = PackedDataset(DataConfig()).batch(tokens)
    model = PipelineStageModule(0, 1, embedding, head, grouped(layers))
    x = F.embedding(batch["input_ids"], model.token_embedding)
    for layer in model.layers.values():
        x = layer(x, model._rope_cos, model._rope_sin, doc_ids=batch.get("doc_ids"))
    loss = cross_entropy(F.linear(x, model.output_head), batch["labels"], (batch["labels"] != IGNORED).sum())
    loss.backward()
    return {"loss": loss.detach(), **gradients(model)}


def train_step(group):
    def step(tokens, embedding, head, *layers):
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        stage = PipelineStageModule(rank, size, embedding, head, grouped(layers))
        loss = pipeline_step(ScheduleGPipe(stage, group), PackedDataset(DataConfig()).batch(tokens))
        outputs = {"loss": loss, **gradients(stage)}
        for value in outputs.values():
            dist.all_reduce(value, group=group)
        return outputs

    return step


@gg.check(mesh={"pp": 2})
def check(mesh):
    tokens = gg.tensor(SAMPLES, SEQ_LEN, dtype=torch.int64, low=0, high=VOCAB)
    layer = (gg.tensor(3 * DIM, DIM), gg.tensor(DIM, DIM), gg.tensor(2 * DIM, DIM), gg.tensor(DIM, 2 * DIM))
    inputs = (tokens, gg.tensor(VOCAB, DIM), gg.tensor(VOCAB, DIM), *layer * N_LAYERS)
    return gg.Refinement(spec, train_step(mesh.get_group("pp")), inputs, out_relations="replicate", grads=False)
