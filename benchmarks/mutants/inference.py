"""Edits of inference code: functional collectives, vLLM's flags, adapters."""

from __future__ import annotations

from benchmarks.mutants.edit import SourceEdit, spoiler

MISSING, EXTRA, SCALE, SHARD = "missing-reduction", "extra-reduction", "wrong-scale", "wrong-shard"

mlp = spoiler("functional.py", "functional_mlp")
norm = spoiler("functional.py", "functional_norm")
sequence = spoiler("functional.py", "functional_sequence")
vmlp = spoiler("vllm.py", "vllm_mlp")
layer = spoiler("vllm.py", "vllm_layer")
classifier = spoiler("vllm.py", "vllm_classifier")
lora = spoiler("adapters.py", "adapters")

FUNCTIONAL: tuple[SourceEdit, ...] = (
    mlp.removed("no all-reduce", '        y = all_reduce(y, "sum", tp)\n', MISSING, "y = h @ part(down, 0, tp)"),
    mlp("mean", 'y = all_reduce(y, "sum", tp)', 'y = all_reduce(y, "avg", tp)', SCALE),
    mlp(
        "result not read",
        'y = all_reduce(y, "sum", tp)',
        'all_reduce(y, "sum", tp)',
        "dead-collective missing-reduction",
    ),
    mlp(
        "bias first",
        '        y = all_reduce(y, "sum", tp)\n        return y + bias',
        '        return all_reduce(y + bias, "sum", tp)',
        EXTRA,
    ),
    mlp("wrong part of the second weight", "part(down, 0, tp)", "down.chunk(tp.size(), 0)[0]", SHARD),
    mlp(
        "wrong half of the first weight",
        "F.gelu(x @ part(up, 1, tp))",
        "F.gelu(x @ up.chunk(tp.size(), 1)[1 - tp.get_local_rank()])",
        SHARD,
    ),
    mlp("reduced twice", 'y = all_reduce(y, "sum", tp)', 'y = all_reduce(all_reduce(y, "sum", tp), "sum", tp)', EXTRA),
    mlp(
        "activation behind the second product",
        "y = h @ part(down, 0, tp)\n",
        "y = F.gelu(h @ part(down, 0, tp))\n",
        "wrong-relation nonlinear-on-partial",
    ),
    norm.removed(
        "square not reduced",
        '        square = all_reduce(square, "sum", tp)\n',
        "missing-reduction nonlinear-on-partial",
        "square = own.pow(2)",
        "mean = square",
    ),
    norm("divided by the local width", "mean = square / x.shape[-1]", "mean = square / own.shape[-1]", SCALE),
    norm("square averaged", 'square = all_reduce(square, "sum", tp)', 'square = all_reduce(square, "avg", tp)', SCALE),
    norm(
        "scale of the first part",
        "part(x, 1, tp), part(weight, 0, tp)",
        "part(x, 1, tp), weight.chunk(tp.size())[0]",
        SHARD,
    ),
    norm(
        "gathered along the wrong dim",
        "return all_gather_tensor(y, 1, tp)",
        "return all_gather_tensor(y, 0, tp).view(x.shape)",
        SHARD,
    ),
    norm.followed(
        "epsilon added on every rank",
        "square = own.pow(2).sum(-1, keepdim=True)",
        " + EPS",
        "extra-reduction wrong-scale wrong-relation",
    ),
    norm(
        "root before the reduction",
        'square = all_reduce(square, "sum", tp)\n',
        'square = all_reduce(square.sqrt(), "sum", tp).square()\n',
        "nonlinear-on-partial",
    ),
    sequence(
        "own part instead of the sum",
        'y = reduce_scatter_tensor(partial, "sum", 0, tp)',
        "y = part(partial, 0, tp)",
        MISSING,
        "*",
        "partial = h",
    ),
    sequence("mean", 'reduce_scatter_tensor(partial, "sum"', 'reduce_scatter_tensor(partial, "avg"', SCALE),
    sequence(
        "bias first",
        'y = reduce_scatter_tensor(partial, "sum", 0, tp)\n        y = y + bias\n',
        'partial = partial + bias\n        y = reduce_scatter_tensor(partial, "sum", 0, tp)\n',
        EXTRA,
        "partial = partial + bias",
    ),
    sequence("first rows everywhere", "local = part(x, 0, tp)", "local = x.chunk(tp.size(), 0)[0]", SHARD),
    sequence(
        "rows in reverse order",
        "local = part(x, 0, tp)",
        "local = x.chunk(tp.size(), 0)[1 - tp.get_local_rank()]",
        SHARD,
    ),
    sequence("result scaled", "y = y + bias", "y = 0.5 * y + bias", SCALE),
)

REDUCED = "        if self.reduce_results:\n            y = tensor_model_parallel_all_reduce(y)\n"
GATHERED = "        if self.gather_output:\n            y = tensor_model_parallel_all_gather(y)\n"
DOWN = "self.down = RowParallelLinear(HIDDEN, DIM, reduce_results=True)"

