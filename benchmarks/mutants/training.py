"""Edits of training steps: data parallelism, sharded optimizers, clipping, losses, two axes, PyTorch's own modules."""

from __future__ import annotations

from benchmarks.mutants.edit import SourceEdit, spoiler

MISSING, EXTRA, SCALE, SHARD = "missing-reduction", "extra-reduction", "wrong-scale", "wrong-shard"
GRADIENT, GROUP = "gradient-not-reduced", "wrong-group"
UNREDUCED = f"{MISSING} {GRADIENT}"

step = spoiler("examples/data_parallel.py", "step_with_mean")
zero = spoiler("zero.py", "zero_step")
accumulation = spoiler("training.py", "accumulation")
clip = spoiler("training.py", "clipping")
loss = spoiler("training.py", "masked_loss")
norm = spoiler("training.py", "synchronized_norm")
axes = spoiler("two_axes.py", "two_axes")
fsdp = spoiler("fsdp.py", "fully_sharded")
replicated = spoiler("fsdp.py", "replicated")
dtensor = spoiler("dtensor.py", "dtensor_layer")
net = spoiler("dtensor.py", "dtensor_net")
dsequence = spoiler("dtensor.py", "dtensor_sequence")

STEP: tuple[SourceEdit, ...] = (
    step.removed("sum instead of mean", "        grad.div_(dist.get_world_size())\n", SCALE, "dist.all_reduce(grad)"),
    step.removed(
        "gradients not reduced",
        "        dist.all_reduce(grad)\n",
        UNREDUCED,
        "grad.div_",
        "gradients(",
        "autograd.grad",
    ),
    step.followed(
        "divided twice",
        "grad.div_(dist.get_world_size())",
        ".div_(dist.get_world_size())",
        SCALE,
    ),
    step("every rank reads the first part", "x.chunk(ranks)[rank]", "x.chunk(ranks)[0]", SHARD),
    step.followed(
        "reduced twice",
        "        dist.all_reduce(grad)\n",
        "        dist.all_reduce(grad)\n",
        EXTRA,
        "dist.all_reduce(grad)",
    ),
    step(
        "wrong learning rate",
        "return weight - LEARNING_RATE * grads[0], bias",
        "return weight - 2 * LEARNING_RATE * grads[0], bias",
        SCALE,
        nth=0,
    ),
    step("targets of another rank", "target.chunk(ranks)[rank]", "target.chunk(ranks)[1 - rank]", SHARD),
    step(
        "copy reduced",
        "dist.all_reduce(grad)\n        grad.div_",
        "dist.all_reduce(grad.clone())\n        grad.div_",
        "dead-collective missing-reduction gradient-not-reduced",
        "*",
    ),
)

SCATTER = "dist.reduce_scatter_tensor(grad, bucket, group=group)"

ZERO: tuple[SourceEdit, ...] = (
    zero.removed("sum instead of mean", "        bucket = bucket / ranks\n", SCALE, SCATTER, "bucket = torch.cat"),
    zero.followed("divided twice", "bucket = bucket / ranks", " / ranks", SCALE),
    zero.averaged(
        "mean of means",
        SCATTER,
        SCALE,
        "*",
        "bucket = bucket / ranks",
    ),
    zero(
        "own part of the own gradient",
        SCATTER,
        "grad = bucket.chunk(ranks)[rank]",
        UNREDUCED,
        "*",
        "bucket = bucket / ranks",
        "gradients(weight",
        "autograd.grad",
    ),
    zero("first part updated everywhere", "own = flat.chunk(ranks)[rank]", "own = flat.chunk(ranks)[0]", SHARD),
    zero("parts in reverse order", "own = flat.chunk(ranks)[rank]", "own = flat.chunk(ranks)[ranks - 1 - rank]", SHARD),
    zero(
        "bucket in another order",
        "for each in grads])\n        bucket = bucket",
        "for each in reversed(grads)])\n        bucket = bucket",
        "wrong-shard wrong-relation",
    ),
    zero(
        "decay doubled",
        "        grad = grad + DECAY * own\n        mom",
        "        grad = grad + 2 * DECAY * own\n        mom",
        SCALE,
    ),
    zero.removed(
        "decay forgotten",
        "        grad = grad + DECAY * own\n",
        "wrong-relation",
        "momentum = MOMENTUM * momentum + grad",
        "dist.reduce_scatter_tensor",
    ),
    zero.followed(
        "decay before the reduction",
        "        bucket = bucket / ranks\n",
        "        bucket = bucket + DECAY * torch.cat([weight.flatten(), bias.flatten()])\n",
        "wrong-relation wrong-scale extra-reduction",
        "bucket = bucket + DECAY",
    ),
    zero.within(
        "momentum scaled",
        "momentum = MOMENTUM * momentum + grad\n        own",
        "grad",
        "grad / ranks",
        SCALE,
    ),
    zero(
        "wrong sign",
        "own = own - LEARNING_RATE * momentum",
        "own = own + LEARNING_RATE * momentum",
        "wrong-scale wrong-relation",
    ),
    zero(
        "old parameters gathered",
        "        own = own - LEARNING_RATE * momentum\n",
        "        updated = own - LEARNING_RATE * momentum\n",
        "wrong-relation dead-collective",
        "own = flat.chunk",
        "dist.all_gather_into_tensor",
        "*",
    ),
    zero(
        "gradient in half precision",
        "bucket = bucket / ranks",
        "bucket = (bucket / ranks).bfloat16().float()",
        "lower-precision",
    ),
)

