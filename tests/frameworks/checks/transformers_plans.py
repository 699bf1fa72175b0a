"""transformers' own models under its own tensor-parallel plan, unmodified: loss and every gradient."""

import torch
import transformers
from torch import nn
from transformers.distributed import DistributedConfig

import graphguard as gg

SIZES = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "use_cache": False,
    "tie_word_embeddings": False,
}
TOKENS = gg.tensor(2, 8, dtype=torch.int64, low=0, high=32)


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, labels=tokens, use_cache=False).loss


class Hidden(Loss):
    def forward(self, tokens):
        return self.model.model(input_ids=tokens, use_cache=False).last_hidden_state


def pair(name: str, size: int, config: str = "", **others):
    """A model whole, and as transformers distributes it."""
    config, model = (getattr(transformers, kind) for kind in (config or f"{name}Config", f"{name}ForCausalLM"))
    distributed, _, mesh = model.prepare_distribute_model(DistributedConfig(tp_size=size))
    sizes = SIZES | others
    return model(config(**sizes)), model.maybe_distribute_model(model(config(**sizes)), distributed, mesh)


def language_model(name: str, mesh, **others) -> gg.Refinement:
    whole, parallel = pair(name, mesh.size(), **others)
    return gg.Refinement(Loss(whole), Loss(parallel), (TOKENS,))


@gg.check(mesh={"tp": 2})
def llama(mesh):
    return language_model("Llama", mesh)


@gg.check(mesh={"tp": 2})
def qwen3(mesh):
    return language_model("Qwen3", mesh, head_dim=8)


@gg.check(mesh={"tp": 2})
def gemma2(mesh):
    return language_model("Gemma2", mesh, head_dim=8, sliding_window=16)


@gg.check(mesh={"tp": 2})
def gpt_neox(mesh):
    """Attention and feed-forward side by side; the last token has no loss."""
    return language_model("GPTNeoX", mesh)


@gg.check(mesh={"tp": 2})
def mixtral(mesh):
    """Experts whose gate and up projections are packed: every rank has a part of both."""
    return language_model("Mixtral", mesh, num_local_experts=4, num_experts_per_tok=2)


@gg.check(mesh={"tp": 2})
def qwen3_moe(mesh):
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
    return language_model("Qwen3Moe", mesh, head_dim=8, **experts)


@gg.check(mesh={"tp": 2})
def qwen2_moe(mesh):
    """A shared expert behind a gate beside the others."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    return language_model("Qwen2Moe", mesh, shared_expert_intermediate_size=64, **experts)


def deepseek(name, mesh):
    """Latent attention, and experts chosen within groups of experts."""
    heads = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "n_shared_experts": 1}
    sizes = {"moe_intermediate_size": 16, "first_k_dense_replace": 0, "num_key_value_heads": 4}
    return language_model(name, mesh, **heads, **experts, **sizes)


@gg.check(mesh={"tp": 2})
def deepseek_v2(mesh):
    return deepseek("DeepseekV2", mesh)


@gg.check(mesh={"tp": 2})
def deepseek_v3(mesh):
    return deepseek("DeepseekV3", mesh)


@gg.check(mesh={"tp": 2})
def gpt_oss(mesh):
    """Learned attention sinks; experts with biases."""
    return language_model("GptOss", mesh, head_dim=8, num_local_experts=4, num_experts_per_tok=2)


@gg.check(mesh={"tp": 2})
def glm4_moe(mesh):
    """Experts beside one that all tokens have."""
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1}
    sizes = {"moe_intermediate_size": 32, "first_k_dense_replace": 0, "head_dim": 8}
    return language_model("Glm4Moe", mesh, **experts, **sizes)


@gg.check(mesh={"tp": 2})
def granite(mesh):
    """Embeddings, residuals, attention and logits with factors of their own."""
    return language_model("Granite", mesh)


@gg.check(mesh={"tp": 2})
def phi(mesh):
    return language_model("Phi", mesh)


@gg.check(mesh={"tp": 2})
def olmo2(mesh):
    """Norms over sharded queries and keys."""
    return language_model("Olmo2", mesh)


@gg.check(mesh={"tp": 2})
def gemma3(mesh):
    return language_model("Gemma3", mesh, config="Gemma3TextConfig", head_dim=8, sliding_window=16)


@gg.check(mesh={"tp": 2})
def hidden_states(mesh):
    """The head is not used: its gradient is zero."""
    whole, parallel = pair("Llama", mesh.size())
    return gg.Refinement(Hidden(whole), Hidden(parallel), (TOKENS,))


@gg.check(mesh={"tp": 2})
def without_gradients(mesh):
    """Without gradients transformers calls other collectives."""
    whole, parallel = pair("Llama", mesh.size())
    return gg.Refinement(whole, parallel, {"input_ids": TOKENS, "use_cache": False}, grads=False)
