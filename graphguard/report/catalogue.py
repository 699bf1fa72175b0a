"""The text of every rule, as data."""

from __future__ import annotations

from graphguard.report.rule import Rule

_COMMUNICATION = (
    Rule(
        name="missing-reduction",
        severity="error",
        summary="A partial sum is used as if it were the whole.",
        what=(
            "Every rank holds one summand of a tensor of the specification, and the program uses it, or returns it, without adding the summands up. "
            "The message names the tensor, the mesh axis whose ranks hold the summands, and the collective that would make it whole."
        ),
        why="Each rank goes on with a part of the value. Shapes agree and the loss still goes down, but the model is another one.",
        wrong=("y = F.linear(h, self.down)          # rows of the weight are split over 'tp'\nreturn y"),
        right=("y = F.linear(h, self.down)\ndist.all_reduce(y, group=self.group)\nreturn y"),
    ),
    Rule(
        name="extra-reduction",
        severity="error",
        summary="A value that is already whole is summed over an axis.",
        what=(
            "The ranks of a mesh axis all hold the whole tensor, and a sum over that axis multiplies it by the size of the axis. "
            "A bias added on every rank before the reduction is the same defect: the bias is summed, too."
        ),
        why="The result is as many times too large as the axis has ranks; it changes with the size of the cluster.",
        wrong=(
            "y = F.linear(h, self.down, self.bias)   # every rank adds the bias\ndist.all_reduce(y, group=self.group)   # ... and it is summed"
        ),
        right=("y = F.linear(h, self.down)\ndist.all_reduce(y, group=self.group)\ny = y + self.bias"),
    ),
    Rule(
        name="wrong-scale",
        severity="error",
        summary="A value is a constant multiple of what it should be.",
        what=(
            "What the ranks hold is the needed value times a constant that is not 1. The message names the factor in terms of the mesh where it can: "
            "dp, 1/cp, the number of micro-batches, or a ratio."
        ),
        why="A loss or a gradient that is scaled by the size of the cluster trains with another learning rate on every cluster, and clips at another norm.",
        wrong=(
            "for p in model.parameters():\n    dist.all_reduce(p.grad)            # the sum over 'dp', not the mean"
        ),
        right=("for p in model.parameters():\n    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)"),
    ),
    Rule(
        name="wrong-group",
        severity="error",
        summary="A collective runs over the wrong ranks.",
        what="The collective would be right over another process group: the message names the axis it runs over and the axis it should run over.",
        why="Values of unrelated ranks are mixed, and the ranks that belong together are not.",
        wrong=("dist.all_reduce(y)                        # the world: 'dp' and 'tp'"),
        right=('dist.all_reduce(y, group=mesh.get_group("tp"))'),
    ),
    Rule(
        name="dead-collective",
        severity="error",
        summary="A collective has no effect: nobody uses its result.",
        what=(
            "The result of a collective is dropped, or overwritten before it is read. Functional collectives return a new tensor; "
            "an asynchronous one must be waited for."
        ),
        why="The communication is paid for and the value stays partial.",
        wrong=("funcol.all_reduce(y, 'sum', self.group)   # returns the sum\nreturn y"),
        right=("y = funcol.all_reduce(y, 'sum', self.group)\nreturn y"),
    ),
    Rule(
        name="process-dependent",
        severity="error",
        summary="The program lets something decide that is not the same in every process.",
        what=(
            "What is computed or sent depends on the order of a set of texts (`PYTHONHASHSEED`), on a generator that nobody seeded, on `hash`, a clock, the process id, the system's random numbers, or the order in "
            "which a folder is listed. The specification and every rank are recorded as processes that differ in these; recorded as processes that do not, they refine."
        ),
        why="The processes of a job are started one by one, often on several machines: they compute different things, or their collectives do not match and the job hangs, in some runs and not in others.",
        wrong="for name in set(names):\n    dist.all_reduce(parts[name])",
        right="for name in sorted(set(names)):\n    dist.all_reduce(parts[name])",
    ),
    Rule(
        name="missing-wait",
        severity="error",
        summary="The buffer of an asynchronous collective is used before the program waits for it.",
        what=(
            "Between the call of an asynchronous collective and `wait()` on its handle, a result is read or changed, or an operand is overwritten. "
            "The message is at the use and the call is the related place, or the other way round where the program drops the handle. The quick fix waits, or leaves out `async_op=True`. Collectives of one process group may follow each other without a wait: NCCL runs them in order "
            "(not after `init_process_group('gloo')`)."
        ),
        why="It is a race: what is read depends on how far the collective has come. It mostly works on small tensors and fast links.",
        wrong=(
            "work = dist.all_reduce(y, group=self.group, async_op=True)\nz = y + self.bias                         # y may be half reduced\nwork.wait()"
        ),
        right=("work = dist.all_reduce(y, group=self.group, async_op=True)\nwork.wait()\nz = y + self.bias"),
    ),
    Rule(
        name="collective-mismatch",
        severity="error",
        summary="The ranks of a group do not issue the same collectives.",
        what=(
            "Within one process group the ranks call collectives in another order, of another kind, or on tensors that do not fit. "
            "Or not every rank makes the same groups by `new_group`, in the same order. The message shows the first call at which two ranks part. "
            "Collectives exchange memory, not indices: a view that is not dense there, such as a slice of columns, "
            "and tensors whose elements lie there in another order than the other ranks' (a transpose) do not fit either, unless PyTorch copies them; equal numbers of elements in other shapes do."
        ),
        why="On a cluster the job hangs, or silently exchanges tensors that do not belong together.",
        wrong=("if rank == 0:\n    dist.all_reduce(loss)                 # the others never call it"),
        right=("dist.all_reduce(loss)\nif rank == 0:\n    log(loss)"),
    ),
)

