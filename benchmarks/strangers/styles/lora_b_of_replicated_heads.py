"""LoRA on the packed query, key and value projection, with fewer key heads than ranks.

The mistake: the kv slice of lora_b starts at tp_rank * 3: with 2 kv heads on 4 ranks, rank 1 needs head 1 // 2 = 0.

Rule: wrong-shard
"""
import torch
import torch.distributed as dist

import graphguard as gg

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, RANK = 6, 4, 2, 3, 2


def attention(q, k, v):
    times = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    scores = torch.einsum("thd,shd->hts", q, k) * HEAD_DIM**-0.5
    return torch.einsum("hts,shd->thd", scores.softmax(-1), v).flatten(1)


def sequential(x, q_w, k_w, v_w, o_w, lora_a, q_b, k_b, v_b):
    shrunk = x @ lora_a.t()
    q, k, v = (
        (x @ w.t() + shrunk @ b.t()).unflatten(-1, (-1, HEAD_DIM)) for w, b in ((q_w, q_b), (k_w, k_b), (v_w, v_b))
    )
    return attention(q, k, v) @ o_w.t()


class QKVParallelLinear:
    def __init__(self, tp_rank, tp_size):
        self.tp_rank, self.tp_size = tp_rank, tp_size
        self.q_size = HEADS // tp_size * HEAD_DIM
        self.kv_size = max(KV_HEADS // tp_size, 1) * HEAD_DIM
        self.num_kv_head_replicas = max(tp_size // KV_HEADS, 1)

    def load(self, q, k, v):
        kv_rank = self.tp_rank // self.num_kv_head_replicas
        self.weights = [
            q.narrow(0, self.tp_rank * self.q_size, self.q_size),
            k.narrow(0, kv_rank * self.kv_size, self.kv_size),
            v.narrow(0, kv_rank * self.kv_size, self.kv_size),
        ]


class QKVParallelLinearWithLoRA:
    def __init__(self, base_layer):
        self.base_layer = base_layer
        self.q_proj_shard_size = base_layer.q_size
        self.kv_proj_shard_size = base_layer.kv_size
        self.q_shard_id = base_layer.tp_rank
        self.kv_shard_id = base_layer.tp_rank % KV_HEADS  # fixed: self.kv_shard_id = base_layer.tp_rank // base_layer.num_kv_head_replicas

    def slice_lora_b(self, q_b, k_b, v_b):
        q_start = self.q_proj_shard_size * self.q_shard_id
        kv_start = self.kv_proj_shard_size * self.kv_shard_id  # fault
        return [
            q_b[q_start : q_start + self.q_proj_shard_size],
            k_b[kv_start : kv_start + self.kv_proj_shard_size],  # fault
            v_b[kv_start : kv_start + self.kv_proj_shard_size],  # fault
        ]

    def set_lora(self, lora_a, q_b, k_b, v_b):
        self.lora_a = lora_a
        self.lora_b = self.slice_lora_b(q_b, k_b, v_b)

    def forward(self, x):
        shrunk = x @ self.lora_a.t()
        return [x @ w.t() + shrunk @ b.t() for w, b in zip(self.base_layer.weights, self.lora_b, strict=True)]


@gg.check(mesh={"tp": 4})
def check(mesh):
    group = mesh.get_group("tp")

    def impl(x, q_w, k_w, v_w, o_w, lora_a, q_b, k_b, v_b):
        base = QKVParallelLinear(dist.get_rank(group), dist.get_world_size(group))
        base.load(q_w, k_w, v_w)
        layer = QKVParallelLinearWithLoRA(base)
        layer.set_lora(lora_a, q_b, k_b, v_b)
        q, k, v = (t.unflatten(-1, (-1, HEAD_DIM)) for t in layer.forward(x))
        y = attention(q, k, v) @ o_w.chunk(base.tp_size, dim=1)[base.tp_rank].t()
        dist.all_reduce(y, group=group)
        return y

    wide, narrow = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return gg.Refinement(
        sequential,
        impl,
        (
            gg.tensor(5, HIDDEN),
            gg.tensor(wide, HIDDEN),
            gg.tensor(narrow, HIDDEN),
            gg.tensor(narrow, HIDDEN),
            gg.tensor(HIDDEN, wide),
            gg.tensor(RANK, HIDDEN),
            gg.tensor(wide, RANK),
            gg.tensor(narrow, RANK),
            gg.tensor(narrow, RANK),
        ),
        out_relations="replicate",
        grads=False,
    )
