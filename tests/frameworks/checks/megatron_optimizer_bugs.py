"""A mistake in a data-parallel step with megatron-core: gradients that are never finalised."""

from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron_gpt import config, gpt, parallel, step
from megatron_optimizer import TEXT
from torch.distributed.tensor import Shard

import graphguard as gg


def specification():
    parallel()
    run = step(gpt(config()).cuda())

    def alone(tokens, labels):
        parallel()
        return {name: value for name, value in run(tokens, labels).items() if name != "loss"}

    return alone


@gg.check(mesh={"dp": 2})
def not_finalised(mesh):
    spec = specification()
    parallel()
    settings = config()
    wrapping = DistributedDataParallelConfig(overlap_grad_reduce=False)
    model = DistributedDataParallel(settings, wrapping, gpt(settings).cuda())
    run = step(model)

    def gradients(tokens, labels):
        return {name: value for name, value in run(tokens, labels).items() if name != "loss"}  # the mistake

    return gg.Refinement(spec, gradients, TEXT, in_relations={"dp": Shard(0)}, out_relations="replicate")
