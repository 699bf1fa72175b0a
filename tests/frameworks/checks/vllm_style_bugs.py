"""Natural mistakes in vLLM's idiom."""

import torch
import vllm_style
from torch.nn import functional as F
from vllm_style import (
    EXPERTS,
    HIDDEN,
    VOCAB,
    FusedMoE,
    Model,
    Reference,
    VocabParallelEmbedding,
    all_reduce,
    load_weights,
    set_group,
)

import graphguard as gg

IDS = (gg.tensor(5, dtype=torch.int64, low=0, high=VOCAB),)


def pair(mesh, change):
    set_group(mesh.get_group("tp"))
    model = Model()
    change(model)
    return gg.Refinement(Reference(), model, IDS, load=load_weights, grads=False, out_relations="replicate")


class Unmasked(VocabParallelEmbedding):
    def forward(self, ids):
        mask = (ids >= self.start) & (ids < self.end)
        local = mask * (ids - self.start)
        return all_reduce(F.embedding(local, self.weight))  # the mistake


@gg.check(mesh={"tp": 2})
def rows_of_other_ranks_are_not_left_out(mesh):
    def change(model):
        model.embed_tokens = Unmasked(VOCAB, HIDDEN)

    return pair(mesh, change)


class ReducedAgain(FusedMoE):
    def forward(self, x, logits):
        return all_reduce(super().forward(x, logits))  # the mistake


@gg.check(mesh={"tp": 2})
def experts_are_reduced_by_the_layer_and_by_the_model(mesh):
    def change(model):
        model.experts = ReducedAgain(EXPERTS, 2, HIDDEN, vllm_style.INNER)

    return pair(mesh, change)
