"""A rank packs its samples into micro-batches by their tokens; what is trained is right, but each sample's log-probabilities are handed back in the order of packing, and the client takes them for those of the samples as it sent them. SkyRL.

Source: https://github.com/NovaSky-AI/SkyRL/pull/1882
Rule: wrong-relation, wrong-shard
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

LENGTHS = (2, 5, 3, 4, 5, 1, 2, 4)  # of the samples, which are padded to the longest
SAMPLES, TOKENS, VOCAB, HIDDEN = len(LENGTHS), max(LENGTHS), 5, 4


@dataclass(frozen=True)
class TrainerConfig:
    max_tokens_per_microbatch: int = 0  # none: all samples at once
    eps_clip: float = 0.2


@dataclass(frozen=True)
class DataParallel:
    group: Any = None

    @property
    def size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def rank(self):
        return 0 if self.group is None else dist.get_rank(self.group)

    def sum(self, tensor):
        if self.group is not None:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def own_lengths(self):
        count = SAMPLES // self.size
        return LENGTHS[self.rank * count : (self.rank + 1) * count]


class SampleBasedBatchIterator:
    def __init__(self, batch):
        self.batch = batch

    def __iter__(self):
        yield self.batch

    def reorder_and_combine_items(self, items):
        return [item for microbatch in items for item in microbatch]


class TokenBasedBatchIterator:
    """Micro-batches of at most so many tokens, the longest samples first."""

    def __init__(self, batch, lengths, max_tokens):
        self.batch = batch
        self.microbatches = self.pack(lengths, max_tokens)

    @staticmethod
    def pack(lengths, max_tokens):
        bins = []
        for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
            for members in bins:
                if sum(lengths[i] for i in members) + lengths[index] <= max_tokens:
                    members.append(index)
                    break
            else:
                bins.append([index])
        return bins

    def __iter__(self):
        for members in self.microbatches:
            yield {name: torch.stack([tensor[i] for i in members]) for name, tensor in self.batch.items()}

    def reorder_and_combine_items(self, items):
        """One list, in the order in which the samples came."""
        combined = [None] * sum(len(members) for members in self.microbatches)
        for members, microbatch in zip(self.microbatches, items, strict=True):
            for index, item in zip(members, microbatch, strict=True):
                combined[index] = item
        return combined


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB + 1, HIDDEN)
        self.mix = nn.Linear(HIDDEN, HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, input_ids):
        """Log-probabilities of the tokens, each from those before it."""
        before = F.pad(input_ids[:, :-1], (1, 0), value=VOCAB)
        hidden = torch.tanh(self.mix(self.embed(before).cumsum(1)))
        return self.lm_head(hidden).log_softmax(-1).gather(-1, input_ids.unsqueeze(-1)).squeeze(-1)


class PolicyWorker:
    def __init__(self, model, config, dp):
        self.model, self.config, self.dp = model, config, dp

    def batch_iterator(self, batch):
        if self.config.max_tokens_per_microbatch > 0:
            return TokenBasedBatchIterator(batch, self.dp.own_lengths(), self.config.max_tokens_per_microbatch)
        return SampleBasedBatchIterator(batch)

    def policy_loss(self, logprobs, microbatch):
        ratio = (logprobs - microbatch["sampling_logprobs"]).exp()
        clipped = ratio.clamp(1 - self.config.eps_clip, 1 + self.config.eps_clip)
        advantages = microbatch["advantages"].unsqueeze(-1)
        return -torch.minimum(ratio * advantages, clipped * advantages) * microbatch["loss_mask"]

    def forward_backward(self, batch):
        iterator, loss_fn_outputs, total = self.batch_iterator(batch), [], torch.zeros(())
        for microbatch in iterator:
            logprobs = self.model(microbatch["input_ids"])
            elementwise = self.policy_loss(logprobs, microbatch)
            loss = elementwise.sum() / SAMPLES
            loss.backward()
            total += loss.detach()
            outputs = list(zip(logprobs.detach(), elementwise.detach(), strict=True))
            loss_fn_outputs.extend(outputs)  # fixed: loss_fn_outputs.append(outputs)
        # fixed, insert: loss_fn_outputs = iterator.reorder_and_combine_items(loss_fn_outputs)
        for parameter in self.model.parameters():
            self.dp.sum(parameter.grad)
        return self.dp.sum(total), loss_fn_outputs  # near


class TinkerBackend:
    """The client's side: what it gets of a sample it uses with the sample's own mask and advantage."""

    def __init__(self, worker):
        self.worker = worker

    def length_mask(self):
        lengths = torch.tensor(self.worker.dp.own_lengths())
        return (torch.arange(TOKENS) < lengths[:, None]).to(torch.get_default_dtype())

    def forward_backward(self, input_ids, sampling_logprobs, advantages):
        mask = self.length_mask()
        names = ("input_ids", "sampling_logprobs", "advantages", "loss_mask")
        batch = dict(zip(names, (input_ids, sampling_logprobs, advantages, mask), strict=True))
        loss, per_sample_outputs = self.worker.forward_backward(batch)
        logprobs = torch.stack([per_sample_outputs[i][0] for i in range(len(per_sample_outputs))])  # near
        elementwise_loss = torch.stack([per_sample_outputs[i][1] for i in range(len(per_sample_outputs))])
        return loss, logprobs * mask, elementwise_loss, mask

    def step(self, input_ids, sampling_logprobs, advantages):
        loss, logprobs, elementwise_loss, mask = self.forward_backward(input_ids, sampling_logprobs, advantages)
        kl = self.worker.dp.sum(((sampling_logprobs - logprobs) * mask).sum()) / sum(LENGTHS)
        grads = {name.replace(".", "_"): p.grad for name, p in self.worker.model.named_parameters()}
        return {"loss": loss, "kl": kl, "logprobs": logprobs, "elementwise_loss": elementwise_loss, **grads}


@gg.check(mesh={"dp": 2})
def check(mesh):
    model = Policy()
    spec = TinkerBackend(PolicyWorker(model, TrainerConfig(), DataParallel()))
    config, dp = TrainerConfig(max_tokens_per_microbatch=7), DataParallel(mesh.get_group("dp"))
    impl = TinkerBackend(PolicyWorker(copy.deepcopy(model), config, dp))
    samples = {"dp": Shard(0)}
    relations = {"loss": {}, "kl": {}, "logprobs": samples, "elementwise_loss": samples}
    relations |= {name.replace(".", "_"): {} for name, _ in model.named_parameters()}
    ids = gg.tensor(SAMPLES, TOKENS, dtype=torch.int64, high=VOCAB)
    return gg.Refinement(
        spec.step,
        impl.step,
        (ids, gg.tensor(SAMPLES, TOKENS), gg.tensor(SAMPLES)),
        in_relations=samples,
        out_relations=relations,
        grads=False,
    )
