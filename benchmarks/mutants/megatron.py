"""Edits of tensor- and sequence-parallel modules in the manner of Megatron-LM, the examples among them."""

from __future__ import annotations

from benchmarks.mutants.edit import SourceEdit, spoiler

MISSING, EXTRA, GRADIENT, SCALE = "missing-reduction", "extra-reduction", "gradient-not-reduced", "wrong-scale"

mlp = spoiler("examples/megatron_mlp.py", "mlp")
llama = spoiler("examples/llama.py", "llama_layer")
moe = spoiler("examples/moe.py", "moe")
gpt = spoiler("gpt.py", "gpt_block")
sequence = spoiler("sequence_parallel.py", "sequence_parallel")

REDUCE = "        y = ReduceFromTensorParallel.apply(y, self.group)\n"
BIAS = "y = F.linear(h, self.weight)\n" + REDUCE + "        return y + self.bias"
BACKWARD = "        dist.all_reduce(grad, group=ctx.group)\n"

MLP: tuple[SourceEdit, ...] = (
    mlp.removed("no all-reduce", REDUCE, MISSING, "y = F.linear(h, self.weight)"),
    mlp(
        "bias before the all-reduce",
        BIAS,
        "y = F.linear(h, self.weight, self.bias)\n        return ReduceFromTensorParallel.apply(y, self.group)",
        EXTRA,
        "y = F.linear(h, self.weight, self.bias)",
    ),
    mlp(
        "bias added before the all-reduce",
        BIAS,
        "y = F.linear(h, self.weight) + self.bias\n        return ReduceFromTensorParallel.apply(y, self.group)",
        EXTRA,
        "y = F.linear(h, self.weight) + self.bias",
    ),
    mlp.removed(
        "gradient of the input not reduced",
        BACKWARD,
        GRADIENT,
        "return grad, None",
        "F.linear(x, self.weight",
        "CopyToTensorParallel.apply",
    ),
    mlp.removed(
        "column-parallel input not copied",
        "        x = CopyToTensorParallel.apply(x, self.group)\n",
        GRADIENT,
        "F.linear(x, self.weight, self.bias)",
    ),
    mlp.averaged(
        "mean instead of sum",
        "dist.all_reduce(x, group=group)",
        SCALE,
        "*",
        "ReduceFromTensorParallel.apply(y",
    ),
    mlp(
        "all-reduce twice",
        "y = ReduceFromTensorParallel.apply(y, self.group)\n",
        "y = ReduceFromTensorParallel.apply(ReduceFromTensorParallel.apply(y, self.group), self.group)\n",
        EXTRA,
        "*",
        "dist.all_reduce(x",
    ),
    mlp(
        "gradient reduced in the row-parallel backward, too",
        "return grad, None",
        "grad = grad.clone()\n        dist.all_reduce(grad)\n        return grad, None",
        EXTRA,
        "dist.all_reduce(grad)",
        nth=1,
    ),
    mlp(
        "output divided by the number of ranks",
        "return y + self.bias",
        "return y / dist.get_world_size(self.group) + self.bias",
        SCALE,
    ),
    mlp.followed("output doubled", REDUCE, "        y = y * 2\n", SCALE, "y = y * 2"),
    mlp("gradient of the input halved", "return grad, None", "return grad / 2, None", SCALE),
    mlp("gradient behind the row-parallel sum halved", "return grad, None", "return grad / 2, None", SCALE, nth=1),
    mlp("weight divided", "y = F.linear(h, self.weight)\n", "y = F.linear(h, self.weight / 2)\n", SCALE),
    mlp(
        "reduction of a copy that is not read",
        "x = x.clone()\n        dist.all_reduce(x, group=group)\n",
        "dist.all_reduce(x.clone(), group=group)\n",
        "dead-collective missing-reduction",
        "*",
    ),
    mlp(
        "maximum instead of sum",
        "dist.all_reduce(x, group=group)",
        "dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)",
        "missing-reduction wrong-relation",
        "*",
        "ReduceFromTensorParallel.apply(y",
    ),
    mlp.within(
        "gelu behind the partial product",
        "y = ReduceFromTensorParallel.apply(y, self.group)\n        return y + self.bias",
        "ReduceFromTensorParallel.apply(y,",
        "F.relu(y)\n        y = ReduceFromTensorParallel.apply(y,",
        "wrong-relation",
    ),
    mlp(
        "detached input",
        "x = CopyToTensorParallel.apply(x, self.group)",
        "x = CopyToTensorParallel.apply(x.detach(), self.group)",
        "wrong-relation",
        "*",
    ),
)