ADD = "dist.all_reduce(total, group=group)\n        total = total / ranks"

TRAINING: tuple[SourceEdit, ...] = (
    accumulation(
        "micro-batches summed",
        "loss_of(weight, part, wanted) / MICRO_BATCHES",
        "loss_of(weight, part, wanted)",
        SCALE,
        "*",
        "total = total / ranks",
    ),
    accumulation.followed("divided by the micro-batches twice", "total = total / ranks", " / MICRO_BATCHES", SCALE),
    accumulation.removed("sum over the ranks", "        total = total / ranks\n", SCALE, "dist.all_reduce(total"),
    accumulation(
        "not reduced",
        "        dist.all_reduce(total, group=group)\n        total = total / ranks\n        return weight - RATE",
        "        total = total / ranks\n        return weight - RATE",
        UNREDUCED,
        "total = total",
    ),
    accumulation("only the last micro-batch", "total = total + grad", "total = grad", "wrong-relation", "*"),
    accumulation.followed(
        "reduced in every micro-batch, too",
        "            total = total + grad\n",
        "            dist.all_reduce(total, group=group)\n",
        "extra-reduction wrong-scale",
        "dist.all_reduce(total",
    ),
    accumulation.within(
        "copy reduced",
        "        dist.all_reduce(total, group=group)\n        total = total / ranks\n        return weight - RATE",
        "dist.all_reduce(total,",
        "dist.all_reduce(total.clone(),",
        "dead-collective missing-reduction gradient-not-reduced",
        "total.clone()",
    ),
    accumulation.averaged("averaged and divided", ADD, SCALE),
    clip(
        "norm of the own part",
        "        dist.all_reduce(square, group=group)\n        square = square + norm",
        "        square = square + norm",
        "missing-reduction nonlinear-on-partial",
        "square = ",
    ),
    clip(
        "replicated gradients counted on every rank",
        "        dist.all_reduce(square, group=group)\n        square = square + norm_grad.pow(2).sum()\n",
        "        square = square + norm_grad.pow(2).sum()\n        dist.all_reduce(square, group=group)\n",
        EXTRA,
        "square = square + norm_grad",
    ),
    clip.averaged(
        "norm averaged",
        "dist.all_reduce(square, group=group)\n        square = square + norm",
        SCALE,
    ),
    clip(
        "root before the reduction",
        "square = weight_grad.pow(2).sum()\n        dist",
        "square = weight_grad.pow(2).sum().sqrt()\n        dist",
        "nonlinear-on-partial wrong-relation",
    ),
    clip.removed(
        "replicated gradients forgotten",
        "        square = square + norm_grad.pow(2).sum()\n",
        "wrong-relation",
        "norm = square.sqrt()",
        "dist.all_reduce(square",
    ),
    clip.within(
        "factor of one gradient only",
        "return weight_grad * factor, norm_grad * factor\n\n    shard",
        "norm_grad * factor",
        "norm_grad",
        "wrong-relation",
        "*",
    ),
    clip("no root", "norm = square.sqrt()", "norm = square", "wrong-relation", "*", "square = square + norm_grad"),
    loss(
        "mean of means",
        "        total = (losses * mask).sum()\n        count = mask.sum()\n        dist.all_reduce(total, group=group)\n        dist.all_reduce(count, group=group)\n        return total / count",
        "        total = (losses * mask).sum()\n        count = mask.sum()\n        mean = total / count\n        dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=group)\n        return mean",
        "missing-reduction nonlinear-on-partial wrong-relation wrong-scale",
        "mean = total / count",
        "count = mask.sum()",
        "dist.all_reduce(mean",
    ),
    loss.removed("count not reduced", "        dist.all_reduce(count, group=group)\n", MISSING, "count = mask.sum()"),
    loss(
        "sum not reduced",
        "        dist.all_reduce(total, group=group)\n        dist.all_reduce(count",
        "        dist.all_reduce(count",
        MISSING,
        "total = (losses * mask).sum()",
    ),
    loss.averaged(
        "count averaged",
        "dist.all_reduce(count, group=group)",
        SCALE,
    ),
    loss(
        "mask forgotten",
        "total = (losses * mask).sum()",
        "total = losses.sum()",
        "wrong-relation",
        "*",
        "losses = torch.logsumexp",
        nth=0,
    ),
    loss("ranks counted twice", "return total / count", "return total / count / dist.get_world_size(group)", SCALE),
    norm(
        "sum not reduced",
        "        dist.all_reduce(total, group=group)\n        mean",
        "        mean",
        MISSING,
        "total = x.sum(0)",
    ),
    norm(
        "squares not reduced",
        "        dist.all_reduce(square, group=group)\n        variance",
        "        variance",
        MISSING,
        "square = (x - mean)",
    ),
    norm("variance over the own count", "variance = square / count", "variance = square / x.shape[0]", SCALE),
    norm("mean over the own count", "mean = total / count", "mean = total / x.shape[0]", SCALE),
    norm(
        "count without the ranks",
        "count = x.shape[0] * ranks",
        "count = x.shape[0]",
        SCALE,
        "*",
        "mean = total / count",
        "variance = square / count",
    ),
    norm.averaged(
        "mean averaged",
        "dist.all_reduce(total, group=group)\n        mean",
        SCALE,
    ),
    norm.within(
        "scale forgotten",
        "torch.rsqrt(variance + 1e-5) * scale + shift\n\n    inputs",
        "* scale +",
        "+",
        "wrong-relation",
    ),
    norm.within(
        "root of the unscaled square",
        "torch.rsqrt(variance + 1e-5) * scale + shift\n\n    inputs",
        "torch.rsqrt(variance",
        "torch.rsqrt(square",
        "wrong-scale wrong-relation",
    ),
)