_VALUES = (
    Rule(
        name="wrong-shard",
        severity="error",
        summary="A rank holds, or reads, another part of a tensor than it should.",
        what=(
            "A slice, an offset, the order of the pieces or their interleaving differs from what the specification needs. "
            "The message says which rows a rank reads and which it needs."
        ),
        why="Every shape agrees, and the ranks compute with the wrong rows: a model that trains on shuffled weights or positions.",
        wrong=("rows = weight.chunk(tp)[0]                # every rank takes the first rows"),
        right=("rows = weight.chunk(tp)[rank]"),
    ),
    Rule(
        name="nonlinear-on-partial",
        severity="error",
        summary="A non-linear operator is applied to a partial sum.",
        what="f(a + b) is not f(a) + f(b): the sum over the axis must come before the operator, not after it.",
        why="A later reduction cannot repair it, so the result is wrong however it is reduced.",
        wrong=("h = F.gelu(partial)\ndist.all_reduce(h, group=self.group)"),
        right=("dist.all_reduce(partial, group=self.group)\nh = F.gelu(partial)"),
    ),
    Rule(
        name="gradient-not-reduced",
        severity="error",
        summary="A gradient stays a partial sum, although the forward pass is right.",
        what=(
            "A tensor that every rank reads whole, and that feeds computations that differ between ranks, receives one summand of its gradient on every rank. "
            "The backward pass must add them up: Megatron's `f` (identity forward, all-reduce backward), or a reduction of the parameter's gradient."
        ),
        why="The forward pass and the loss agree with the specification, so no test of outputs sees it. The layers before it are trained with a part of their gradient.",
        wrong=("h = F.linear(x, self.up)                  # columns split over 'tp'; d/dx is partial"),
        right=(
            "x = CopyToTensorParallel.apply(x, self.group)   # all-reduces the gradient of x\nh = F.linear(x, self.up)"
        ),
    ),
    Rule(
        name="lower-precision",
        severity="error",
        summary="A value is rounded to a narrower type than in the specification.",
        what=(
            "The implementation casts to a narrower type, or computes or reduces in one, at a value that the specification keeps in a wider type. "
            "Re-association alone is never reported: it is equal over the reals."
        ),
        why="Sums over many ranks in bfloat16 lose the small summands; gradient norms and losses drift with the size of the cluster.",
        wrong=("g = grad.to(torch.bfloat16)\ndist.all_reduce(g)"),
        right=("dist.all_reduce(grad)                     # float32, as in the specification"),
    ),
    Rule(
        name="wrong-relation",
        severity="error",
        summary="An output is not what was promised, and no more specific rule fits.",
        what="The numbers of the implementation differ from the specification's. The message says what was needed and what was found.",
        why="The implementation does not refine its specification.",
        wrong=("probs = torch.softmax(scores, dim=-2)     # the specification: dim=-1"),
        right=("probs = torch.softmax(scores, dim=-1)"),
    ),
    Rule(
        name="conflicting-relations",
        severity="error",
        summary="The relations of the inputs contradict each other.",
        what="Two statements about how the ranks' inputs or parameters come from the specification's cannot hold together.",
        why="From a contradiction everything follows, so nothing that is proved from it would mean anything.",
        wrong='gg.Refinement(spec, impl, (x,), in_relations={"tp": Shard(0)}, shard_inputs=lambda inputs, mesh: inputs)',
        right='gg.Refinement(spec, impl, (x,), in_relations={"tp": Shard(0)})',
    ),
)

