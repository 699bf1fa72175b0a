"""The list of edits: each spoils one right program in one way, and says what a diagnosis of it must be.

``place`` is text that stands on the line where a repair belongs, in the spoiled source; several are allowed where a developer could
as well mend another line.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """``old`` (which occurs in the file) becomes ``new`` at its ``occurrence``; ``rules`` that a finding may name, the best first."""

    name: str
    file: str
    check: str
    old: str
    new: str
    place: tuple[str, ...]
    rules: tuple[str, ...]
    occurrence: int = 0


def _reductions(file: str, check: str, names: dict[str, int], line: str) -> list[SourceEdit]:
    """Forgotten all-reduces behind row-parallel projections."""
    return [
        SourceEdit(
            f"{check}: no all-reduce in {name}", file, check, line, "return y", ("y = ",), ("missing-reduction",), at
        )
        for name, at in names.items()
    ]


MLP = "examples/megatron_mlp.py"
LLAMA = "examples/llama.py"
STEP = "examples/data_parallel.py"
COPY = "x = CopyToTensorParallel.apply(x, self.group)\n"
REDUCED = "return ReduceFromTensorParallel.apply(y, self.group)"

EDITS: tuple[SourceEdit, ...] = (
    SourceEdit(
        "mlp: no all-reduce",
        MLP,
        "mlp",
        "        y = ReduceFromTensorParallel.apply(y, self.group)\n",
        "",
        ("y = F.linear(h, self.weight)",),
        ("missing-reduction",),
    ),
    SourceEdit(
        "mlp: bias before the all-reduce",
        MLP,
        "mlp",
        "y = F.linear(h, self.weight)\n        y = ReduceFromTensorParallel.apply(y, self.group)\n        return y + self.bias",
        "y = F.linear(h, self.weight, self.bias)\n        return ReduceFromTensorParallel.apply(y, self.group)",
        ("y = F.linear(h, self.weight, self.bias)",),
        ("extra-reduction",),
    ),
    SourceEdit(
        "mlp: bias added before the all-reduce",
        MLP,
        "mlp",
        "y = F.linear(h, self.weight)\n        y = ReduceFromTensorParallel.apply(y, self.group)\n        return y + self.bias",
        "y = F.linear(h, self.weight) + self.bias\n        return ReduceFromTensorParallel.apply(y, self.group)",
        ("y = F.linear(h, self.weight) + self.bias",),
        ("extra-reduction",),
    ),
    SourceEdit(
        "mlp: gradient of the input not reduced",
        MLP,
        "mlp",
        "        dist.all_reduce(grad, group=ctx.group)\n",
        "",
        ("return grad, None", "F.linear(x, self.weight", "CopyToTensorParallel.apply"),
        ("gradient-not-reduced",),
    ),
    SourceEdit(
        "mlp: column-parallel input not copied",
        MLP,
        "mlp",
        "        x = CopyToTensorParallel.apply(x, self.group)\n",
        "",
        ("F.linear(x, self.weight, self.bias)",),
        ("gradient-not-reduced",),
    ),
    SourceEdit(
        "mlp: mean instead of sum",
        MLP,
        "mlp",
        "dist.all_reduce(x, group=group)",
        "dist.all_reduce(x, op=dist.ReduceOp.AVG, group=group)",
        ("dist.all_reduce(x", "ReduceFromTensorParallel.apply(y"),
        ("wrong-scale",),
    ),
    SourceEdit(
        "mlp: all-reduce twice",
        MLP,
        "mlp",
        "y = ReduceFromTensorParallel.apply(y, self.group)\n",
        "y = ReduceFromTensorParallel.apply(ReduceFromTensorParallel.apply(y, self.group), self.group)\n",
        ("ReduceFromTensorParallel.apply(ReduceFromTensorParallel", "dist.all_reduce(x"),
        ("extra-reduction",),
    ),
    SourceEdit(
        "mlp: gradient reduced in the row-parallel backward, too",
        MLP,
        "mlp",
        "return grad, None",
        "grad = grad.clone()\n        dist.all_reduce(grad)\n        return grad, None",
        ("dist.all_reduce(grad)\n",),
        ("extra-reduction",),
        1,
    ),
    SourceEdit(
        "mlp: output divided by the number of ranks",
        MLP,
        "mlp",
        "return y + self.bias",
        "return y / dist.get_world_size(self.group) + self.bias",
        ("y / dist.get_world_size",),
        ("wrong-scale",),
    ),
    SourceEdit(
        "mlp: activation on the partial sum",
        MLP,
        "mlp",
        "        y = ReduceFromTensorParallel.apply(y, self.group)\n",
        "        y = ReduceFromTensorParallel.apply(y, self.group)\n        y = y * 2\n",
        ("y = y * 2",),
        ("wrong-scale", "wrong-relation"),
    ),
    *_reductions(LLAMA, "llama_layer", {"attention": 0, "ffn": 1}, REDUCED),
    SourceEdit(
        "llama_layer: attention input not copied",
        LLAMA,
        "llama_layer",
        COPY,
        "pass\n",
        ("attend(self.wq(x)",),
        ("gradient-not-reduced",),
        0,
    ),
    SourceEdit(
        "llama_layer: ffn input not copied",
        LLAMA,
        "llama_layer",
        COPY,
        "pass\n",
        ("self.gate(x)",),
        ("gradient-not-reduced",),
        1,
    ),
    SourceEdit(
        "llama_layer: backward of the copy forgets to reduce",
        LLAMA,
        "llama_layer",
        "        dist.all_reduce(grad, group=ctx.group)\n",
        "",
        ("return grad, None", "CopyToTensorParallel.apply", "attend(self.wq(x)", "self.gate(x)"),
        ("gradient-not-reduced",),
    ),
    SourceEdit(
        "llama_layer: mean instead of sum",
        LLAMA,
        "llama_layer",
        "dist.all_reduce(x, group=group)",
        "dist.all_reduce(x, op=dist.ReduceOp.AVG, group=group)",
        ("dist.all_reduce(x", "ReduceFromTensorParallel.apply(y"),
        ("wrong-scale",),
    ),
    SourceEdit(
        "llama_layer: ffn adds its own input, before the reduction",
        LLAMA,
        "llama_layer",
        "y = self.down(F.silu(self.gate(x)) * self.up(x))\n        return Reduce",
        "y = self.down(F.silu(self.gate(x)) * self.up(x)) + x\n        return Reduce",
        ("+ x",),
        ("extra-reduction", "wrong-scale", "wrong-relation"),
    ),
    SourceEdit(
        "llama_layer: attention output halved",
        LLAMA,
        "llama_layer",
        REDUCED,
        "return ReduceFromTensorParallel.apply(y, self.group) / dist.get_world_size(self.group)",
        ("/ dist.get_world_size(self.group)",),
        ("wrong-scale",),
        0,
    ),
    SourceEdit(
        "step_with_mean: sum instead of mean",
        STEP,
        "step_with_mean",
        "        grad.div_(dist.get_world_size())\n",
        "",
        ("dist.all_reduce(grad)",),
        ("wrong-scale",),
    ),
    SourceEdit(
        "step_with_mean: gradients not reduced",
        STEP,
        "step_with_mean",
        "        dist.all_reduce(grad)\n",
        "",
        ("grad.div_", "gradients(", "autograd.grad"),
        ("missing-reduction", "gradient-not-reduced"),
        0,
    ),
    SourceEdit(
        "step_with_mean: divided twice",
        STEP,
        "step_with_mean",
        "grad.div_(dist.get_world_size())",
        "grad.div_(dist.get_world_size()).div_(dist.get_world_size())",
        ("grad.div_",),
        ("wrong-scale",),
    ),
    SourceEdit(
        "step_with_mean: every rank reads the first part",
        STEP,
        "step_with_mean",
        "x.chunk(ranks)[rank]",
        "x.chunk(ranks)[0]",
        ("x.chunk(ranks)[0]",),
        ("wrong-shard", "wrong-relation"),
    ),
)