UP = "        dist.all_reduce(up_grad, group=dp_group)\n"
DOWN = "        dist.all_reduce(down_grad, group=dp_group)\n"
PRODUCT = "y = Reduce.apply(partial, tp_group)"

AXES: tuple[SourceEdit, ...] = (
    axes(
        "product reduced over the wrong axis",
        PRODUCT,
        PRODUCT.replace("tp_group", "dp_group"),
        "wrong-group missing-reduction",
        "*",
    ),
    axes("product not reduced", PRODUCT, "y = partial", MISSING, "partial = F.relu"),
    axes("product reduced over the world", PRODUCT, "y = Reduce.apply(partial, None)", "wrong-group"),
    axes("one gradient reduced over the wrong axis", UP, UP.replace("dp_group", "tp_group"), GROUP),
    axes("other gradient reduced over the wrong axis", DOWN, DOWN.replace("dp_group", "tp_group"), GROUP),
    axes.removed(
        "one gradient not reduced",
        UP,
        UNREDUCED,
        "torch.autograd.grad(loss, (up, down))\n"[:-1],
        "up_grad, down_grad = up_grad / dp",
    ),
    axes.removed(
        "other gradient not reduced",
        DOWN,
        UNREDUCED,
        "torch.autograd.grad(loss, (up, down))\n"[:-1],
        "up_grad, down_grad = up_grad / dp",
    ),
    axes("gradients reduced over the world", UP, UP.replace(", group=dp_group", ""), GROUP),
    axes.removed(
        "gradients not divided",
        "        up_grad, down_grad = up_grad / dp_ranks, down_grad / dp_ranks\n",
        SCALE,
        "dist.all_reduce(up_grad",
        "dist.all_reduce(down_grad",
    ),
    axes(
        "one gradient divided by the world", "up_grad / dp_ranks, down", "up_grad / dist.get_world_size(), down", SCALE
    ),
    axes.removed("loss not reduced", "        dist.all_reduce(mean, group=dp_group)\n", MISSING, "mean = "),
    axes(
        "loss reduced over the wrong axis",
        "dist.all_reduce(mean, group=dp_group)",
        "dist.all_reduce(mean, group=tp_group)",
        GROUP,
    ),
    axes.removed("loss summed", "        mean = mean / dp_ranks\n", SCALE, "dist.all_reduce(mean"),
    axes(
        "backward reduces again",
        "        return grad, None\n",
        "        grad = grad.clone()\n        dist.all_reduce(grad, group=ctx.group)\n        return grad, None\n".replace(
            "ctx.group", "None"
        ),
        EXTRA,
        "dist.all_reduce(grad",
    ),
)

