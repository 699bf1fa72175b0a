"""`context_parallel` of PyTorch: the sequence is sharded, attention passes keys and values round a ring."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method

import graphguard as gg

HEADS, DIM, TOKENS = 2, 8, 16


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (y.view(batch, tokens, HEADS, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, DIM))


def step(model: nn.Module, group=None):
    """Loss and gradients; over ``group`` both are the mean of the ranks'."""

    def run(x: torch.Tensor, target: torch.Tensor):
        loss = F.mse_loss(model(x), target)
        loss.backward()
        if group is not None:
            for value in (loss.detach(), *(p.grad for p in model.parameters())):
                dist.all_reduce(value, group=group)
                value /= dist.get_world_size(group)
        return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}

    return run


def in_a_ring(model: nn.Module, mesh, method: str):
    def run(x: torch.Tensor, target: torch.Tensor):
        set_rotate_method(method)
        x, target = x.clone(), target.clone()
        with context_parallel(mesh["cp"], buffers=[x, target], buffer_seq_dims=[1, 1]):
            return step(model, mesh.get_group("cp"))(x, target)

    return run


INPUTS = (gg.tensor(2, TOKENS, DIM), gg.tensor(2, TOKENS, DIM))


@gg.check(mesh=[{"cp": 2}, {"cp": 4}])
def gathered_keys(mesh):
    return gg.Refinement(step(Attention()), in_a_ring(Attention(), mesh, "allgather"), INPUTS)


@gg.check(mesh=[{"cp": 2}, {"cp": 4}])
def keys_in_a_ring(mesh):
    return gg.Refinement(step(Attention()), in_a_ring(Attention(), mesh, "alltoall"), INPUTS)
