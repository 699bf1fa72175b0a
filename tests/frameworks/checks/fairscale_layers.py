"""fairscale's model-parallel layers as they are: embedding, column- and row-parallel linears, vocabulary-parallel cross entropy."""

import fairscale.nn.model_parallel as model_parallel
import torch
from fairscale.nn.model_parallel.cross_entropy import vocab_parallel_cross_entropy
from fairscale.nn.model_parallel.layers import (
    ColumnParallelLinear,
    ParallelEmbedding,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from torch import nn
from torch.nn import functional as F

import graphguard as gg

VOCABULARY, DIM, HIDDEN = 24, 8, 16


def untouched(weight: torch.Tensor) -> torch.Tensor:
    return weight


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return self.loss(self.head(x), labels)

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class ParallelModel(Model):
    def __init__(self, embedding: type[nn.Module]) -> None:
        super().__init__()
        self.embedding = embedding(VOCABULARY, DIM, init_method=untouched)
        self.up = ColumnParallelLinear(DIM, HIDDEN, gather_output=False, init_method=untouched)
        self.down = RowParallelLinear(HIDDEN, DIM, input_is_parallel=True, init_method=untouched)
        self.head = ColumnParallelLinear(DIM, VOCABULARY, bias=False, gather_output=False, init_method=untouched)

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return vocab_parallel_cross_entropy(logits, labels).mean()


TEXT = tuple(gg.tensor(2, 5, dtype=torch.int64, low=0, high=VOCABULARY) for _ in range(2))


@gg.check(mesh=[{"mp": 2}, {"mp": 4}])
def sharded_vocabulary(mesh):
    model_parallel.initialize_model_parallel(mesh.size())
    return gg.Refinement(Model(), ParallelModel(VocabParallelEmbedding), TEXT)


@gg.check(mesh={"mp": 2})
def sharded_features(mesh):
    model_parallel.initialize_model_parallel(mesh.size())
    return gg.Refinement(Model(), ParallelModel(ParallelEmbedding), TEXT)