COPY = "x = CopyToTensorParallel.apply(x, self.group)\n"
REDUCED = "return ReduceFromTensorParallel.apply(y, self.group)"

LLAMA: tuple[SourceEdit, ...] = (
    llama("no all-reduce in attention", REDUCED, "return y", MISSING, "y = self.wo(attend"),
    llama("no all-reduce in ffn", REDUCED, "return y", MISSING, "y = self.down(F.silu", nth=1),
    llama("attention input not copied", COPY, "pass\n", GRADIENT, "attend(self.wq(x)"),
    llama("ffn input not copied", COPY, "pass\n", GRADIENT, "self.gate(x)", nth=1),
    llama.removed(
        "backward of the copy forgets to reduce",
        BACKWARD,
        GRADIENT,
        "return grad, None",
        "CopyToTensorParallel.apply",
        "attend(self.wq(x)",
        "self.gate(x)",
    ),
    llama.averaged(
        "mean instead of sum",
        "dist.all_reduce(x, group=group)",
        SCALE,
        "*",
        "ReduceFromTensorParallel.apply(y",
    ),
    llama.within(
        "ffn adds its own input, before the reduction",
        "y = self.down(F.silu(self.gate(x)) * self.up(x))\n        return Reduce",
        "self.up(x))",
        "self.up(x)) + x",
        "extra-reduction wrong-scale wrong-relation",
        "+ x",
    ),
    llama.followed(
        "attention output halved",
        REDUCED,
        " / dist.get_world_size(self.group)",
        SCALE,
    ),
    llama.within(
        "up projection reads what is not copied",
        "y = self.down(F.silu(self.gate(x)) * self.up(x))\n        return Reduce",
        "self.up(x))",
        "self.up(x.detach()))",
        "wrong-relation gradient-not-reduced",
        "*",
    ),
)

ROUTED = "weights = CopyToExpertParallel.apply(self.router(x), self.group)\n"
EXPERTS = "return ReduceFromExpertParallel.apply(self.experts(x, own), self.group)"

MOE: tuple[SourceEdit, ...] = (
    moe("no all-reduce", EXPERTS, "return self.experts(x, own)", MISSING),
    moe(
        "router's gradient not reduced",
        ROUTED,
        "weights = self.router(x)\n",
        GRADIENT,
        "weights = self.router(x)",
        "own = weights",
    ),
    moe.removed(
        "tokens' gradient not reduced",
        "        x = CopyToExpertParallel.apply(x, self.group)\n",
        GRADIENT,
        "self.experts(x, own)",
        'torch.einsum("td,ehd->teh", x, self.up)',
    ),
    moe("every rank reads the weights of the first experts", "[dist.get_rank(self.group)]", "[0]", "wrong-shard"),
    moe("weights in reverse order", "[dist.get_rank(self.group)]", "[1 - dist.get_rank(self.group)]", "wrong-shard"),
    moe.averaged(
        "mean over the ranks",
        "dist.all_reduce(x, group=group)",
        SCALE,
        "*",
        "return ReduceFromExpertParallel",
    ),
    moe.followed("result divided", EXPERTS, " / dist.get_world_size(self.group)", SCALE),
    moe.removed(
        "backward of the copy forgets to reduce",
        BACKWARD,
        GRADIENT,
        "return grad, None",
        "CopyToExpertParallel.apply",
        "self.experts(x, own)",
        "own = weights",
    ),
)

