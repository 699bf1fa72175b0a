"""Programs that people recognise, of sizes that a mesh of some twenty ranks divides."""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import Shard
from torch.nn.parallel import DistributedDataParallel

import graphguard as gg

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("examples", "tests/programs", "tests/frameworks/checks")]

import dtensor_llama  # noqa: E402
import llama as llama_example  # noqa: E402
import megatron_mlp  # noqa: E402
import moe as moe_example  # noqa: E402
import test_rings as rings  # noqa: E402


@gg.check(mesh={"tp": 24})
def mlp(mesh: Any) -> Any:
    sizes = 8, 2 * mesh.size()
    parallel = megatron_mlp.ParallelMLP(*sizes, mesh.get_group("tp"))
    return gg.Refinement(megatron_mlp.MLP(*sizes), parallel, (gg.tensor(3, 8),))


@gg.check(mesh={"tp": 20})
def llama(mesh: Any) -> Any:
    n = mesh.size()
    config = llama_example.Config(dim=8, heads=2 * n, kv_heads=n, head_dim=4, hidden=2 * n)
    parallel = llama_example.ParallelDecoderLayer(config, mesh.get_group("tp"))
    return gg.Refinement(llama_example.DecoderLayer(config), parallel, (gg.tensor(1, 4, 8),), out_relations="replicate")


@gg.check(mesh={"ep": 20})
def moe(mesh: Any) -> Any:
    sizes = 6, 10, 2 * mesh.size()
    parallel = moe_example.ParallelMoE(*sizes, mesh.get_group("ep"))
    return gg.Refinement(moe_example.MoE(*sizes), parallel, (gg.tensor(5, 6),), out_relations="replicate")


@gg.check(mesh={"cp": 18})
def ring(mesh: Any) -> Any:
    n = mesh.size()
    order = torch.cat([rings.in_order(rank, n, 2) for rank in range(n)])
    whole, part = rings.Whole(order, False), rings.Attention(mesh, rings.in_order, False)
    inputs = tuple(gg.tensor(1, 1, 2 * n, rings.WIDTH) for _ in range(3))
    return gg.Refinement(whole, part, inputs, in_relations={"cp": Shard(2)}, out_relations={"cp": Shard(2)})


@gg.check(mesh={"dp": 32})
def data_parallel(mesh: Any) -> Any:
    model = DistributedDataParallel(nn.Linear(4, 3))
    return gg.Refinement(
        nn.Linear(4, 3),
        model,
        (gg.tensor(mesh.size(), 4),),
        in_relations={"dp": Shard(0)},
        out_relations={"dp": Shard(0)},
        grads=False,
    )


@gg.check(mesh={"dp": 8, "tp": 4})
def sharded_and_parallel(mesh: Any) -> Any:
    dtensor_llama.CONFIG = dtensor_llama.Config(vocabulary=64, heads=8, kv_heads=8, hidden=64, tokens=4)
    config, tokens = dtensor_llama.CONFIG, dtensor_llama.tokens_and_labels(8)
    model = dtensor_llama.tensor_parallel(dtensor_llama.Llama(config), mesh["tp"], shard_loss=False)
    step = dtensor_llama.train_step(
        dtensor_llama.Loss(dtensor_llama.shard_fully(model, mesh["dp"])), mesh.get_group("dp")
    )
    whole = dtensor_llama.train_step(dtensor_llama.Loss(dtensor_llama.Llama(config)))
    return gg.Refinement(whole, step, tokens, in_relations={"dp": Shard(0)})
