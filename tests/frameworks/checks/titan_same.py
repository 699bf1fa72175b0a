"""torchtitan's Llama 3 as one program: what it is on one rank is its specification."""

from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.frameworks import torchtitan


@gg.check(mesh={"tp": 2})
def tensor_parallel(mesh):
    model = torchtitan.parallelized(torchtitan.llama3(), torchtitan.dims(mesh))
    return gg.Same(torchtitan.step(model), torchtitan.text(2, 8))


@gg.check(mesh={"dp": 2, "tp": 2})
def fully_sharded_and_tensor_parallel(mesh):
    model = torchtitan.parallelized(torchtitan.llama3(), torchtitan.dims(mesh))
    step = torchtitan.step(model, mesh.get_group("dp"))
    return gg.Same(step, torchtitan.text(4, 8), in_relations={"dp": Shard(0)})
