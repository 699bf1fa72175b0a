"""Attention by data parallelism, the head by tensor parallelism: all ranks' padded rows are scored by each rank's part of the vocabulary; the greedy path keeps the first rows and takes their best word of the own part. TensorRT-LLM's MTP-Eagle.

Source: https://github.com/NVIDIA/TensorRT-LLM/pull/16440
Rule: wrong-relation, wrong-shard, missing-reduction
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

REQUESTS, MAX_NUM_REQUESTS, HIDDEN, VOCAB, MAX_DRAFT_LEN = 6, 3, 5, 12, 3


@dataclass(frozen=True)
class Mapping:
    group: Any = None
    enable_attention_dp: bool = True
    enable_lm_head_tp_in_adp: bool = True

    @property
    def tp_size(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def tp_rank(self):
        return 0 if self.group is None else dist.get_rank(self.group)


@dataclass(frozen=True)
class SpecMetadata:
    max_num_requests: int = MAX_NUM_REQUESTS
    is_all_greedy_sample: bool = True


def allgather(tensor, mapping, dim):
    if mapping.tp_size == 1:
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(mapping.tp_size)]
    dist.all_gather(parts, tensor.contiguous(), group=mapping.group)
    return torch.cat(parts, dim=dim)


class LMHead(nn.Module):
    """Each rank has a part of the words."""

    def __init__(self, weight, mapping):
        super().__init__()
        self.weight = weight.chunk(mapping.tp_size)[mapping.tp_rank]

    def forward(self, hidden_states):
        return F.linear(hidden_states, self.weight)


class MTPHead(nn.Module):
    def __init__(self, norm, mapping):
        super().__init__()
        self.norm = norm
        self.mapping = mapping
        self.mapping_lm_head_tp = None

    def forward(self, hidden_states, lm_head, spec_metadata):
        """Logits of the own rows; with the head's tensor parallelism of all ranks' padded rows, and of the own words."""
        hidden_states = F.rms_norm(hidden_states, (HIDDEN,), self.norm)
        if self.mapping.tp_size > 1 and self.mapping.enable_lm_head_tp_in_adp:
            self.mapping_lm_head_tp = self.mapping
            padding = spec_metadata.max_num_requests - hidden_states.shape[0]
            hidden_states = F.pad(hidden_states, (0, 0, 0, padding))
            hidden_states = allgather(hidden_states, self.mapping_lm_head_tp, dim=0)  # near
        return lm_head(hidden_states)


class MTPLayer(nn.Module):
    def __init__(self, embed_tokens, enorm, hnorm, eh_proj, mlp, head_norm, mapping):
        super().__init__()
        self.embed_tokens = embed_tokens
        self.enorm, self.hnorm = enorm, hnorm
        self.eh_proj, self.mlp = eh_proj, mlp
        self.shared_head = MTPHead(head_norm, mapping)

    def forward(self, input_ids, hidden_states):
        embeds = F.rms_norm(F.embedding(input_ids, self.embed_tokens), (HIDDEN,), self.enorm)
        hidden_states = F.rms_norm(hidden_states, (HIDDEN,), self.hnorm)
        hidden_states = F.linear(torch.cat([embeds, hidden_states], dim=-1), self.eh_proj)
        return hidden_states + F.linear(torch.tanh(hidden_states), self.mlp)


class MTPEagleWorker:
    def __init__(self, mapping):
        self.mapping = mapping

    def get_local_max_and_combined(self, logits, mapping):
        """The best word of the own part, by its number among all words, with its score."""
        local_max_values, local_argmax = torch.max(logits, dim=-1, keepdim=True)
        max_index_per_rank = local_argmax + mapping.tp_rank * logits.shape[-1]
        return torch.stack([max_index_per_rank.float(), local_max_values.float()], dim=-1).flatten(-2)

    def get_draft_tokens_from_gathered(self, gathered):
        gathered_indices, gathered_values = gathered[..., 0::2], gathered[..., 1::2]
        max_indices = torch.argmax(gathered_values, dim=-1, keepdim=True)
        return torch.gather(gathered_indices, -1, max_indices).squeeze(-1).long()

    def draft_sampler(self, logits, mapping_lm_head_tp=None):
        if mapping_lm_head_tp is None or mapping_lm_head_tp.tp_size == 1:
            return self._draft_sampler_greedy(logits)
        combined = self.get_local_max_and_combined(logits, mapping_lm_head_tp)
        gathered = allgather(combined, mapping_lm_head_tp, dim=-1)
        local_batch_size = logits.shape[0] // mapping_lm_head_tp.tp_size
        gathered = gathered.view(mapping_lm_head_tp.tp_size, local_batch_size, -1)
        return self.get_draft_tokens_from_gathered(gathered[mapping_lm_head_tp.tp_rank])

    def _draft_sampler_greedy(self, logits):
        return torch.argmax(logits, dim=-1)  # fault

    def sample_draft_tokens(self, logits, spec_metadata):
        if not spec_metadata.is_all_greedy_sample:
            raise NotImplementedError("advanced sampling")
        return self._draft_sampler_greedy(logits)  # fault

    def forward(self, input_ids, hidden_states, draft_model, lm_head, spec_metadata):
        """The drafts of the own requests, word by word."""
        token_count = input_ids.shape[0]
        next_draft_tokens = []
        for _ in range(MAX_DRAFT_LEN):
            hidden_states = draft_model(input_ids, hidden_states)
            logits = draft_model.shared_head(hidden_states, lm_head, spec_metadata)
            use_lm_head_tp_in_adp = self.mapping.enable_attention_dp and self.mapping.enable_lm_head_tp_in_adp
            if use_lm_head_tp_in_adp and self.mapping.tp_size > 1:
                logits = logits[:token_count]  # fixed: new_draft_token = self.draft_sampler(logits, draft_model.shared_head.mapping_lm_head_tp)
                new_draft_token = self.sample_draft_tokens(logits, spec_metadata)  # fixed: new_draft_token = new_draft_token[:token_count]
            else:
                new_draft_token = self.sample_draft_tokens(logits, spec_metadata)
            next_draft_tokens.append(new_draft_token)
            input_ids = new_draft_token
        return torch.stack(next_draft_tokens, dim=1), hidden_states


def generate(group):
    def run(input_ids, hidden_states, embed_tokens, head, *weights):
        mapping = Mapping(group)
        draft_model = MTPLayer(embed_tokens, *weights, mapping)
        worker = MTPEagleWorker(mapping)
        drafts, hidden = worker.forward(input_ids, hidden_states, draft_model, LMHead(head, mapping), SpecMetadata())
        return {"next_draft_tokens": drafts, "hidden_states": hidden}

    return run


@gg.check(mesh={"tp": 3})
def check(mesh):
    words, norm = gg.tensor(VOCAB, HIDDEN), gg.tensor(HIDDEN)
    requests = (gg.tensor(REQUESTS, dtype=torch.int64, low=0, high=VOCAB), gg.tensor(REQUESTS, HIDDEN))
    weights = (words, words, norm, norm, gg.tensor(HIDDEN, 2 * HIDDEN), gg.tensor(HIDDEN, HIDDEN), norm)
    own = {"tp": Shard(0)}
    return gg.Refinement(
        generate(None),
        generate(mesh.get_group("tp")),
        requests + weights,
        in_relations=(own, own) + ({},) * len(weights),
        out_relations=own,
        grads=False,
    )
