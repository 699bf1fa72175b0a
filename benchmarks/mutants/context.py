"""Edits of programs that split sequences, experts, vocabularies or layers over ranks."""

from __future__ import annotations

from benchmarks.mutants.edit import SourceEdit, spoiler

MISSING, EXTRA, SCALE, SHARD = "missing-reduction", "extra-reduction", "wrong-scale", "wrong-shard"

moe = spoiler("moe_dispatch.py", "dispatch")
ulysses = spoiler("ulysses.py", "ulysses")
ring = spoiler("ring.py", "ring")
gathered = spoiler("ring.py", "gathered_context")
vocabulary = spoiler("vocabulary.py", "vocabulary_parallel")
pipeline = spoiler("pipeline.py", "pipeline")

ORDER = "mine = sent.view(ranks, own, -1, DIM).transpose(0, 1).reshape(own, -1, DIM)"
BACK = "back = y.view(own, ranks, -1, DIM).transpose(0, 1).reshape(EXPERTS, -1, DIM)"

DISPATCH: tuple[SourceEdit, ...] = (
    moe("experts of the first rank everywhere", "first = rank * own", "first = 0", SHARD, "*", "expert(mine, up[first"),
    moe(
        "experts in reverse order",
        "first = rank * own",
        "first = (ranks - 1 - rank) * own",
        SHARD,
        "*",
        "expert(mine, up[first",
    ),
    moe(
        "first weights of another rank's experts",
        "expert(mine, up[first : first + own], down",
        "expert(mine, up[:own], down",
        SHARD,
    ),
    moe("second weights of another rank's experts", "down[first : first + own])", "down[-own:])", SHARD),
    moe(
        "tokens not sent",
        "sent = exchange(slots, group)",
        "sent = slots",
        "wrong-shard wrong-relation missing-reduction",
        "*",
        ORDER,
    ),
    moe(
        "results not sent back",
        "y = exchange(back, group).view(-1, DIM)",
        "y = back.reshape(-1, DIM)",
        "wrong-shard wrong-relation missing-reduction",
        "*",
        BACK,
    ),
    moe("received parts not put in order", ORDER, "mine = sent.view(own, -1, DIM)", "wrong-shard wrong-relation"),
    moe("parts sent back in the wrong order", BACK, "back = y.reshape(EXPERTS, -1, DIM)", "wrong-shard wrong-relation"),
    moe(
        "gate applied twice",
        "return y * weight\n\n    inputs",
        "return y * weight * weight\n\n    inputs",
        "wrong-relation",
    ),
    moe(
        "gate forgotten",
        "return y * weight\n\n    inputs",
        "return y\n\n    inputs",
        "wrong-relation",
        "*",
        "y = exchange(back, group)",
    ),
    moe("results divided", "return y * weight\n\n    inputs", "return y * weight / ranks\n\n    inputs", SCALE),
    moe(
        "tokens reversed",
        "slots = x.view(EXPERTS, -1, DIM)\n",
        "slots = x.flip(0).view(EXPERTS, -1, DIM)\n",
        "wrong-shard wrong-relation",
    ),
)

ULYSSES: tuple[SourceEdit, ...] = (
    ulysses.followed(
        "keys in reverse order",
        "k = all_to_all(k, scatter=1, gather=0, group=group)",
        ".flip(0)",
        "wrong-relation wrong-shard",
    ),
    ulysses.within(
        "result joined along the wrong dim",
        "y = all_to_all(y, scatter=0, gather=1, group=group)",
        "gather=1,",
        "gather=0,",
        "wrong-shard",
        "*",
        "torch.cat(received",
    ),
    ulysses.within(
        "result split along the heads",
        "y = all_to_all(y, scatter=0, gather=1, group=group)",
        "scatter=0,",
        "scatter=1,",
        "wrong-shard wrong-relation",
        "*",
        "x.chunk(ranks, dim=scatter)",
        "torch.cat(received",
    ),
    ulysses(
        "received in reverse order",
        "return torch.cat(received, dim=gather)",
        "return torch.cat(received[::-1], dim=gather)",
        SHARD,
    ),
    ulysses(
        "sent in reverse order",
        "for part in x.chunk(ranks, dim=scatter)]",
        "for part in reversed(x.chunk(ranks, dim=scatter))]",
        SHARD,
    ),
    ulysses("keys for values", "y = attention(q, k, v)\n", "y = attention(q, k, k)\n", "wrong-relation"),
    ulysses("queries scaled again", "y = attention(q, k, v)\n", "y = attention(q * HEAD_DIM**-0.5, k, v)\n", SCALE),
    ulysses("values halved", "y = attention(q, k, v)\n", "y = attention(q, k, v / 2)\n", SCALE),
    ulysses(
        "result doubled",
        "        return y.reshape(-1, DIM) @ wo\n",
        "        return 2 * (y.reshape(-1, DIM) @ wo)\n",
        SCALE,
    ),
    ulysses(
        "result reduced",
        "return y.reshape(-1, DIM) @ wo\n\n    square",
        "y = y.reshape(-1, DIM) @ wo\n        dist.all_reduce(y, group=group)\n        return y\n\n    square",
        EXTRA,
        "dist.all_reduce(y",
    ),
    ulysses(
        "projection of another input",
        "for w in (wq, wk, wv))\n        q",
        "for w in (wq, wv, wk))\n        q",
        "wrong-relation wrong-shard",
        "*",
        "attention(q, k, v)",
    ),
)

