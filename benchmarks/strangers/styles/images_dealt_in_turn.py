"""A vision encoder whose images are dealt to the ranks, while the language model has all features.

The mistake: images are dealt in turn (rank::world) and gathered rank after rank: their features are in the order 0, 2, 4, 1, 3, 5.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

PATCH, DIM, HIDDEN, IMAGES, PATCHES = 4, 5, 6, 6, 3


class VisionEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Linear(PATCH, DIM)
        self.norm = nn.LayerNorm(DIM)
        self.mlp = nn.Linear(DIM, DIM)

    def forward(self, pixels):
        h = self.patch_embed(pixels)
        h = h + F.gelu(self.mlp(self.norm(h)))
        return h.mean(dim=1)


def run_dp_sharded_vision_model(pixels, encoder, group):
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    features = encoder(pixels[rank::world])  # fault
    parts = [torch.empty_like(features) for _ in range(world)]
    dist.all_gather(parts, features, group=group)
    return torch.cat(parts)  # fixed: return torch.stack(parts, dim=1).flatten(0, 1)


class VLM(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        self.group = group
        self.visual = VisionEncoder()
        self.projector = nn.Linear(DIM, HIDDEN)
        self.lm = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def get_image_features(self, pixels):
        if self.group is None:
            return self.visual(pixels)
        return run_dp_sharded_vision_model(pixels, self.visual, self.group)

    def forward(self, pixels, text):
        image = self.projector(self.get_image_features(pixels))
        tokens = torch.cat([image, text])
        return torch.tanh(self.lm(tokens)) + tokens


@gg.check(mesh={"tp": 3})
def check(mesh):
    return gg.Refinement(
        VLM(),
        VLM(mesh.get_group("tp")),
        (gg.tensor(IMAGES, PATCHES, PATCH), gg.tensor(4, HIDDEN)),
        out_relations="replicate",
        grads=False,
    )
