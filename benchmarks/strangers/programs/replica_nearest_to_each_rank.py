"""Some experts have replicas, and every rank chooses the nearest one; where all ranks have all tokens and sum up what their experts give, two replicas both answer. SGLang's EPLB.

Source: https://github.com/sgl-project/sglang/pull/32962
Rule: wrong-relation, extra-reduction, wrong-shard, wrong-scale
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

EXPERTS, DIM, INNER = 4, 3, 5
# which expert each place holds; three places on each rank
PHYSICAL_TO_LOGICAL_MAP = [0, 1, 2, 2, 3, 0]
# what the router chose for every token
TOPK_IDS = torch.tensor([[0, 1], [3, 2], [1, 3], [2, 0], [0, 3], [1, 2], [3, 0]])


@dataclass
class ServerArgs:
    ep_size: int
    enable_eplb: bool = True
    moe_a2a_backend: str = "none"
    ep_dispatch_algorithm: str | None = None

    def handle_eplb(self):
        """Every option that was not given."""
        if self.enable_eplb and self.ep_dispatch_algorithm is None:
            self.ep_dispatch_algorithm = "static"  # fixed: self.ep_dispatch_algorithm = "dynamic" if self.moe_a2a_backend == "none" else "static"
        return self


def find_nearest(candidate_physical_ids, num_local_physical_experts, ep_rank):
    """A replica on this rank, or else one that depends on the rank."""
    here = [one for one in candidate_physical_ids if one // num_local_physical_experts == ep_rank]
    return here[0] if here else candidate_physical_ids[ep_rank % len(candidate_physical_ids)]


class ExpertLocationMetadata:
    def __init__(self, physical_to_logical_map, ep_size, ep_rank):
        self.physical_to_logical_map = physical_to_logical_map
        self.num_local_physical_experts = len(physical_to_logical_map) // ep_size
        self.logical_to_all_physical_map = [
            [place for place, held in enumerate(physical_to_logical_map) if held == expert] for expert in range(EXPERTS)
        ]
        self.logical_to_rank_dispatch_physical_map = torch.tensor(
            [
                find_nearest(candidates, self.num_local_physical_experts, ep_rank)
                for candidates in self.logical_to_all_physical_map
            ]
        )


class ExpertLocationDispatchInfo:
    """How the router's expert ids become places."""

    def __init__(self, metadata, ep_dispatch_algorithm):
        self.metadata = metadata
        self.ep_dispatch_algorithm = ep_dispatch_algorithm

    def topk_ids_logical_to_physical(self, topk_ids):
        if self.ep_dispatch_algorithm == "static":
            return self.metadata.logical_to_rank_dispatch_physical_map[topk_ids]  # fault
        return self.topk_ids_by_row(topk_ids)

    def topk_ids_by_row(self, topk_ids):
        """Rows take turns, so that all replicas are used."""
        candidates = self.metadata.logical_to_all_physical_map
        return torch.tensor(
            [
                [candidates[one][row % len(candidates[one])] for one in ids]
                for row, ids in enumerate(topk_ids.tolist())
            ]
        )


def expert(x, w13, w2):
    gate, up = (x @ w13).chunk(2, dim=-1)
    return (torch.relu(gate) * up) @ w2


class SparseMoE(nn.Module):
    """All experts once."""

    def __init__(self):
        super().__init__()
        self.w13 = nn.Parameter(torch.randn(EXPERTS, DIM, 2 * INNER))
        self.w2 = nn.Parameter(torch.randn(EXPERTS, INNER, DIM))

    def forward(self, x, topk_weights):
        out = torch.zeros_like(x)
        for one in range(EXPERTS):
            weight = (topk_weights * (one == TOPK_IDS)).sum(-1, keepdim=True)
            out = out + weight * expert(x, self.w13[one], self.w2[one])
        return out


class FusedMoE(nn.Module):
    """The experts in the places of one rank; no tokens are exchanged, since every rank has all of them."""

    def __init__(self, server_args, ep_group):
        super().__init__()
        self.ep_group = ep_group
        self.ep_rank = dist.get_rank(ep_group)
        metadata = ExpertLocationMetadata(PHYSICAL_TO_LOGICAL_MAP, server_args.ep_size, self.ep_rank)
        self.dispatch_info = ExpertLocationDispatchInfo(metadata, server_args.ep_dispatch_algorithm)
        self.num_local = metadata.num_local_physical_experts
        self.first = self.ep_rank * self.num_local
        self.w13 = nn.Parameter(torch.empty(self.num_local, DIM, 2 * INNER))
        self.w2 = nn.Parameter(torch.empty(self.num_local, INNER, DIM))

    def load_weights(self, state):
        held = PHYSICAL_TO_LOGICAL_MAP[self.first : self.first + self.num_local]
        with torch.no_grad():
            for place, one in enumerate(held):
                self.w13[place].copy_(state["w13"][one])
                self.w2[place].copy_(state["w2"][one])

    @torch.no_grad()
    def forward(self, x, topk_weights):
        topk_ids = self.dispatch_info.topk_ids_logical_to_physical(TOPK_IDS)
        out = torch.zeros_like(x)
        for place in range(self.num_local):
            weight = (topk_weights * (topk_ids == self.first + place)).sum(-1, keepdim=True)
            out = out + weight * expert(x, self.w13[place], self.w2[place])
        dist.all_reduce(out, group=self.ep_group)  # near
        return out


@gg.check(mesh={"ep": 2})
def check(mesh):
    server_args = ServerArgs(ep_size=2).handle_eplb()
    impl = FusedMoE(server_args, mesh.get_group("ep"))
    inputs = (gg.tensor(len(TOPK_IDS), DIM), gg.tensor(*TOPK_IDS.shape))
    return gg.Refinement(
        SparseMoE(),
        impl,
        inputs,
        load=lambda state, impl, mesh: impl.load_weights(state),
        out_relations="replicate",
        grads=False,
    )