RING: tuple[SourceEdit, ...] = (
    ring(
        "mask without the rank's offset",
        "rows = torch.arange(length) + rank * length",
        "rows = torch.arange(length)",
        SHARD,
        "*",
    ),
    ring(
        "mask without the source's offset",
        "columns = torch.arange(length) + source * length",
        "columns = torch.arange(length)",
        SHARD,
        "*",
    ),
    ring(
        "source counted the wrong way",
        "source = (rank - step) % ranks",
        "source = (rank + step + 1) % ranks",
        "wrong-shard wrong-relation",
        "*",
        "columns = torch",
    ),
    ring(
        "mask includes the diagonal",
        "hidden = columns[None, :] > rows",
        "hidden = columns[None, :] >= rows",
        "wrong-relation wrong-shard",
    ),
    ring(
        "no mask",
        'scores = (q @ k.T * DIM**-0.5).masked_fill(hidden, float("-inf"))',
        "scores = q @ k.T * DIM**-0.5",
        "wrong-relation",
    ),
    ring("only the last block's result", "total = total + weights @ v", "total = weights @ v", "wrong-relation"),
    ring(
        "only the last block's norm",
        "norm = norm + weights.sum(-1, keepdim=True)",
        "norm = weights.sum(-1, keepdim=True)",
        "wrong-relation",
    ),
    ring.removed(
        "values stay",
        "                v = passed_on(v, rank, ranks, group)\n",
        "wrong-shard wrong-relation missing-reduction",
        "total = total + weights @ v",
        "k = passed_on",
    ),
    ring(
        "scores scaled twice",
        "scores = (q @ k.T * DIM**-0.5).masked_fill(hidden",
        "scores = (q @ k.T * DIM**-0.5 * DIM**-0.5).masked_fill(hidden",
        SCALE,
    ),
    ring("result halved", "return total / norm", "return total / norm / ranks", SCALE),
    ring(
        "result averaged over ranks",
        "return total / norm",
        "out = total / norm\n        dist.all_reduce(out, op=dist.ReduceOp.AVG, group=group)\n        return out",
        "extra-reduction wrong-relation",
        "dist.all_reduce(out",
    ),
    gathered(
        "positions from zero",
        "positions = torch.arange(length, dtype=torch.float32) + rank * length",
        "positions = torch.arange(length, dtype=torch.float32)",
        SHARD,
    ),
    gathered(
        "mask without the offset",
        "dtype=torch.bool).triu(1 + rank * length)",
        "dtype=torch.bool).triu(1)",
        "wrong-shard wrong-relation",
    ),
    gathered("parts in reverse order", "return torch.cat(parts, dim=0)", "return torch.cat(parts[::-1], dim=0)", SHARD),
    gathered(
        "keys rotated twice",
        "k, v = gather(k), gather(v)",
        "k, v = gather(rotated(k, positions)), gather(v)",
        "wrong-relation",
        "*",
    ),
    gathered(
        "keys not rotated",
        "q, k = rotated(q, positions), rotated(k, positions)\n        k",
        "q = rotated(q, positions)\n        k",
        "wrong-relation",
        "q = rotated",
        "k, v = gather",
    ),
    gathered(
        "values gathered twice",
        "return scores.softmax(-1) @ v\n\n    sequence",
        "return scores.softmax(-1) @ (2 * v)\n\n    sequence",
        SCALE,
    ),
)

OUTSIDE = "        x = x.masked_fill(outside[:, None], 0.0)\n"
CHOSEN = "        chosen = chosen.masked_fill(outside, 0.0)\n"

