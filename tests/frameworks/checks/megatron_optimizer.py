"""megatron-core's data parallelism as it is: its DDP with the finaliser, and its optimizers, whole states on every rank or sharded, as one training step."""

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, clip_grads, get_megatron_optimizer
from megatron_gpt import TOKENS, VOCABULARY, config, gpt, parallel, step
from torch.distributed.tensor import Shard

import graphguard as gg

TEXT = tuple(gg.tensor(4, TOKENS, dtype=torch.int64, low=0, high=VOCABULARY) for _ in range(2))
RATE, EPSILON = 0.01, 1e-8


def norm(_chunk, _overflow, lists, *_):
    """The norm that Apex and Transformer Engine compute at once; what stands in for it without them asks for a number that the data decides."""
    return torch.stack([gradient.norm() for gradient in lists[0]]).norm().view(1), None


clip_grads.l2_norm_impl = norm


def train(model, optimizer, finalise=None):
    """The parameters after one step."""
    gradients = step(model, finalise)

    def run(tokens, labels):
        optimizer.zero_grad()
        gradients(tokens, labels)
        optimizer.step()
        return dict(model.named_parameters())

    return run


def specification():
    """PyTorch's own Adam on one rank."""
    parallel()
    model = gpt(config()).cuda()
    run = train(model, torch.optim.AdamW(model.parameters(), lr=RATE, eps=EPSILON, weight_decay=0.0))

    def alone(tokens, labels):
        parallel()
        return run(tokens, labels)

    return alone


def ranks(*, sharded: bool):
    parallel()
    settings = config()
    wrapping = DistributedDataParallelConfig(overlap_grad_reduce=False, use_distributed_optimizer=sharded)
    model = DistributedDataParallel(settings, wrapping, gpt(settings).cuda())
    asked = OptimizerConfig(
        optimizer="adam",
        lr=RATE,
        adam_eps=EPSILON,
        weight_decay=0.0,
        clip_grad=0.0,
        use_distributed_optimizer=sharded,
    )
    return train(model, get_megatron_optimizer(asked, [model]), finalize_model_grads)


@gg.check(mesh={"dp": 2})
def data_parallel(mesh):
    spec = specification()
    return gg.Refinement(spec, ranks(sharded=False), TEXT, in_relations={"dp": Shard(0)})


@gg.check(mesh={"dp": 2})
def distributed_optimizer(mesh):
    spec = specification()
    return gg.Refinement(spec, ranks(sharded=True), TEXT, in_relations={"dp": Shard(0)})
