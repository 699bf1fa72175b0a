"""torchtitan's own Qwen3 under its own plan, dense and as a mixture of experts: tensor and sequence parallelism."""

from titan_llama import DIM, TEXT, VOCABULARY, dims, step
from torchtitan.models.common import CosSinRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.qwen3 import Qwen3Model, _build_qwen3_layers, _build_qwen3_moe_layers
from torchtitan.models.qwen3.sharding import set_qwen3_sharding_config

import graphguard as gg

DENSE = {"hidden_dim": 48}
EXPERTS = {"moe_hidden_dim": 48, "num_experts": 4, "top_k": 2, "moe_comm_backend": "standard"}


def model(build, sizes: dict) -> Qwen3Model:
    config = Qwen3Model.Config(
        dim=DIM,
        vocab_size=VOCABULARY,
        enable_weight_tying=False,
        tok_embeddings=Embedding.Config(num_embeddings=VOCABULARY, embedding_dim=DIM),
        norm=RMSNorm.Config(normalized_shape=DIM),
        lm_head=Linear.Config(in_features=DIM, out_features=VOCABULARY),
        layers=build(
            n_layers=1,
            dim=DIM,
            n_heads=4,
            n_kv_heads=2,
            head_dim=8,
            fuse_qkv=False,
            attn_backend="flex",
            rope=CosSinRoPE.Config(dim=8, max_seq_len=16, theta=10000.0),
            **sizes,
        ),
    )
    config.layers[0].attention.inner_attention = ScaledDotProductAttention.Config()
    set_qwen3_sharding_config(config, enable_sp=True, enable_ep=False)
    return config.build()


def pair(build, sizes: dict, steps=step) -> gg.Refinement:
    parallel = model(build, sizes)
    parallel.parallelize(dims(2, tp=2))
    return gg.Refinement(step(model(build, sizes)), steps(parallel), TEXT)


@gg.check(mesh={"tp": 2})
def dense(mesh):
    return pair(_build_qwen3_layers, DENSE)


@gg.check(mesh={"tp": 2})
def experts(mesh):
    return pair(_build_qwen3_moe_layers, EXPERTS)