VOCABULARY: tuple[SourceEdit, ...] = (
    vocabulary.removed(
        "embedding not reduced",
        "        dist.all_reduce(x, group=group)\n",
        MISSING,
        "x = x.masked_fill",
        "x = F.embedding(local",
    ),
    vocabulary.removed(
        "foreign rows not zeroed", OUTSIDE, "wrong-relation", "x = F.embedding(local", "dist.all_reduce(x"
    ),
    vocabulary(
        "every rank looks up its table from zero",
        "start = rank * size\n        outside = (tokens",
        "start = 0 * size\n        outside = (tokens",
        "wrong-shard wrong-relation",
        "*",
        "outside = (tokens",
        "local = (tokens",
    ),
    vocabulary("bounds off by one", "tokens >= start + size)", "tokens > start + size)", "wrong-shard wrong-relation"),
    vocabulary.averaged(
        "embedding averaged",
        "dist.all_reduce(x, group=group)",
        SCALE,
    ),
    vocabulary.removed(
        "denominator not reduced",
        "        dist.all_reduce(total, group=group)\n",
        MISSING,
        "total = logits.exp().sum(-1)",
    ),
    vocabulary.removed(
        "chosen logit not reduced", "        dist.all_reduce(chosen, group=group)\n", MISSING, "chosen = "
    ),
    vocabulary.removed(
        "foreign targets not zeroed", CHOSEN, "wrong-relation", "chosen = logits.gather", "dist.all_reduce(chosen"
    ),
    vocabulary.removed(
        "largest of the own part",
        "        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)\n",
        "wrong-relation missing-reduction",
        "largest = logits.max",
        "logits = logits - largest",
    ),
    vocabulary(
        "targets from zero",
        "local = (target - start).masked_fill(outside, 0)",
        "local = target.masked_fill(outside, 0)",
        "wrong-shard wrong-relation",
        "*",
        "chosen = logits.gather",
    ),
    vocabulary(
        "logarithm before the reduction",
        "        dist.all_reduce(total, group=group)\n        outside",
        "        total = total.log()\n        dist.all_reduce(total, group=group)\n        total = total.exp()\n        outside",
        "nonlinear-on-partial",
        "total = total.log()",
    ),
    vocabulary(
        "sum over the tokens",
        "return (total.log() - chosen).mean()",
        "return (total.log() - chosen).sum()",
        "wrong-scale",
    ),
    vocabulary.followed(
        "loss over the ranks",
        "return (total.log() - chosen).mean()",
        " / dist.get_world_size(group)",
        SCALE,
    ),
    vocabulary(
        "gathered logits",
        "return cross_entropy(logits, target)\n\n    index",
        "return cross_entropy(logits * 2, target)\n\n    index",
        SCALE,
    ),
)

PIPELINE: tuple[SourceEdit, ...] = (
    pipeline(
        "micro-batches summed",
        "total = total + loss / MICRO_BATCHES",
        "total = total + loss",
        SCALE,
        "*",
        "loss = F.mse_loss(",
    ),
    pipeline.followed(
        "divided by the stages",
        "total = total + loss / MICRO_BATCHES",
        " / dist.get_world_size(group)",
        SCALE,
    ),
    pipeline(
        "only the last micro-batch",
        "total = total + loss / MICRO_BATCHES",
        "total = loss / MICRO_BATCHES",
        "wrong-relation",
    ),
    pipeline(
        "loss of the first stage",
        "dist.broadcast(total, 1, group=group)",
        "dist.broadcast(total, 0, group=group)",
        "wrong-relation wrong-group",
    ),
    pipeline.removed(
        "loss stays on the last stage",
        "        dist.broadcast(total, 1, group=group)\n",
        "wrong-relation missing-reduction",
        "return total",
        "total = ",
    ),
    pipeline("activation forgotten", "h = torch.tanh(part @ first)", "h = part @ first", "wrong-relation"),
    pipeline(
        "activation on both stages",
        "loss = F.mse_loss(h @ second, wanted)",
        "loss = F.mse_loss(torch.tanh(h) @ second, wanted)",
        "wrong-relation",
    ),
    pipeline(
        "sent in half precision",
        "dist.send(h, 1, group=group)",
        "dist.send(h.bfloat16().float(), 1, group=group)",
        "lower-precision",
    ),
    pipeline(
        "first micro-batch twice",
        "total = total + loss / MICRO_BATCHES",
        "total = total + F.mse_loss(h @ second, wanted) / MICRO_BATCHES + 0 * loss + loss / MICRO_BATCHES",
        "wrong-scale wrong-relation",
    ),
    pipeline(
        "targets of the first micro-batch",
        "loss = F.mse_loss(h @ second, wanted)",
        "loss = F.mse_loss(h @ second, target.chunk(MICRO_BATCHES)[0])",
        "wrong-relation wrong-shard",
    ),
    pipeline(
        "sum where a mean is needed",
        "loss = F.mse_loss(h @ second, wanted)",
        'loss = F.mse_loss(h @ second, wanted, reduction="sum")',
        SCALE,
    ),
)

EDITS = (*DISPATCH, *ULYSSES, *RING, *VOCABULARY, *PIPELINE)
