"""A prompt whose beginning is cached is prefilled against the cache and no longer against its own keys; that the cache lies in blocks is not said, and the first rows of it are read. ssd, an engine after nano-vllm.

Source: https://github.com/tanishqkumar/ssd/issues/23
Rule: wrong-shard, wrong-relation
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

VOCAB, HIDDEN, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, NUM_LAYERS = 13, 8, 4, 2, 3, 2
BLOCK_SIZE, NUM_BLOCKS = 4, 12
# the second batch: a new prompt, and one that begins like the second of the first batch
FIRST = ((2, 9, 4, 4, 1, 7), (5, 1, 8, 8, 3, 0, 12, 6, 2, 2))
SECOND = ((11, 3, 3), (5, 1, 8, 8, 3, 0, 12, 6, 10, 4, 7))


@dataclass
class Context:
    cu_seqlens_q: list = field(default_factory=lambda: [0])
    cu_seqlens_k: list = field(default_factory=lambda: [0])
    slot_mapping: list = field(default_factory=list)
    block_tables: list | None = None


_CONTEXT = Context()


def get_context():
    return _CONTEXT


def set_context(context):
    global _CONTEXT
    _CONTEXT = context


class BlockManager:
    """Blocks of tokens; full ones are found again by what is in them and before them."""

    def __init__(self):
        self.free_block_ids = list(range(NUM_BLOCKS))
        self.hash_to_block_id = {}

    def allocate(self, token_ids):
        """The blocks of a prompt, and how many of its tokens are cached."""
        block_table, num_cached_tokens, cache_miss = [], 0, False
        for start in range(0, len(token_ids), BLOCK_SIZE):
            prefix = tuple(token_ids[: start + BLOCK_SIZE])
            full = len(prefix) == start + BLOCK_SIZE
            cache_miss = cache_miss or not full or prefix not in self.hash_to_block_id
            if cache_miss:
                block_id = self.free_block_ids.pop(0)
                if full:
                    self.hash_to_block_id[prefix] = block_id
            else:
                block_id = self.hash_to_block_id[prefix]
                num_cached_tokens += BLOCK_SIZE
            block_table.append(block_id)
        return block_table, num_cached_tokens


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale, block_table=None):
    """Causal, aligned at the ends. Without a block table the keys of the sequences follow each other."""
    outputs = []
    for index in range(len(cu_seqlens_q) - 1):
        query = q[cu_seqlens_q[index] : cu_seqlens_q[index + 1]]
        start, end = cu_seqlens_k[index], cu_seqlens_k[index + 1]
        if block_table is None:
            key, value = k.flatten(0, -3)[start:end], v.flatten(0, -3)[start:end]  # fault
        else:
            blocks = torch.tensor(block_table[index])
            key, value = k[blocks].flatten(0, 1)[: end - start], v[blocks].flatten(0, 1)[: end - start]
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
        scores = torch.einsum("qhd,khd->hqk", query, key) * softmax_scale
        causal = torch.ones(len(query), len(key), dtype=torch.bool).tril(len(key) - len(query))
        probs = scores.masked_fill(~causal, float("-inf")).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", probs, value))
    return torch.cat(outputs)


class Attention(nn.Module):
    def __init__(self, num_kv_heads):
        super().__init__()
        self.scale = HEAD_DIM**-0.5
        self.k_cache = torch.zeros(NUM_BLOCKS, BLOCK_SIZE, num_kv_heads, HEAD_DIM)
        self.v_cache = torch.zeros(NUM_BLOCKS, BLOCK_SIZE, num_kv_heads, HEAD_DIM)

    def store_kvcache(self, k, v, slot_mapping):
        slots = torch.tensor(slot_mapping)
        self.k_cache.view(-1, *k.shape[1:]).index_copy_(0, slots, k)
        self.v_cache.view(-1, *v.shape[1:]).index_copy_(0, slots, v)

    def forward(self, q, k, v):
        context = get_context()
        self.store_kvcache(k, v, context.slot_mapping)
        if context.block_tables is not None:  # prefix cache
            k, v = self.k_cache, self.v_cache  # fault
        return flash_attn_varlen_func(  # fault
            q,
            k,
            v,
            cu_seqlens_q=context.cu_seqlens_q,
            cu_seqlens_k=context.cu_seqlens_k,
            softmax_scale=self.scale,
            # fixed, insert: block_table=context.block_tables,
        )


class DecoderLayer(nn.Module):
    """Heads are divided among the ranks."""

    def __init__(self, q_proj, k_proj, v_proj, o_proj, group=None):
        super().__init__()
        self.group = group
        rank, size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
        self.qkv = [weight.chunk(size)[rank] for weight in (q_proj, k_proj, v_proj)]
        self.o_proj = o_proj.chunk(size, dim=1)[rank]
        self.attn = Attention(NUM_KV_HEADS // size)

    def forward(self, hidden_states):
        q, k, v = (F.linear(hidden_states, weight).unflatten(-1, (-1, HEAD_DIM)) for weight in self.qkv)
        out = F.linear(self.attn(q, k, v).flatten(1), self.o_proj)
        if self.group is not None:
            dist.all_reduce(out, group=self.group)
        return hidden_states + torch.tanh(out)


class ModelRunner:
    def __init__(self, embed_tokens, layers, group: Any = None):
        self.embed_tokens = embed_tokens
        self.layers = [DecoderLayer(*weights, group=group) for weights in layers]
        self.block_manager = BlockManager()

    def prepare_prefill(self, prompts):
        """Only what is not cached is computed."""
        context, input_ids, block_tables = Context(), [], []
        for prompt in prompts:
            block_table, num_cached_tokens = self.block_manager.allocate(prompt)
            new = range(num_cached_tokens, len(prompt))
            input_ids.extend(prompt[position] for position in new)
            context.slot_mapping.extend(block_table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in new)
            context.cu_seqlens_q.append(context.cu_seqlens_q[-1] + len(new))
            context.cu_seqlens_k.append(context.cu_seqlens_k[-1] + len(prompt))
            block_tables.append(block_table)
        if context.cu_seqlens_k[-1] > context.cu_seqlens_q[-1]:
            context.block_tables = block_tables
        set_context(context)
        return torch.tensor(input_ids)

    def run(self, prompts):
        """The logits after the last token of each prompt."""
        hidden_states = F.embedding(self.prepare_prefill(prompts), self.embed_tokens)
        for layer in self.layers:
            hidden_states = layer(hidden_states)
        last = torch.tensor(get_context().cu_seqlens_q[1:]) - 1
        return F.linear(hidden_states[last], self.embed_tokens)


def layers_of(weights):
    return [weights[start : start + 4] for start in range(0, 4 * NUM_LAYERS, 4)]


def reference(embed_tokens, *weights):
    """The specification: each prompt for itself, and nothing is kept."""
    first, second = ([ModelRunner(embed_tokens, layers_of(weights)).run([p]) for p in batch] for batch in (FIRST, SECOND))
    return torch.cat(first), torch.cat(second)


def serve(group):
    def run(embed_tokens, *weights):
        runner = ModelRunner(embed_tokens, layers_of(weights), group)
        return runner.run(FIRST), runner.run(SECOND)

    return run


@gg.check(mesh={"tp": 2})
def check(mesh):
    q, kv, o = gg.tensor(NUM_HEADS * HEAD_DIM, HIDDEN), gg.tensor(NUM_KV_HEADS * HEAD_DIM, HIDDEN), gg.tensor(HIDDEN, NUM_HEADS * HEAD_DIM)
    inputs = (gg.tensor(VOCAB, HIDDEN), *(q, kv, kv, o) * NUM_LAYERS)
    return gg.Refinement(reference, serve(mesh.get_group("tp")), inputs, out_relations="replicate", grads=False)