PARTIAL = "        whole = reduce_from_tensor_model_parallel_region(partial)\n        return whole + self.bias"
HELPER = "        return _reduce(grad)\n\n\nclass _ReduceFrom"

GPT: tuple[SourceEdit, ...] = (
    gpt("no reduction", PARTIAL, "        return partial + self.bias", MISSING, "partial = F.linear(x, self.weight)"),
    gpt(
        "bias in the partial product",
        "partial = F.linear(x, self.weight)\n" + PARTIAL,
        "partial = F.linear(x, self.weight, self.bias)\n        return reduce_from_tensor_model_parallel_region(partial)",
        EXTRA,
        "F.linear(x, self.weight, self.bias)",
    ),
    gpt(
        "bias added to the partial product",
        "partial = F.linear(x, self.weight)\n" + PARTIAL,
        "partial = F.linear(x, self.weight)\n        partial = partial + self.bias\n        return reduce_from_tensor_model_parallel_region(partial)",
        EXTRA,
        "partial = partial + self.bias",
    ),
    gpt(
        "reduced twice",
        "reduce_from_tensor_model_parallel_region(partial)",
        "reduce_from_tensor_model_parallel_region(reduce_from_tensor_model_parallel_region(partial))",
        EXTRA,
    ),
    gpt.removed(
        "input of attention not copied",
        "        x = copy_to_tensor_model_parallel_region(x)\n",
        GRADIENT,
        "qkv = torch.cat(",
    ),
    gpt.removed(
        "input of the MLP not copied",
        "        h = copy_to_tensor_model_parallel_region(h)\n",
        GRADIENT,
        "h = F.gelu(self.up(h)",
    ),
    gpt(
        "copy does not reduce its gradient",
        HELPER,
        HELPER.replace("_reduce(grad)", "grad"),
        GRADIENT,
        "*",
        "copy_to_tensor_model_parallel_region(",
        "qkv = torch.cat(",
        file="mappings.py",
    ),
    gpt(
        "reduction also reduces its gradient",
        "        return grad\n\n\nclass _Scatter",
        "        return _reduce(grad)\n\n\nclass _Scatter",
        EXTRA,
        "*",
        file="mappings.py",
    ),
    gpt.followed(
        "helper averages",
        "    dist.all_reduce(x, group=get_tensor_model_parallel_group())\n    return x",
        " / get_tensor_model_parallel_world_size()",
        SCALE,
        "return x / get",
        file="mappings.py",
    ),
    gpt("result halved", "return whole + self.bias", "return whole / 2 + self.bias", SCALE),
    gpt("bias doubled", "return whole + self.bias", "return whole + 2 * self.bias", SCALE),
    gpt.followed(
        "bias divided by the number of ranks",
        "return whole + self.bias",
        " / get_tensor_model_parallel_world_size()",
        SCALE,
    ),
    gpt("query scaled", "qkv = torch.cat((self.q(x), ", "qkv = torch.cat((self.q(x) * 2, ", SCALE),
    gpt(
        "queries and keys exchanged",
        "qkv = torch.cat((self.q(x), self.k(x), self.v(x)), dim=-1)\n        context",
        "qkv = torch.cat((self.k(x), self.q(x), self.v(x)), dim=-1)\n        context",
        "wrong-relation wrong-shard",
    ),
    gpt.within(
        "residual before the reduction",
        "        x = x + self.attention(self.norm1(x))\n        h = ",
        "= x",
        "= 2 * x",
        SCALE,
    ),
    gpt(
        "residual reduced",
        "return x + self.down(h)",
        "return x + reduce_from_tensor_model_parallel_region(self.down(h))",
        EXTRA,
    ),
    gpt(
        "context in half precision",
        "return self.proj(context)",
        "return self.proj(context.bfloat16().float())",
        "lower-precision",
    ),
    gpt(
        "activation before the bias is whole",
        "whole = reduce_from_tensor_model_parallel_region(partial)",
        "whole = reduce_from_tensor_model_parallel_region(torch.tanh(partial))",
        "wrong-relation nonlinear-on-partial",
    ),
)