_LIMITS = (
    Rule(
        name="unproved",
        severity="warning",
        summary="Neither proved nor refuted.",
        what=(
            "The engine found no proof, and numbers found no difference. The message names the first operator at which the proof stopped. "
            "It is not a bug report: the verdict is `unknown`."
        ),
        why="Nothing is known about the check until the operator is supported, or the program is written in a form that the engine can follow.",
        wrong=("y = my_fused_kernel(x)"),
        right=("y = F.silu(x @ gate) * (x @ up)           # or a specification that calls my_fused_kernel, too"),
    ),
    Rule(
        name="unsupported-operator",
        severity="warning",
        summary="An operator has no rule.",
        what=(
            "An operator on the way to an output is not known to GraphGuard. It is treated as an unknown function: equal inputs give equal outputs, nothing else. "
            "The verdict is `unknown` where more is needed."
        ),
        why="What is computed from it cannot be compared with the specification unless both programs call it on equal values.",
        wrong=("y = torch.ops.mylib.attention(q, k, v)"),
        right=("y = F.scaled_dot_product_attention(q, k, v)"),
    ),
    Rule(
        name="ambiguous-parameter",
        severity="error",
        summary="It is not clear how a rank's parameter comes from the specification's.",
        what=(
            "No parameter of the specification has this name and a fitting shape, or several splits fit. The message names the parameter and the choices."
        ),
        why="A guess could prove the wrong statement.",
        wrong=("gg.Refinement(spec=Model(), impl=ParallelModel(mesh), inputs=(x,))"),
        right=(
            "gg.Refinement(spec=Model(), impl=ParallelModel(mesh), inputs=(x,),\n              load=lambda state, impl, mesh: impl.load_full(state))"
        ),
    ),
    Rule(
        name="trace-error",
        severity="error",
        summary="The check could not be run.",
        what="The file does not import, the program raised, exited or ran out of time, or the check declares something that cannot be. The message names the line.",
        why="A check that does not run checks nothing.",
        wrong=("@gg.check(mesh={'tp': 3})                 # 64 columns do not divide by 3\ndef mlp(mesh): ..."),
        right=("@gg.check(mesh={'tp': 2})\ndef mlp(mesh): ..."),
    ),
    Rule(
        name="unused-ignore",
        severity="warning",
        summary="A waiver suppresses nothing.",
        what="A comment `# graphguard: ignore[rule]` stands on a line where the rule reports nothing, names no known rule, or names no rule at all.",
        why="It would hide the next finding of that rule on that line.",
        wrong=("dist.all_reduce(y, group=self.group)  # graphguard: ignore[missing-reduction]"),
        right=("dist.all_reduce(y, group=self.group)"),
    ),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in (*_COMMUNICATION, *_VALUES, *_LIMITS)}
