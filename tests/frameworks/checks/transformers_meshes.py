"""transformers' own distribution beyond tensor parallelism: FSDP, both together, and experts on ranks by either exchange."""

import torch
import torch.distributed as dist
import transformers
from torch.distributed.tensor import Shard
from transformers.distributed import DistributedConfig
from transformers_plans import SIZES

import graphguard as gg

TOKENS = gg.tensor(4, 4, dtype=torch.int64, low=0, high=32)
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


def step(model, group=None):
    """Loss and gradients; the loss is the mean of the ranks'."""

    def run(tokens):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        loss = loss.detach()
        if group is not None:
            dist.all_reduce(loss, group=group)
            loss /= dist.get_world_size(group)
        return {"loss": loss, **{name: p.grad for name, p in model.named_parameters()}}

    return run


def pair(name: str, others: dict, **distributed):
    config, model = getattr(transformers, f"{name}Config"), getattr(transformers, f"{name}ForCausalLM")
    settings, _, mesh = model.prepare_distribute_model(DistributedConfig(**distributed))
    sizes = SIZES | others
    return model(config(**sizes)), model.maybe_distribute_model(model(config(**sizes)), settings, mesh)


def over(axis: str, mesh, whole, parallel) -> gg.Refinement:
    return gg.Refinement(step(whole), step(parallel, mesh.get_group(axis)), (TOKENS,), in_relations=({axis: Shard(0)},))


@gg.check(mesh={"fsdp": 2})
def fully_sharded(mesh):
    return over("fsdp", mesh, *pair("Llama", {}, fsdp_size=2))


@gg.check(mesh={"fsdp": 2, "tp": 2})
def fully_sharded_and_tensor_parallel(mesh):
    return over("fsdp", mesh, *pair("Llama", {}, fsdp_size=2, tp_size=2))


@gg.check(mesh={"ep": 2})
def experts_that_get_tokens(mesh):
    return over("ep", mesh, *pair("Mixtral", EXPERTS, fsdp_size=2, ep_size=2, ep_implementation="all_to_all"))


@gg.check(mesh={"tp": 2})
def experts_that_add_up(mesh):
    whole, parallel = pair("Mixtral", EXPERTS, tp_size=2, ep_size=2, ep_implementation="all_reduce")
    return gg.Refinement(step(whole), step(parallel), (TOKENS,))
