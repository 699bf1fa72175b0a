"""megatron-core's mixture of experts with experts on several ranks, whose dispatcher gathers the tokens of all of them; with every gradient."""

import torch
import torch.distributed as dist
from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron_gpt import BATCH, TOKENS, config, parallel
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

EXPERTS, RANKS = 4, 2
PART = {"ep": Shard(0)}
# without Transformer Engine 0.16 leaves this name undefined, and uses it
moe_utils.te_general_gemm = None


class Experts(nn.Module):
    def __init__(self, ranks: int = 1) -> None:
        super().__init__()
        settings = config(
            num_moe_experts=EXPERTS,
            moe_router_topk=2,
            moe_router_load_balancing_type="none",
            moe_token_dispatcher_type="allgather",
            expert_model_parallel_size=ranks,
        )
        spec = get_moe_module_spec(use_te=False, num_experts=EXPERTS, moe_grouped_gemm=False)
        self.layer = MoELayer(settings, submodules=spec.submodules).cuda()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.cuda())[0]


def placed(name: str, first: int) -> str:
    """The name in the whole layer of an expert that a rank counts from its own first one."""
    before, _, after = name.partition("local_experts.")
    if not after:
        return name
    number, _, rest = after.partition(".")
    return f"{before}local_experts.{int(number) + first}.{rest}"


@gg.check(mesh={"ep": RANKS})
def gathered_tokens(mesh):
    parallel()
    spec = Experts()
    parallel(expert_model_parallel_size=RANKS)
    impl = Experts(RANKS)
    first = mesh.get_local_rank("ep") * EXPERTS // RANKS

    def load(state, _, __):
        with torch.no_grad():
            for name, parameter in impl.named_parameters():
                parameter.copy_(state[placed(name, first)])

    def total(grad):  # as the finaliser does it, which this layer alone does not have
        grad = grad.clone()
        dist.all_reduce(grad, group=mesh.get_group("ep"))
        return grad

    impl.layer.router.weight.register_hook(total)
    x = gg.tensor(TOKENS, BATCH, 16)
    return gg.Refinement(spec, impl, (x,), in_relations=(PART,), out_relations=PART, load=load)