VLLM: tuple[SourceEdit, ...] = (
    vmlp(
        "results not reduced by flag",
        DOWN,
        DOWN.replace("True", "False"),
        MISSING,
        "y = F.linear(x, self.weight, bias)",
        "*",
        "return self.down(h)",
    ),
    vmlp.removed("flag without effect", REDUCED, MISSING, "y = F.linear(x, self.weight, bias)", "*"),
    vmlp(
        "bias on every rank",
        "bias = None if dist.get_rank(get_tp_group()) > 0 else self.bias",
        "bias = self.bias",
        EXTRA,
        "y = F.linear(x, self.weight, bias)",
    ),
    vmlp(
        "bias on no rank",
        "bias = None if dist.get_rank(get_tp_group()) > 0 else self.bias",
        "bias = None",
        "wrong-relation",
        "*",
        "y = F.linear(x, self.weight, bias)",
        "y = tensor_model_parallel_all_reduce(y)",
    ),
    vmlp(
        "reduced once more", "return self.down(h)", "return tensor_model_parallel_all_reduce(self.down(h))", EXTRA, "*"
    ),
    vmlp(
        "gate without its activation",
        "h = F.silu(self.gate(x)) * self.up(x)",
        "h = self.gate(x) * self.up(x)",
        "wrong-relation",
    ),
    vmlp(
        "gate and up exchanged",
        "h = F.silu(self.gate(x)) * self.up(x)",
        "h = F.silu(self.up(x)) * self.gate(x)",
        "wrong-relation",
    ),
    vmlp.averaged(
        "helper averages",
        "    dist.all_reduce(x, group=get_tp_group())",
        SCALE,
        "*",
        "tensor_model_parallel_all_reduce(y)",
    ),
    vmlp.removed(
        "helper forgets to reduce",
        "    dist.all_reduce(x, group=get_tp_group())\n",
        MISSING,
        "y = F.linear(x, self.weight, bias)",
        "y = tensor_model_parallel_all_reduce(y)",
        "x = x.clone()",
    ),
    layer.within(
        "attention's results not reduced",
        "self.o = RowParallelLinear(HEADS * HEAD_DIM, DIM, bias=False)",
        "bias=False)",
        "bias=False, reduce_results=False)",
        MISSING,
        "y = F.linear(x, self.weight, bias)",
        "*",
        "return self.o(context)",
    ),
    layer("attention's context halved", "return self.o(context)", "return self.o(context / 2)", SCALE),
    layer.within(
        "keys for values",
        "context = attend(self.q(x), self.k(x), self.v(x))",
        "self.v(x))",
        "self.k(x))",
        "wrong-relation",
    ),
    layer(
        "context in half precision",
        "return self.o(context)",
        "return self.o(context.half().float())",
        "lower-precision",
    ),
    layer(
        "attention reduced once more",
        "return self.o(context)",
        "return tensor_model_parallel_all_reduce(self.o(context))",
        EXTRA,
        "*",
    ),
    classifier(
        "parts gathered in reverse order",
        "return torch.cat(parts, dim=dim)",
        "return torch.cat(parts[::-1], dim=dim)",
        SHARD,
    ),
    classifier("every rank takes the first part of the input", "[dist.get_rank(get_tp_group())]\n", "[0]\n", SHARD),
    classifier(
        "output of the head not reduced",
        "input_is_parallel=False)",
        "input_is_parallel=False, reduce_results=False)",
        MISSING,
        "y = F.linear(x, self.weight, bias)",
        "*",
        "return self.head(h)",
    ),
    classifier(
        "hidden activation doubled", "h = torch.tanh(self.hidden(x))", "h = 2 * torch.tanh(self.hidden(x))", SCALE
    ),
)

ADAPTERS: tuple[SourceEdit, ...] = (
    lora.removed("product not reduced", "        dist.all_reduce(y, group=group)\n", MISSING, "y = h @ down"),
    lora.removed(
        "adapter not reduced",
        "        dist.all_reduce(low, group=group)\n",
        MISSING,
        "low = h @ down_a",
        "y = y + scale",
    ),
    lora(
        "neither reduced",
        "        dist.all_reduce(y, group=group)\n        dist.all_reduce(low, group=group)\n        y = y + scale * (low @ down_b)\n",
        "        y = y + scale * (low @ down_b)\n",
        MISSING,
        "y = y + scale",
        "y = h @ down",
    ),
    lora(
        "adapter added before the reduction",
        "        dist.all_reduce(y, group=group)\n        dist.all_reduce(low, group=group)\n        y = y + scale * (low @ down_b)\n",
        "        dist.all_reduce(low, group=group)\n        y = y + scale * (low @ down_b)\n        dist.all_reduce(y, group=group)\n",
        EXTRA,
        "y = y + scale",
    ),
    lora.averaged(
        "adapter averaged",
        "dist.all_reduce(low, group=group)",
        SCALE,
    ),
    lora("scale forgotten", "y = y + scale * (low @ down_b)", "y = y + low @ down_b", "wrong-scale"),
    lora("scale applied twice", "y = y + scale * (low @ down_b)", "y = y + scale * scale * (low @ down_b)", SCALE),
    lora(
        "scale divided by the ranks",
        "scale = ALPHA / RANK",
        "scale = ALPHA / RANK / dist.get_world_size(group)",
        SCALE,
        "*",
        "scale * (x @ up_a @ up_b)",
        "scale * (low @ down_b)",
    ),
    lora(
        "residual reduced",
        "return x + y",
        "y = x + y\n        dist.all_reduce(y, group=group)\n        return y",
        EXTRA,
        "dist.all_reduce(y, group=group)\n"[:-1],
        "y = x + y",
    ),
    lora(
        "residual added before the reduction",
        "        y = h @ down\n",
        "        y = x + h @ down\n",
        "extra-reduction wrong-relation",
    ),
    lora("product doubled", "y = h @ down\n", "y = 2 * (h @ down)\n", SCALE),
)

EDITS = (*FUNCTIONAL, *VLLM, *ADAPTERS)
