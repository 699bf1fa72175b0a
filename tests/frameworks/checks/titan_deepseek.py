"""torchtitan's own DeepSeek-V3 under its own plan: latent attention, a dense layer and one with experts; tensor and sequence parallelism."""

from titan_llama import DIM, TEXT, VOCABULARY, dims, step
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.deepseek_v3 import DeepSeekV3Model, _build_dsv3_layers
from torchtitan.models.deepseek_v3.sharding import set_deepseek_v3_sharding_config

import graphguard as gg


def model(layers: int, dense: int) -> DeepSeekV3Model:
    config = DeepSeekV3Model.Config(
        dim=DIM,
        vocab_size=VOCABULARY,
        tok_embeddings=Embedding.Config(num_embeddings=VOCABULARY, embedding_dim=DIM),
        norm=RMSNorm.Config(normalized_shape=DIM),
        lm_head=Linear.Config(in_features=DIM, out_features=VOCABULARY),
        mtp_layers=[],
        layers=_build_dsv3_layers(
            n_layers=layers,
            n_dense_layers=dense,
            dim=DIM,
            n_heads=4,
            q_lora_rank=0,
            kv_lora_rank=16,
            qk_nope_head_dim=8,
            qk_rope_head_dim=4,
            v_head_dim=8,
            mscale=0.7,
            dense_hidden_dim=48,
            moe_hidden_dim=48,
            num_experts=4,
            num_shared_experts=1,
            router_top_k=2,
            router_score_func="softmax",
            attn_backend="flex",
            moe_comm_backend="standard",
            non_blocking_capacity_factor=None,
            rope=ComplexRoPE.Config(dim=4, max_seq_len=16, theta=10000.0, scaling="none"),
        ),
    )
    for layer in config.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    set_deepseek_v3_sharding_config(config, enable_sp=True, enable_ep=False)
    return config.build()


def pair(layers: int, dense: int) -> gg.Refinement:
    parallel = model(layers, dense)
    parallel.parallelize(dims(2, tp=2))
    return gg.Refinement(step(model(layers, dense)), step(parallel), TEXT)


@gg.check(mesh={"tp": 2})
def dense(mesh):
    return pair(1, 1)


@gg.check(mesh={"tp": 2})
def experts(mesh):
    return pair(1, 0)
