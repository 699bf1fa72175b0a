"""Layers in vLLM's idiom: linears that load their own part, a vocabulary in padded parts, experts on ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parameter import Parameter

import graphguard as gg

_TP = None


def set_group(group):
    global _TP
    _TP = group


def tp_rank():
    return dist.get_rank(_TP)


def tp_size():
    return dist.get_world_size(_TP)


def all_reduce(x):
    return torch.ops.vllm_style.all_reduce(x)


def all_gather(x, dim=-1):
    return torch.ops.vllm_style.all_gather(x, dim, tp_size())


@torch.library.custom_op("vllm_style::all_reduce", mutates_args=())
def _all_reduce(x: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    dist.all_reduce(out, group=_TP)
    return out


@_all_reduce.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("vllm_style::all_gather", mutates_args=())
def _all_gather(x: torch.Tensor, dim: int, world_size: int) -> torch.Tensor:
    dim %= x.dim()
    size = x.size()
    out = torch.empty((world_size * size[0], *size[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(out, x.contiguous(), group=_TP)
    out = out.reshape((world_size, *size)).movedim(0, dim)
    return out.reshape(*size[:dim], world_size * size[dim], *size[dim + 1 :])


@_all_gather.register_fake
def _(x, dim, world_size):
    shape = list(x.shape)
    shape[dim] *= world_size
    return x.new_empty(shape)


def set_weight_attrs(weight, attrs):
    for key, value in attrs.items():
        setattr(weight, key, value)


class ColumnParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, gather_output=False, output_sizes=None):
        super().__init__()
        self.output_sizes = output_sizes or [output_size]
        self.gather_output = gather_output
        self.weight = Parameter(torch.empty(output_size // tp_size(), input_size), requires_grad=False)
        set_weight_attrs(self.weight, {"output_dim": 0, "weight_loader": self.weight_loader})

    def weight_loader(self, param, loaded, shard_id=None):
        data = param.data
        if shard_id is not None:
            offset = sum(self.output_sizes[:shard_id]) // tp_size()
            data = data.narrow(0, offset, self.output_sizes[shard_id] // tp_size())
        size = data.shape[0]
        data.copy_(loaded.narrow(0, tp_rank() * size, size))

    def forward(self, x):
        out = F.linear(x, self.weight)
        return all_gather(out) if self.gather_output else out


class MergedColumnParallelLinear(ColumnParallelLinear):
    def __init__(self, input_size, output_sizes):
        super().__init__(input_size, sum(output_sizes), output_sizes=output_sizes)


class QKVParallelLinear(nn.Module):
    def __init__(self, hidden, head_size, total_heads, total_kv_heads):
        super().__init__()
        self.head_size = head_size
        self.heads = total_heads // tp_size()
        if tp_size() >= total_kv_heads:
            self.kv_heads, self.replicas = 1, tp_size() // total_kv_heads
        else:
            self.kv_heads, self.replicas = total_kv_heads // tp_size(), 1
        rows = (self.heads + 2 * self.kv_heads) * head_size
        self.weight = Parameter(torch.empty(rows, hidden), requires_grad=False)
        set_weight_attrs(self.weight, {"output_dim": 0, "weight_loader": self.weight_loader})

    def weight_loader(self, param, loaded, shard_id):
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        offset, size = {"q": (0, q), "k": (q, kv), "v": (q + kv, kv)}[shard_id]
        shard = tp_rank() if shard_id == "q" else tp_rank() // self.replicas
        param.data.narrow(0, offset, size).copy_(loaded.narrow(0, shard * size, size))

    def forward(self, x):
        return F.linear(x, self.weight)


class RowParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, reduce_results=True):
        super().__init__()
        self.reduce_results = reduce_results
        self.weight = Parameter(torch.empty(output_size, input_size // tp_size()), requires_grad=False)
        set_weight_attrs(self.weight, {"input_dim": 1, "weight_loader": self.weight_loader})

    def weight_loader(self, param, loaded):
        size = param.shape[1]
        param.data.copy_(loaded.narrow(1, tp_rank() * size, size))

    def forward(self, x):
        out = F.linear(x, self.weight)
        return all_reduce(out) if self.reduce_results and tp_size() > 1 else out


class VocabParallelEmbedding(nn.Module):
    def __init__(self, vocab, hidden, padding=8):
        super().__init__()
        self.vocab = vocab
        self.padded = -(-vocab // padding) * padding
        self.part = self.padded // tp_size()
        self.start = tp_rank() * self.part
        self.end = min(self.start + self.part, vocab)
        self.weight = Parameter(torch.empty(self.part, hidden), requires_grad=False)
        set_weight_attrs(self.weight, {"output_dim": 0, "weight_loader": self.weight_loader})

    def weight_loader(self, param, loaded):
        part = loaded[self.start : self.end]
        param[: part.shape[0]].data.copy_(part)
        param[part.shape[0] :].data.fill_(0)

    def forward(self, ids):
        mask = (ids >= self.start) & (ids < self.end)
        local = mask * (ids - self.start)
        out = F.embedding(local, self.weight)
        out = out.masked_fill(~mask.unsqueeze(-1), 0)
        return all_reduce(out)


class LogitsProcessor(nn.Module):
    def forward(self, head, hidden):
        return all_gather(F.linear(hidden, head.weight))[..., : head.vocab]


class FusedMoE(nn.Module):
    """Experts on ranks: every rank computes its own experts for all tokens, and the sum is reduced."""

    def __init__(self, experts, top_k, hidden, inner):
        super().__init__()
        self.experts, self.top_k = experts, top_k
        self.local = experts // tp_size()
        self.first = tp_rank() * self.local
        self.w13 = Parameter(torch.empty(self.local, 2 * inner, hidden), requires_grad=False)
        self.w2 = Parameter(torch.empty(self.local, hidden, inner), requires_grad=False)
        set_weight_attrs(self.w13, {"weight_loader": self.weight_loader})
        set_weight_attrs(self.w2, {"weight_loader": self.weight_loader})

    def weight_loader(self, param, loaded, shard_id, expert):
        local = expert - self.first
        if not 0 <= local < self.local:
            return
        data = param.data[local]
        if shard_id in ("w1", "w3"):
            data = data.chunk(2)[shard_id == "w3"]
        data.copy_(loaded)

    def forward(self, x, logits):
        weights, ids = torch.topk(torch.softmax(logits, -1), self.top_k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for expert in range(self.local):
            chosen = (weights * (ids == self.first + expert)).sum(-1, keepdim=True)
            gate, up = F.linear(x, self.w13[expert]).chunk(2, -1)
            out = out + chosen * F.linear(F.silu(gate) * up, self.w2[expert])
        return all_reduce(out)


HIDDEN, HEADS, KV, SIZE, INNER, VOCAB, EXPERTS = 16, 4, 2, 4, 24, 21, 4


def attention(q, k, v, heads, kv):
    q, k, v = (t.view(*t.shape[:-1], n, SIZE).transpose(-2, -3) for t, n in ((q, heads), (k, kv), (v, kv)))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out.transpose(-2, -3).flatten(-2)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv_proj = QKVParallelLinear(HIDDEN, SIZE, HEADS, KV)
        self.o_proj = RowParallelLinear(HEADS * SIZE, HIDDEN)
        self.gate_up_proj = MergedColumnParallelLinear(HIDDEN, [INNER, INNER])
        self.down_proj = RowParallelLinear(INNER, HIDDEN)

    def forward(self, x):
        qkv = self.qkv_proj
        q, kv = qkv.heads * SIZE, qkv.kv_heads * SIZE
        x = x + self.o_proj(attention(*qkv(x).split([q, kv, kv], -1), qkv.heads, qkv.kv_heads))
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return x + self.down_proj(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(VOCAB, HIDDEN)
        self.layer = Layer()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = FusedMoE(EXPERTS, 2, HIDDEN, INNER)
        self.logits = LogitsProcessor()

    def forward(self, ids):
        x = self.layer(self.embed_tokens(ids))
        x = x + self.experts(x, self.gate(x))
        return self.logits(self.embed_tokens, x)


class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        for name, rows, columns in (
            ("q_proj", HEADS * SIZE, HIDDEN),
            ("k_proj", KV * SIZE, HIDDEN),
            ("v_proj", KV * SIZE, HIDDEN),
            ("o_proj", HIDDEN, HEADS * SIZE),
            ("gate_proj", INNER, HIDDEN),
            ("up_proj", INNER, HIDDEN),
            ("down_proj", HIDDEN, INNER),
            ("gate", EXPERTS, HIDDEN),
        ):
            setattr(self, name, nn.Linear(columns, rows, bias=False))
        self.w1, self.w3 = (
            nn.ModuleList(nn.Linear(HIDDEN, INNER, bias=False) for _ in range(EXPERTS)) for _ in range(2)
        )
        self.w2 = nn.ModuleList(nn.Linear(INNER, HIDDEN, bias=False) for _ in range(EXPERTS))

    def forward(self, ids):
        x = self.embed_tokens(ids)
        x = x + self.o_proj(attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), HEADS, KV))
        x = x + self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        weights, chosen = torch.topk(torch.softmax(self.gate(x), -1), 2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for e in range(EXPERTS):
            weight = (weights * (chosen == e)).sum(-1, keepdim=True)
            y = y + weight * self.w2[e](F.silu(self.w1[e](x)) * self.w3[e](x))
        return F.linear(x + y, self.embed_tokens.weight)


STACKED = (
    ("q_proj", "qkv_proj", "q"),
    ("k_proj", "qkv_proj", "k"),
    ("v_proj", "qkv_proj", "v"),
    ("gate_proj", "gate_up_proj", 0),
    ("up_proj", "gate_up_proj", 1),
)


def load_weights(weights, model, mesh):
    params = dict(model.named_parameters())
    for name, loaded in weights.items():
        stem = name.removesuffix(".weight")
        merged = {source: (target, shard) for source, target, shard in STACKED}
        if stem in merged:
            target, shard = merged[stem]
            param = params[f"layer.{target}.weight"]
            param.weight_loader(param, loaded, shard)
        elif stem[0] == "w" and stem[1:2].isdigit():
            shard, expert = stem.split(".")
            param = params["experts.w2" if shard == "w2" else "experts.w13"]
            param.weight_loader(param, loaded, shard, int(expert))
        else:
            param = params[name] if name in params else params[f"layer.{name}"]
            getattr(param, "weight_loader", lambda p, w: p.data.copy_(w))(param, loaded)


@gg.check(mesh=[{"tp": 2}, {"tp": 4}])
def generation(mesh):
    set_group(mesh.get_group("tp"))
    return gg.Refinement(
        Reference(),
        Model(),
        (gg.tensor(5, dtype=torch.int64, low=0, high=VOCAB),),
        load=load_weights,
        grads=False,
        out_relations="replicate",
    )