MEAN = "        x = x.clone()\n        dist.all_reduce(x)\n        return x / dist.get_world_size()\n"

FSDP: tuple[SourceEdit, ...] = (
    fsdp(
        "loss summed over ranks",
        MEAN,
        MEAN.replace(" / dist.get_world_size()", ""),
        SCALE,
        "dist.all_reduce(x)",
        "return MeanOverRanks.apply(mean)",
    ),
    fsdp.removed(
        "loss not reduced",
        "        dist.all_reduce(x)\n",
        MISSING,
        "x = x.clone()",
        "mean = y.square()",
        "MeanOverRanks.apply(mean)",
        "return x / dist",
    ),
    fsdp.within(
        "gradient divided by hand, too",
        "    def backward(ctx, grad):\n        return grad\n",
        "return grad",
        "return grad / dist.get_world_size()",
        SCALE,
        "return grad / dist",
    ),
    fsdp.followed(
        "gradients summed",
        '    fully_shard(impl, mesh=mesh["dp"])\n',
        "    impl.set_gradient_divide_factor(1.0)\n",
        SCALE,
        "*",
        "fully_shard(",
        "set_gradient",
    ),
    fsdp.within(
        "sum of squares",
        "        mean = y.square().mean()\n        return MeanOverRanks",
        "y.square().mean()",
        "y.square().sum()",
        SCALE,
        "y.square().sum()",
    ),
    replicated.removed(
        "gradients not reduced",
        "        dist.all_reduce(grad)\n",
        UNREDUCED,
        "return grad / dist.get_world_size()",
        "grad = grad.clone()",
        "self.down(torch.relu(self.up(x)))",
    ),
    replicated(
        "gradients summed",
        "return grad / dist.get_world_size()",
        "return grad",
        SCALE,
        "dist.all_reduce(grad)",
        "return grad",
    ),
    replicated.followed(
        "gradients reduced twice",
        "        dist.all_reduce(grad)\n",
        "        dist.all_reduce(grad)\n",
        EXTRA,
        "dist.all_reduce(grad)",
    ),
    replicated(
        "gradients averaged and divided",
        "dist.all_reduce(grad)",
        "dist.all_reduce(grad, op=dist.ReduceOp.AVG)",
        SCALE,
        "*",
        "return grad / dist",
    ),
)

DTENSOR: tuple[SourceEdit, ...] = (
    dtensor(
        "output left partial",
        '"feed_forward.w2": RowwiseParallel(),',
        '"feed_forward.w2": RowwiseParallel(output_layouts=Partial()),',
        MISSING,
        "*",
        "return self.w2(",
        "x + self.feed_forward(self.norm(x))",
    ),
    net(
        "middle left partial",
        '"mid": RowwiseParallel(),',
        '"mid": RowwiseParallel(output_layouts=Partial()),',
        "missing-reduction nonlinear-on-partial",
        "*",
        "torch.tanh(self.mid(h))",
    ),
    dsequence.removed(
        "norm not in the plan",
        '        "norm": SequenceParallel(),\n',
        GRADIENT,
        "x + self.feed_forward(self.norm(x))",
        "plan = {",
        '"feed_forward": PrepareModuleInput(',
    ),
)

EDITS = (*STEP, *ZERO, *TRAINING, *AXES, *FSDP, *DTENSOR)
