"""torchtune's recipe: gradients averaged over dp (as FSDP does), then scaled by the token count. TP and DP.

The mistake: the gradients are multiplied by the world's size 4 / num_tokens, where dp = 2 ranks averaged them: twice too large.

Rule: wrong-scale, wrong-group
"""
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

VOCAB, DIM, HIDDEN, LR = 7, 4, 6, 0.2


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.output = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        return self.output(h + self.w2(F.silu(self.w1(h))))


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ParallelDecoder(Decoder):
    def __init__(self, model, group):
        super().__init__()
        self.group = group
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        self.load_state_dict(model.state_dict())
        self.w1.weight = nn.Parameter(model.w1.weight.detach().chunk(world)[rank].clone())
        self.w2.weight = nn.Parameter(model.w2.weight.detach().chunk(world, dim=1)[rank].clone())

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        y = self.w2(F.silu(self.w1(CopyToTP.apply(h, self.group))))
        return self.output(h + ReduceFromTP.apply(y, self.group))


def token_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


def scale_grads(model, scaler):
    for p in model.parameters():
        p.grad *= scaler


def train_step(model, tokens, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    token_loss(model(tokens), labels).backward()
    scale_grads(model, 1 / labels.numel())
    optimizer.step()
    return dict(model.named_parameters())


class Recipe:
    def __init__(self, model, mesh):
        self.model = model
        self.dp_group = mesh.get_group("dp")
        self.dp_degree = dist.get_world_size(self.dp_group)
        self.world_size = dist.get_world_size()  # fault
        self.optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def train_step(self, tokens, labels):
        num_tokens = torch.tensor(float(labels.numel()))
        dist.all_reduce(num_tokens, group=self.dp_group)
        token_loss(self.model(tokens), labels).backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.dp_group)
        scale_grads(self.model, self.world_size / num_tokens)  # fixed: scale_grads(self.model, self.dp_degree / num_tokens)
        self.optimizer.step()
        return dict(self.model.named_parameters())


@gg.check(mesh={"dp": 2, "tp": 2})
def check(mesh):
    model = Decoder()
    reference = copy.deepcopy(model)
    recipe = Recipe(ParallelDecoder(model, mesh.get_group("tp")), mesh)
    ids = gg.tensor(4, 3, dtype=torch.int64, high=VOCAB)
    whole = {"dp": Replicate(), "tp": Replicate()}
    return gg.Refinement(
        lambda *a: train_step(reference, *a),
        recipe.train_step,
        (ids, ids),
        in_relations={"dp": Shard(0)},
        out_relations={
            "tok_embeddings.weight": whole,
            "w1.weight": {"dp": Replicate(), "tp": Shard(0)},
            "w2.weight": {"dp": Replicate(), "tp": Shard(1)},
            "output.weight": whole,
        },
        grads=False,
    )