SP_BIAS = "        y = reduce_scatter_to_sequence_parallel_region(partial)\n        bias = ReduceParameterGradient.apply(self.down.bias)\n        y = y + bias\n"
LAST = "return gather_from_sequence_parallel_region(y, tensor_parallel_output_grad=False)"

SEQUENCE: tuple[SourceEdit, ...] = (
    sequence(
        "norm's gradient not reduced",
        "weight = ReduceParameterGradient.apply(self.norm.weight)",
        "weight = self.norm.weight",
        GRADIENT,
        "*",
        "F.layer_norm(local",
    ),
    sequence(
        "norm's shift not reduced",
        "shift = ReduceParameterGradient.apply(self.norm.bias)",
        "shift = self.norm.bias",
        GRADIENT,
        "*",
        "F.layer_norm(local",
    ),
    sequence(
        "bias's gradient not reduced",
        "bias = ReduceParameterGradient.apply(self.down.bias)",
        "bias = self.down.bias",
        GRADIENT,
        "y = y + bias",
        "*",
    ),
    sequence(
        "bias before the reduction",
        "partial = F.linear(h, self.down.weight)\n" + SP_BIAS,
        "partial = F.linear(h, self.down.weight, self.down.bias)\n        y = reduce_scatter_to_sequence_parallel_region(partial)\n",
        EXTRA,
        "F.linear(h, self.down.weight, self.down.bias)",
    ),
    sequence(
        "own part instead of the sum",
        "y = reduce_scatter_to_sequence_parallel_region(partial)",
        "y = scatter_to_sequence_parallel_region(partial)",
        MISSING,
        "*",
        "partial = F.linear(h, self.down.weight)",
    ),
    sequence(
        "gradient of the gathered input only split",
        "whole = gather_from_sequence_parallel_region(normed)",
        "whole = gather_from_sequence_parallel_region(normed, tensor_parallel_output_grad=False)",
        GRADIENT,
        "*",
        "self.up(whole)",
    ),
    sequence(
        "gradient of the last gather summed", LAST, LAST.replace("False", "True"), "extra-reduction wrong-scale", "*"
    ),
    sequence("result halved", "y = local + y", "y = local + y / 2", SCALE),
    sequence("residual of the norm's result", "y = local + y", "y = normed + y", "wrong-relation"),
    sequence.removed("no residual", "        y = local + y\n", "wrong-relation", "y = y + bias", LAST),
    sequence.within(
        "reduce-scatter's mean",
        "    dist.reduce_scatter_tensor(out, x.contiguous(), group=get_tensor_model_parallel_group())\n    return out\n",
        "return out",
        "return out / ranks",
        SCALE,
        "return out / ranks",
        file="mappings.py",
    ),
    sequence(
        "gather joins along the wrong dim",
        "    return torch.cat(parts, dim=dim)",
        "    return torch.cat(parts[::-1], dim=dim)",
        "wrong-shard",
        "*",
        file="mappings.py",
    ),
    sequence(
        "parameter's gradient reduced twice",
        "        return _reduce(grad)\n",
        "        return _reduce(_reduce(grad))\n",
        EXTRA,
        "*",
    ),
    sequence(
        "parameter's gradient averaged",
        "        return _reduce(grad)\n",
        "        return _reduce(grad) / get_tensor_model_parallel_world_size()\n",
        SCALE,
        "*",
    ),
    sequence(
        "backward of reduce-scatter takes a mean",
        "        return _gather(grad, 0)\n\n\ndef copy_to",
        "        return _gather(grad, 0) / get_tensor_model_parallel_world_size()\n\n\ndef copy_to",
        SCALE,
        "*",
        file="mappings.py",
    ),
)

EDITS = (*MLP, *LLAMA, *MOE, *GPT, *SEQUENCE)
