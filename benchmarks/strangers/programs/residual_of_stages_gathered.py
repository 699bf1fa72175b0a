"""Between pipeline stages a tensor is sent in slices and gathered; the residual was scattered by sequence parallelism, so the slices are of different rows: vLLM.

Source: https://github.com/vllm-project/vllm/pull/24021
Rule: wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, INNER = 4, 6, 10


def norm(x):
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def mlp(x, up, down):
    return torch.relu(x @ up) @ down


def spec(x, up0, down0, up1, down1):
    x = x + mlp(norm(x), up0, down0)
    return x + mlp(norm(x), up1, down1)


def send_tensor_dict(tensor_dict, dst, tp_group, all_gather_tensors=None):
    """Ranks of one stage hold the same tensors, so that each sends its part; ``all_gather_tensors`` says of which that is not so."""
    for key, tensor in tensor_dict.items():
        if (all_gather_tensors or {}).get(key, True):
            tensor = tensor.reshape(dist.get_world_size(tp_group), -1)[dist.get_rank(tp_group)]
        dist.send(tensor.contiguous(), dst)


def recv_tensor_dict(shapes, src, tp_group, all_gather_tensors=None):
    tensor_dict = {}
    for key, shape in shapes.items():
        if (all_gather_tensors or {}).get(key, True):
            tp_size = dist.get_world_size(tp_group)
            tensor = torch.empty(shape).reshape(tp_size, -1)[0].clone()
            dist.recv(tensor, src)
            parts = [torch.empty_like(tensor) for _ in range(tp_size)]
            dist.all_gather(parts, tensor, group=tp_group)
            tensor_dict[key] = torch.cat(parts).reshape(shape)
        else:
            tensor_dict[key] = torch.empty(shape)
            dist.recv(tensor_dict[key], src)
    return tensor_dict


class Runner:
    """Two stages, each of one MLP; the residual keeps the own tokens only."""

    def __init__(self, mesh):
        self.tp, self.pp = mesh.get_group("tp"), mesh.get_group("pp")
        self.tp_rank, self.tp_size = mesh.get_local_rank("tp"), mesh["tp"].size()
        self.stage = mesh.get_local_rank("pp")

    def own_tokens(self, x):
        return x.chunk(self.tp_size)[self.tp_rank]

    def all_tokens(self, x):
        out = torch.empty(self.tp_size * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.tp)
        return out

    def layer(self, residual, up, down):
        hidden_states = mlp(self.all_tokens(norm(residual)), up, down)
        dist.all_reduce(hidden_states, group=self.tp)
        return hidden_states

    def __call__(self, x, up0, down0, up1, down1):
        out = torch.empty_like(x)
        if self.stage == 0:
            residual = self.own_tokens(x)
            tensors = {"hidden_states": self.layer(residual, up0, down0), "residual": residual}
            send_tensor_dict(tensors, self.tp_size + self.tp_rank, self.tp)  # fixed: send_tensor_dict(tensors, self.tp_size + self.tp_rank, self.tp, {"residual": False})
        else:
            shapes = {"hidden_states": (TOKENS, HIDDEN), "residual": (TOKENS // self.tp_size, HIDDEN)}
            tensors = recv_tensor_dict(shapes, self.tp_rank, self.tp)  # fixed: tensors = recv_tensor_dict(shapes, self.tp_rank, self.tp, {"residual": False})
            residual = tensors["residual"] + self.own_tokens(tensors["hidden_states"])
            out = self.all_tokens(residual) + self.layer(residual, up1, down1)
        dist.broadcast(out, self.tp_size + self.tp_rank, group=self.pp)
        return out


@gg.check(mesh={"pp": 2, "tp": 2})
def check(mesh):
    inputs = (gg.tensor(TOKENS, HIDDEN), *(gg.tensor(HIDDEN, INNER), gg.tensor(INNER, HIDDEN)) * 2)
    columns, rows = {"tp": Shard(1)}, {"tp": Shard(0)}
    relations = ({}, columns, rows, columns, rows)
    return gg.Refinement(spec, Runner(mesh), inputs, in_relations=relations, out_relations="replicate", grads=False)
