"""Guidance needs three predictions, of the prompt with its image, of the image alone and of the prompt alone; each rank makes one, so that two ranks make two, and the third term is left out without a word. vLLM-Omni's Bagel with CFG parallelism.

Source: https://github.com/vllm-project/vllm-omni/pull/1578
Rule: wrong-relation
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

PATCHES, LATENT, TEXT, IMAGE, CONTEXT, INNER = 9, 5, 4, 3, 6, 20
TIMESTEPS = (1.0, 0.6, 0.1)


@dataclass(frozen=True)
class CFGParams:
    cfg_text_scale: float = 3.0
    cfg_img_scale: float = 1.5
    cfg_renorm_type: str = "global"


class Attention(nn.Module):
    """Patches to what they are conditioned on."""

    def __init__(self):
        super().__init__()
        self.q = nn.Linear(LATENT, CONTEXT, bias=False)
        self.v = nn.Linear(CONTEXT, LATENT, bias=False)

    def forward(self, x, context):
        scores = self.q(x) @ context.t() * CONTEXT**-0.5
        return self.v(scores.softmax(-1) @ context)


class MLP(nn.Module):
    def __init__(self, up, down, tp_group=None):
        super().__init__()
        self.up, self.down, self.tp_group = nn.Parameter(up), nn.Parameter(down), tp_group

    def parallelize(self, tp_group):
        rank, size = dist.get_rank(tp_group), dist.get_world_size(tp_group)
        return MLP(self.up.detach().chunk(size, dim=1)[rank], self.down.detach().chunk(size, dim=0)[rank], tp_group)

    def forward(self, x):
        out = torch.tanh(x @ self.up) @ self.down
        if self.tp_group is not None:
            dist.all_reduce(out, group=self.tp_group)
        return out


class BagelTransformer(nn.Module):
    def __init__(self, attention, mlp, time):
        super().__init__()
        self.attention, self.mlp, self.time = attention, mlp, time

    def forward(self, x, timestep, context):
        """The velocity of one branch."""
        hidden = x + self.time * timestep
        hidden = hidden + self.attention(hidden, context)
        return hidden + self.mlp(hidden)


class BagelPipeline:
    def __init__(self, transformer, params):
        self.transformer, self.params = transformer, params

    def branches(self, text, image):
        """What each prediction is conditioned on; the first is the one that is asked for."""
        contexts = [torch.cat((text, image)), image]
        if self.params.cfg_img_scale > 1.0:
            contexts.append(text)
        return contexts

    def combine_cfg(self, v_t, cfg_text_v_t, cfg_img_v_t):
        guided = cfg_text_v_t + self.params.cfg_text_scale * (v_t - cfg_text_v_t)
        if cfg_img_v_t is not None:
            guided = cfg_img_v_t + self.params.cfg_img_scale * (guided - cfg_img_v_t)
        if self.params.cfg_renorm_type == "global":
            guided = guided * (v_t.square().sum() / guided.square().sum()).sqrt()
        return guided

    def predict(self, x_t, timestep, contexts):
        """All branches, one after the other."""
        velocities = [self.transformer(x_t, timestep, context) for context in contexts]
        return self.combine_cfg(*velocities, *[None] * (3 - len(velocities)))

    def generate_image(self, x_t, text, image):
        contexts = self.branches(text, image)
        for timestep, following in pairwise(TIMESTEPS):
            x_t = x_t - self.predict(x_t, timestep, contexts) * (timestep - following)
        return x_t


class CFGParallelBagelPipeline(BagelPipeline):
    """The branches of a step run on different ranks."""

    def __init__(self, transformer, params, cfg_group):
        super().__init__(transformer, params)
        self.cfg_group = cfg_group
        self.cfg_rank, self.cfg_size = dist.get_rank(cfg_group), dist.get_world_size(cfg_group)

    def gather_round(self, x_t, timestep, contexts):
        """One branch of each rank; a rank without one runs the first again."""
        mine = contexts[self.cfg_rank] if self.cfg_rank < len(contexts) else contexts[0]
        local_v_t = self.transformer(x_t, timestep, mine)
        gathered = [torch.empty_like(local_v_t) for _ in range(self.cfg_size)]
        dist.all_gather(gathered, local_v_t.contiguous(), group=self.cfg_group)
        return gathered[: len(contexts)]

    def predict(self, x_t, timestep, contexts):
        """The first rank puts them together, the others are told."""
        gathered = self.gather_round(x_t, timestep, contexts)
        # fixed, insert: while len(gathered) < len(contexts):
        # fixed, insert:     gathered += self.gather_round(x_t, timestep, contexts[len(gathered) :])
        v_t = torch.empty_like(x_t)
        if self.cfg_rank == 0:
            cfg_img_v_t = gathered[2] if len(gathered) > 2 else None  # fault
            v_t = self.combine_cfg(gathered[0], gathered[1], cfg_img_v_t)
        dist.broadcast(v_t, dist.get_global_rank(self.cfg_group, 0), group=self.cfg_group)
        return v_t


@gg.check(mesh={"cfg": 2, "tp": 2})
def check(mesh):
    params = CFGParams()
    attention, time = Attention(), torch.linspace(-0.5, 0.75, LATENT)
    mlp = MLP(torch.randn(LATENT, INNER) * 0.5, torch.randn(INNER, LATENT) * 0.5)
    pipeline = BagelPipeline(BagelTransformer(attention, mlp, time), params)
    local = BagelTransformer(attention, mlp.parallelize(mesh.get_group("tp")), time)
    parallel = CFGParallelBagelPipeline(local, params, mesh.get_group("cfg"))

    def generate(which):
        def run(x_t, text, image):
            with torch.no_grad():
                return which.generate_image(x_t, text, image)

        return run

    inputs = (gg.tensor(PATCHES, LATENT), gg.tensor(TEXT, CONTEXT), gg.tensor(IMAGE, CONTEXT))
    return gg.Refinement(
        generate(pipeline), generate(parallel), inputs, in_relations={}, out_relations="replicate", grads=False
    )
