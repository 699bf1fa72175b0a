"""torchtitan's own Llama 3 under its own plan: tensor and sequence parallelism."""

import torch
import torch.nn.functional as F
from torchtitan.distributed import ParallelDims
from torchtitan.models.common import Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.rope import ComplexRoPE
from torchtitan.models.llama3 import _build_llama3_layers
from torchtitan.models.llama3.model import Llama3Model
from torchtitan.models.llama3.sharding import set_llama3_sharding_config

import graphguard as gg

VOCABULARY, DIM, TOKENS = 32, 32, 8


def model(*, sequence_parallel: bool = True, attention=None) -> Llama3Model:
    config = Llama3Model.Config(
        dim=DIM,
        vocab_size=VOCABULARY,
        tok_embeddings=Embedding.Config(num_embeddings=VOCABULARY, embedding_dim=DIM),
        norm=RMSNorm.Config(normalized_shape=DIM),
        lm_head=Linear.Config(in_features=DIM, out_features=VOCABULARY),
        layers=_build_llama3_layers(
            n_layers=1,
            dim=DIM,
            n_heads=4,
            n_kv_heads=2,
            hidden_dim=48,
            fuse_qkv=False,
            rope=ComplexRoPE.Config(dim=DIM // 4, max_seq_len=16, theta=10000, scaling="none"),
            attn_backend="flex",
        ),
    )
    config.layers[0].attention.inner_attention = attention or ScaledDotProductAttention.Config()
    set_llama3_sharding_config(config, enable_sp=sequence_parallel)
    return config.build()


def dims(world: int, *, tp: int) -> ParallelDims:
    return ParallelDims(
        dp_replicate=1, dp_shard=1, cp=1, tp=tp, pp=1, ep=1, world_size=world, spmd_backend="partial_dtensor"
    )


def step(llama):
    """Loss and gradients."""

    def run(tokens, labels):
        logits = llama(tokens)
        logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        return {"loss": loss.detach(), **{name: p.grad for name, p in llama.named_parameters()}}

    return run


TEXT = tuple(gg.tensor(2, TOKENS, dtype=torch.int64, low=0, high=VOCABULARY) for _ in range(2))


@gg.check(mesh={"tp": 2})
def tensor_parallel(mesh):
    parallel = model()
    parallel.parallelize(dims(2, tp=2))
    return gg.Refinement(step(model()), step(parallel), TEXT)
