"""transformers' own models as one program: what they are on one rank is their specification."""

from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.frameworks import transformers


@gg.check(mesh={"tp": 2}, params={"family": ["Llama", "Mixtral"]})
def tensor_parallel(mesh, family):
    model = transformers.model(family, distributed={"tp_size": mesh.size()})
    return gg.Same(transformers.step(model), (transformers.text(2, 8),))


@gg.check(mesh={"fsdp": 2})
def fully_sharded(mesh):
    model = transformers.model("Llama", distributed={"fsdp_size": mesh.size()})
    step = transformers.step(model, mesh.get_group("fsdp"))
    return gg.Same(step, (transformers.text(4, 4),), in_relations=({"fsdp": Shard(0)},))
