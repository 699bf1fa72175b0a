"""Logits are divided by vocabulary, and for random requests replaced by the best candidates of all ranks; greedy requests of the same batch take the column of the largest of these for a token of the vocabulary. vllm-ascend's reduced sampling.

Source: https://github.com/vllm-project/vllm-ascend/pull/16430
Rule: wrong-relation, wrong-shard
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

TOKENS, HIDDEN, VOCAB, TOP_K = 5, 6, 12, 3


@dataclass(frozen=True)
class AscendConfig:
    tp_group: Any = None
    enable_reduce_sample: bool = False

    @property
    def tp_size(self):
        return 1 if self.tp_group is None else dist.get_world_size(self.tp_group)

    @property
    def tp_rank(self):
        return 0 if self.tp_group is None else dist.get_rank(self.tp_group)

    def all_gather(self, tensor):
        """(ranks, *shape)"""
        parts = [torch.empty_like(tensor) for _ in range(self.tp_size)]
        dist.all_gather(parts, tensor.contiguous(), group=self.tp_group)
        return torch.stack(parts)


@dataclass(frozen=True)
class SamplingMetadata:
    """Which rows belong to greedy requests; the others take one of their best tokens."""

    is_greedy: tuple = (True, False, True, False, False)
    top_k: int = TOP_K

    @property
    def all_greedy(self):
        return all(self.is_greedy)

    @property
    def greedy_rows(self):
        return torch.tensor(self.is_greedy)


class LogitsProcessor(nn.Module):
    """Rows of the head are divided over the ranks; tokens of some ids are never wanted."""

    def __init__(self, lm_head, config):
        super().__init__()
        self.weight = lm_head.chunk(config.tp_size)[config.tp_rank]
        self.offset = config.tp_rank * self.weight.shape[0]

    def forward(self, hidden_states, logit_bias):
        own = logit_bias[self.offset : self.offset + self.weight.shape[0]]
        return F.linear(hidden_states, self.weight) + own


def rejection_sample(draft_token_ids, metadata, greedy_ids, candidate_logits, candidate_ids, uniform):
    """Greedy requests accept the draft that they would have taken; others by its probability. What is refused is replaced."""
    probs = candidate_logits.softmax(-1)
    draft_probs = torch.where(candidate_ids == draft_token_ids[:, None], probs, 0.0).sum(-1)
    recovered_ids = candidate_ids[:, 0]
    random_accepted = draft_probs >= uniform
    random_ids = torch.where(random_accepted, draft_token_ids, recovered_ids)
    greedy = metadata.greedy_rows
    accepted = torch.where(greedy, draft_token_ids == greedy_ids, random_accepted)
    return {"token_ids": torch.where(greedy, greedy_ids, random_ids), "accepted": accepted.to(torch.int64)}


class RejectionSampler:
    """Logits of the whole vocabulary."""

    def __init__(self, config):
        self.config = config

    def greedy_sample(self, logits):
        return logits.argmax(-1)

    def apply_sampling_constraints(self, logits, metadata):
        return logits.topk(metadata.top_k, dim=-1)

    def __call__(self, logits, draft_token_ids, metadata, uniform):
        greedy_ids = self.greedy_sample(logits)
        candidate_logits, candidate_ids = self.apply_sampling_constraints(logits, metadata)
        return rejection_sample(draft_token_ids, metadata, greedy_ids, candidate_logits, candidate_ids, uniform)


class AscendRejectionSampler(RejectionSampler):
    """Each rank's part of the vocabulary; what goes over the wire are a few numbers of each row."""

    def greedy_sample(self, logits):
        """The best token of each rank, and of these the best; columns are those of the rank's part of the vocabulary."""
        local_max, local_ids = logits.max(-1)
        local_ids = local_ids + self.config.tp_rank * (VOCAB // self.config.tp_size)  # near
        all_max, all_ids = self.config.all_gather(local_max), self.config.all_gather(local_ids)
        return all_ids.gather(0, all_max.argmax(0, keepdim=True)).squeeze(0)

    def apply_sampling_constraints(self, logits, metadata):
        """The best tokens of all ranks, best first, and their ids."""
        local_logits, local_ids = logits.topk(metadata.top_k, dim=-1)
        local_ids = local_ids + self.config.tp_rank * logits.shape[-1]
        all_logits = self.config.all_gather(local_logits).transpose(0, 1).flatten(1)
        all_ids = self.config.all_gather(local_ids).transpose(0, 1).flatten(1)
        candidate_logits, order = all_logits.topk(metadata.top_k, dim=-1)
        return candidate_logits, all_ids.gather(1, order)

    def __call__(self, logits, draft_token_ids, metadata, uniform):
        if metadata.all_greedy:
            token_ids = self.greedy_sample(logits)
            return {"token_ids": token_ids, "accepted": (token_ids == draft_token_ids).to(torch.int64)}
        # fixed, insert: greedy_ids = self.greedy_sample(logits)
        logits, candidate_ids = self.apply_sampling_constraints(logits, metadata)  # fault
        return rejection_sample(
            draft_token_ids,
            metadata,
            self.greedy_sample(logits),  # fixed: greedy_ids,
            logits,
            candidate_ids,
            uniform,
        )


class ModelRunner:
    def __init__(self, config, lm_head):
        self.config = config
        self.logits_processor = LogitsProcessor(lm_head, config)
        sampler = AscendRejectionSampler if config.enable_reduce_sample else RejectionSampler
        self.rejection_sampler = sampler(config)

    def sample(self, hidden_states, logit_bias, draft_token_ids, metadata, uniform):
        logits = self.logits_processor(hidden_states, logit_bias)
        return self.rejection_sampler(logits, draft_token_ids, metadata, uniform)


def serve(config):
    @torch.no_grad()
    def step(hidden_states, lm_head, logit_bias, draft_token_ids, noise):
        runner = ModelRunner(config, lm_head)
        return runner.sample(hidden_states, logit_bias, draft_token_ids, SamplingMetadata(), torch.sigmoid(noise))

    return step


@gg.check(mesh={"tp": 3})
def check(mesh):
    drafts = gg.tensor(TOKENS, dtype=torch.int64, high=VOCAB)
    inputs = (gg.tensor(TOKENS, HIDDEN), gg.tensor(VOCAB, HIDDEN), gg.tensor(VOCAB), drafts, gg.tensor(TOKENS))
    impl = serve(AscendConfig(mesh.get_group("tp"), enable_reduce_sample=True))
    return gg.Refinement(serve(AscendConfig()), impl, inputs, out_relations="replicate", grads=False)
