"""Linear attention with a gate for each head and channel, under context parallelism: the gradient of the state is carried through a rank's chunks before its backward pass, with the first head's gates for all heads. flash-linear-attention's KDA.

Source: https://github.com/fla-org/flash-linear-attention/issues/1115
Rule: wrong-relation, wrong-shard, gradient-not-reduced
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, HEADS, K_DIM, V_DIM, CHUNK = 8, 7, 3, 5, 6, 2
SCALE = K_DIM**-0.5


def recurrence(q, k, v, g, state):
    """(tokens, heads, dim) each, the state (heads, keys, values): outputs, and the state that is left."""
    outputs = []
    for q_t, k_t, v_t, g_t in zip(q, k, v, g, strict=True):
        state = state * g_t.exp().unsqueeze(-1) + k_t.unsqueeze(-1) * v_t.unsqueeze(-2)
        outputs.append(torch.einsum("hk,hkv->hv", q_t * SCALE, state))
    return torch.stack(outputs), state


def chunk_local_cumsum(g):
    """Gates of a token and those before it in its chunk."""
    return g.unflatten(0, (-1, CHUNK)).cumsum(1).flatten(0, 1)


def all_gather(tensor, group):
    """A new leading dim, of the ranks."""
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, tensor.contiguous(), group=group)
    return torch.stack(gathered)


def pre_process_fwd(k, v, g):
    """What a rank does to a state: its decay, and the state that it leaves if it gets none."""
    _, state = recurrence(torch.zeros_like(k), k, v, g, torch.zeros(HEADS, K_DIM, V_DIM))
    return g.sum(0).exp(), state


def pre_process_bwd(q, gk, do):
    """The gradient of a rank's initial state that comes from its own outputs, from the last chunk to the first.

    Memory is flat, as a kernel sees it; ``gk`` are the sums of each chunk's gates.
    """
    q, gk_flat = q * SCALE, gk.reshape(-1)
    o_k = torch.arange(K_DIM)
    dh = []
    for i_h in range(HEADS):
        b_dh = torch.zeros(K_DIM, V_DIM)
        for i_t in reversed(range(q.shape[0] // CHUNK)):
            rows = slice(i_t * CHUNK, (i_t + 1) * CHUNK)
            last_idx = (i_t + 1) * CHUNK - 1
            b_gk_last = gk_flat[last_idx * HEADS * K_DIM + o_k]  # fixed: b_gk_last = gk_flat[last_idx * HEADS * K_DIM + i_h * K_DIM + o_k]
            b_q = q[rows, i_h] * gk[rows, i_h].exp()
            b_dh = b_dh * b_gk_last.exp().unsqueeze(-1) + b_q.t() @ do[rows, i_h]
        dh.append(b_dh)
    return torch.stack(dh)


class ChunkKDAFunction(torch.autograd.Function):
    """Each rank has consecutive tokens; the states go from rank to rank, their gradients come back."""

    @staticmethod
    def forward(ctx, q, k, v, g, group):
        rank = dist.get_rank(group)
        decay, state = pre_process_fwd(k, v, g)
        decays, states = all_gather(decay, group), all_gather(state, group)
        initial = torch.zeros_like(state)
        for r in range(rank):
            initial = initial * decays[r].unsqueeze(-1) + states[r]
        o, _ = recurrence(q, k, v, g, initial)
        ctx.save_for_backward(q, k, v, g, initial, decays)
        ctx.group = group
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, g, initial, decays = ctx.saved_tensors
        rank, size = dist.get_rank(ctx.group), dist.get_world_size(ctx.group)
        dhs = all_gather(pre_process_bwd(q, chunk_local_cumsum(g), do), ctx.group)
        d_final = torch.zeros_like(initial)
        for r in reversed(range(rank + 1, size)):
            d_final = d_final * decays[r].unsqueeze(-1) + dhs[r]
        with torch.enable_grad():
            inputs = [tensor.detach().requires_grad_() for tensor in (q, k, v, g)]
            o, final = recurrence(*inputs, initial)
            grads = torch.autograd.grad((o, final), inputs, (do, d_final))  # near
        return *grads, None


def chunk_kda(q, k, v, g, cp_group=None):
    if cp_group is None:
        return recurrence(q, k, v, g, torch.zeros(HEADS, K_DIM, V_DIM))[0]
    return ChunkKDAFunction.apply(q, k, v, g, cp_group)


class KimiDeltaAttention(nn.Module):
    """The gates are fine-grained; the delta rule's correction is left out."""

    def __init__(self, cp_group=None):
        super().__init__()
        self.cp_group = cp_group
        self.q_proj = nn.Linear(HIDDEN, HEADS * K_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, HEADS * K_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, HEADS * V_DIM, bias=False)
        self.f_proj = nn.Linear(HIDDEN, HEADS * K_DIM)
        self.o_proj = nn.Linear(HEADS * V_DIM, HIDDEN, bias=False)

    def forward(self, x):
        q, k = (proj(x).unflatten(-1, (HEADS, K_DIM)) for proj in (self.q_proj, self.k_proj))
        v = self.v_proj(x).unflatten(-1, (HEADS, V_DIM))
        g = -F.softplus(self.f_proj(x)).unflatten(-1, (HEADS, K_DIM))
        o = chunk_kda(q, k, v, g, self.cp_group)
        return x + self.o_proj(o.flatten(1))


def train_step(layer):
    def step(x, target):
        output = layer(x)
        (output - target).square().sum().backward()
        result = {"output": output.detach()}
        for name, parameter in layer.named_parameters():
            if layer.cp_group is not None:
                dist.all_reduce(parameter.grad, group=layer.cp_group)
            result[name.replace(".", "_")] = parameter.grad
        return result

    return step


@gg.check(mesh={"cp": 2})
def check(mesh):
    layer = KimiDeltaAttention()
    parallel = copy.deepcopy(layer)
    parallel.cp_group = mesh.get_group("cp")
    tokens = {"cp": Shard(0)}
    sequence = gg.tensor(TOKENS, HIDDEN)
    return gg.Refinement(
        train_step(layer),
        train_step(parallel),
        (sequence, sequence),
        in_relations=tokens,
        out_relations=(tokens, *[{}] * len(list(layer.parameters()))),
        grads=False,
    )
