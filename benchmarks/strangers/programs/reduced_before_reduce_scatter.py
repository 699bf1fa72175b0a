"""With attention by data parallelism the layer's communicator scatters the experts' sums; the block has summed them already. SGLang's GPT-OSS.

Source: https://github.com/sgl-project/sglang/pull/37199
Rule: extra-reduction, wrong-scale
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, HIDDEN, INNER, EXPERTS, EPS = 6, 4, 5, 3, 1e-5


def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


class Experts(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.w13 = nn.Parameter(torch.randn(count, HIDDEN, INNER))
        self.w2 = nn.Parameter(torch.randn(count, INNER, HIDDEN))

    def forward(self, x, weights):
        h = torch.sigmoid(torch.einsum("th,ehi->tei", x, self.w13))
        return torch.einsum("te,tei,eih->th", weights, h, self.w2)


class DecoderLayer(nn.Module):
    """Attention, here one product for each token, then the experts: the specification."""

    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.norm = nn.Parameter(torch.randn(HIDDEN))
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = Experts(EXPERTS)

    def forward(self, hidden_states):
        residual = hidden_states + torch.tanh(self.attn(hidden_states))
        h = rms_norm(residual, self.norm)
        return residual + self.experts(h, self.router(h).softmax(-1))


class TpGroup:
    def __init__(self, group):
        self.device_group = group
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)

    def all_reduce(self, x):
        dist.all_reduce(x, group=self.device_group)
        return x

    def all_gather(self, x):
        out = x.new_empty(self.world_size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.device_group)
        return out

    def reduce_scatter(self, x):
        out = x.new_empty(x.shape[0] // self.world_size, *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=self.device_group)
        return out


class GptOssSparseMoeBlock(nn.Module):
    """The own experts on the tokens of all ranks."""

    def __init__(self, tp):
        super().__init__()
        self.tp = tp
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = Experts(EXPERTS // tp.world_size)

    def forward(self, hidden_states, use_reduce_scatter=False):
        return self.forward_normal(hidden_states, use_reduce_scatter)

    def forward_normal(self, hidden_states, use_reduce_scatter=False):
        probs = self.router(hidden_states).softmax(-1)
        own = probs.chunk(self.tp.world_size, dim=-1)[self.tp.rank]
        final_hidden_states = self.experts(hidden_states, own)
        if self.tp.world_size > 1:  # fixed: if self.tp.world_size > 1 and not use_reduce_scatter:
            final_hidden_states = self.tp.all_reduce(final_hidden_states)  # fault
        return final_hidden_states


class LayerCommunicator:
    """Brings the attention ranks' tokens together for the MLP, and parts them again after it."""

    def __init__(self, tp, norm):
        self.tp = tp
        self.norm = norm

    def prepare_mlp(self, hidden_states, residual):
        residual = hidden_states + residual
        return self.tp.all_gather(rms_norm(residual, self.norm)), residual

    def should_use_reduce_scatter(self):
        return self.tp.world_size > 1

    def postprocess_layer(self, hidden_states, residual):
        return self.tp.reduce_scatter(hidden_states) + residual  # near


class GptOssDecoderLayer(nn.Module):
    def __init__(self, tp):
        super().__init__()
        self.self_attn = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.post_attention_layernorm = nn.Parameter(torch.randn(HIDDEN))
        self.mlp = GptOssSparseMoeBlock(tp)
        self.layer_communicator = LayerCommunicator(tp, self.post_attention_layernorm)

    @torch.no_grad()
    def forward(self, hidden_states):
        attended = torch.tanh(self.self_attn(hidden_states))
        hidden_states, residual = self.layer_communicator.prepare_mlp(attended, hidden_states)
        use_reduce_scatter = self.layer_communicator.should_use_reduce_scatter()
        hidden_states = self.mlp(hidden_states, use_reduce_scatter)
        return self.layer_communicator.postprocess_layer(hidden_states, residual)


def load_weights(state, model, mesh):
    tp = model.mlp.tp
    with torch.no_grad():
        model.self_attn.weight.copy_(state["attn.weight"])
        model.post_attention_layernorm.copy_(state["norm"])
        model.mlp.router.weight.copy_(state["router.weight"])
        for name in ("w13", "w2"):
            own = state[f"experts.{name}"].chunk(tp.world_size)[tp.rank]
            getattr(model.mlp.experts, name).copy_(own)


@gg.check(mesh={"tp": 3})
def check(mesh):
    model = GptOssDecoderLayer(TpGroup(mesh.get_group("tp")))
    rows = {"tp": Shard(0)}
    return gg.Refinement(
        DecoderLayer(), model, (gg.tensor(TOKENS, HIDDEN),), in_relations=rows, out_relations=rows, load=load_weights, grads=False
    )
