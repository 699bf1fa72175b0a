"""Where a rank's parameters, inputs and gradients come from: every way of saying it, judged on numbers."""

# ruff: noqa: E731 - a check in one line reads better as a lambda

from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

import graphguard as gg

TP2 = {"tp": 2}


class MLP(nn.Module):
    def __init__(self, width=8, hidden=16, bias=True):
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class ParallelMLP(nn.Module):
    def __init__(self, group, width=8, hidden=16, backward=True):
        super().__init__()
        count = dist.get_world_size(group)
        self.group = group
        self.backward = backward
        self.up = nn.Linear(width, hidden // count)
        self.down = nn.Linear(hidden // count, width)

    def forward(self, x):
        if self.backward:
            x = _Copy.apply(x, self.group)
        y = F.linear(torch.tanh(self.up(x)), self.down.weight)
        return _Sum.apply(y, self.group) + self.down.bias


X = (gg.tensor(2, 3, 8),)


def test_shapes_and_names(judge):
    build = lambda mesh: gg.Refinement(MLP(), ParallelMLP(mesh.get_group("tp")), X)
    assert judge(build, TP2).status == "equal"
    assert judge(build, {"tp": 4}).status == "equal"


def test_forgotten_gradient_reduction_of_the_input(judge):
    found = judge(lambda mesh: gg.Refinement(MLP(), ParallelMLP(mesh.get_group("tp"), backward=False), X), TP2)
    assert found.differing == ("grad(x)",)


def test_gradients_are_not_asked_for(record):
    capture = record(lambda mesh: gg.Refinement(MLP(), ParallelMLP(mesh.get_group("tp")), X, grads=False), TP2)
    assert [promise.name for promise in capture.promises] == ["out"]


def test_two_equal_axes_are_told_apart_by_the_module_s_group(judge):
    mesh = {"dp": 2, "tp": 2}
    assert judge(lambda m: gg.Refinement(MLP(), ParallelMLP(m.get_group("tp")), X), mesh).status == "equal"
    assert judge(lambda m: gg.Refinement(MLP(), ParallelMLP(m.get_group("dp")), X), mesh).status == "equal"


def test_ambiguous_parameter(record):
    def build(mesh):
        impl = ParallelMLP(mesh.get_group("tp"))
        impl.group = {"hidden": impl.group}
        return gg.Refinement(MLP(), impl, X)

    (trouble,) = record(build, {"dp": 2, "tp": 2}).troubles
    assert trouble.rule == "ambiguous-parameter"
    assert "'up.weight'" in trouble.message
    assert "dp: Shard(0), or tp: Shard(0)" in trouble.message


def test_indivisible_parameter(record):
    (trouble,) = record(lambda mesh: gg.Refinement(MLP(), ParallelMLP(mesh.get_group("tp")), X), {"tp": 3}).troubles
    assert trouble.rule == "ambiguous-parameter"
    assert "16 is not divisible by tp=3" in trouble.message


def test_parameter_without_counterpart(record):
    class Renamed(MLP):
        def __init__(self):
            super().__init__()
            self.extra = nn.Parameter(torch.zeros(3))

    (trouble,) = record(lambda mesh: gg.Refinement(MLP(), Renamed(), X), TP2).troubles
    assert trouble.rule == "ambiguous-parameter"
    assert "'extra'" in trouble.message
    assert "load=" in trouble.message


def test_wrappers_do_not_count_in_names(judge):
    class Module(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.module = inner

        def forward(self, x):
            return self.module(x)

    assert judge(lambda mesh: gg.Refinement(MLP(), Module(ParallelMLP(mesh.get_group("tp"))), X), TP2).status == "equal"


def test_frozen_by_mistake(judge):
    def build(mesh):
        impl = ParallelMLP(mesh.get_group("tp"))
        impl.up.weight.requires_grad_(False)
        return gg.Refinement(MLP(), impl, X)

    assert judge(build, TP2).differing == ("grad(up.weight)",)


def test_tied_parameters(judge):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    tokens = (gg.tensor(2, 3, dtype=torch.int64, low=0, high=6),)
    assert judge(lambda mesh: gg.Refinement(Tied(), Tied(), tokens), TP2).status == "equal"


def test_buffers(record, judge):
    class Buffers(nn.Module):
        def __init__(self, scale=1.0):
            super().__init__()
            self.register_buffer("mask", torch.tril(torch.ones(3, 3)))
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("table", torch.arange(3.0) * scale, persistent=False)

        def forward(self, x):
            return (x - self.mean) @ self.mask + self.table

    inputs = (gg.tensor(2, 3),)
    build = lambda mesh: gg.Refinement(Buffers(), Buffers(), inputs)
    capture = record(build, TP2)
    assert not capture.troubles
    leaves = {leaf.name: leaf for leaf in capture.leaves}
    assert leaves["mask"].value is not None, "a table keeps its values"
    assert leaves["mean"].value is None, "statistics are unknown"
    assert "table" not in leaves, "what no checkpoint holds is as it was built"
    assert judge(build, TP2).status == "equal"
    assert judge(lambda mesh: gg.Refinement(Buffers(), Buffers(2.0), inputs), TP2).differing == ("out",)


def _megatron(parameter, dim, stride=1):
    parameter.tensor_model_parallel = True
    parameter.partition_dim = dim
    parameter.partition_stride = stride


def test_megatron_attributes(judge):
    """A fused gate and up projection: stride 2 means that every rank has a part of both halves."""

    class Gated(nn.Module):
        def __init__(self, width=4, hidden=8, count=1, group=None):
            super().__init__()
            self.ranks = group
            self.up = nn.Parameter(torch.empty(2 * hidden // count, width))
            self.down = nn.Parameter(torch.empty(width, hidden // count))
            if count > 1:
                _megatron(self.up, 0, stride=2)
                _megatron(self.down, 1)

        def forward(self, x):
            if self.ranks is not None:
                x = _Copy.apply(x, self.ranks)
            gate, up = F.linear(x, self.up).chunk(2, -1)
            y = F.linear(torch.tanh(gate) * up, self.down)
            return y if self.ranks is None else _Sum.apply(y, self.ranks)

    inputs = (gg.tensor(2, 4),)
    build = lambda mesh: gg.Refinement(Gated(), Gated(count=2, group=mesh.get_group("tp")), inputs)
    assert judge(build, TP2).status == "equal"

    def unmarked(mesh):
        impl = Gated(count=2, group=mesh.get_group("tp"))
        impl.up.partition_stride = 1
        return gg.Refinement(Gated(), impl, inputs)

    assert "out" in judge(unmarked, TP2).differing


def test_packed_pieces_of_a_dtensor(judge):
    """A strided shard whose factor no other axis explains: gate and up are packed, and every rank has a part of both."""

    class Gated(nn.Module):
        def __init__(self, mesh=None):
            super().__init__()
            self.mesh = mesh
            self.up = nn.Parameter(torch.empty(16, 4))
            self.down = nn.Parameter(torch.empty(4, 8))
            if mesh is not None:
                for name, placement in (("up", _StridedShard(0, split_factor=2)), ("down", Shard(1))):
                    whole = getattr(self, name).detach()
                    setattr(self, name, nn.Parameter(distribute_tensor(whole, mesh, [placement], src_data_rank=None)))

        def forward(self, x):
            if self.mesh is None:
                gate, up = F.linear(x, self.up).chunk(2, -1)
                return F.linear(torch.tanh(gate) * up, self.down)
            group = self.mesh.get_group()
            gate, up = F.linear(_Copy.apply(x, group), self.up.to_local()).chunk(2, -1)
            return _Sum.apply(F.linear(torch.tanh(gate) * up, self.down.to_local()), group)

    build = lambda mesh: gg.Refinement(Gated(), Gated(mesh["tp"]), (gg.tensor(2, 4),))
    assert judge(build, TP2).status == "equal"


def test_a_mark_without_a_dim(judge):
    """Others mark what is sharded and not how: shapes tell."""

    class Row(nn.Module):
        def __init__(self, group=None):
            super().__init__()
            self.group = group
            self.down = nn.Parameter(torch.empty(4, 8 if group is None else 4))
            self.down.tensor_model_parallel = group is not None

        def forward(self, x):
            if self.group is None:
                return F.linear(x, self.down)
            part = _Copy.apply(x, self.group).chunk(2, -1)[self.group.rank()]
            return _Sum.apply(F.linear(part, self.down), self.group)

    build = lambda mesh: gg.Refinement(Row(), Row(mesh.get_group("tp")), (gg.tensor(2, 8),))
    assert judge(build, TP2).status == "equal"


class Attention(nn.Module):
    """One fused projection for queries, keys and values, whose heads the ranks share out."""

    def __init__(self, width=8, heads=4, count=1):
        super().__init__()
        self.heads = heads // count
        self.size = width // heads
        self.qkv = nn.Linear(width, 3 * width // count, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, self.size)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def _load_interleaved(state, impl, mesh):
    rank = mesh.get_local_rank("tp")
    parts = [part.chunk(2, 0)[rank] for part in state["qkv.weight"].chunk(3, 0)]
    with torch.no_grad():
        impl.qkv.weight.copy_(torch.cat(parts))


def test_loader(judge):
    inputs = (gg.tensor(2, 3, 8),)

    class Local(Attention):
        def forward(self, x):
            return super().forward(_Copy.apply(x, dist.group.WORLD))

    build = lambda mesh: gg.Refinement(Attention(), Local(count=2), inputs, load=_load_interleaved)
    assert judge(build, TP2).status == "equal"
    without = lambda mesh: gg.Refinement(Attention(), Local(count=2), inputs)
    assert "out" in judge(without, TP2).differing, "shapes alone say a contiguous shard, which is another program"


def test_loader_that_splits_a_parameter(judge):
    """Three parameters of the specification in one of the implementation: its gradient is theirs, put together."""

    class Separate(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

        def forward(self, x):
            return torch.tanh(self.q(x)) * self.k(x)

    class Fused(nn.Module):
        def __init__(self):
            super().__init__()
            self.qk = nn.Linear(4, 8, bias=False)

        def forward(self, x):
            q, k = self.qk(x).chunk(2, -1)
            return torch.tanh(q) * k

    def load(state, impl, mesh):
        impl.load_state_dict({"qk.weight": torch.cat([state["q.weight"], state["k.weight"]])})

    build = lambda mesh: gg.Refinement(Separate(), Fused(), (gg.tensor(2, 4),), load=load)
    assert judge(build, TP2).status == "equal"


def test_loader_that_forgets_a_parameter(record):
    def load(state, impl, mesh):
        with torch.no_grad():
            impl.up.weight.copy_(state["up.weight"])

    (trouble,) = record(lambda mesh: gg.Refinement(MLP(bias=False), MLP(bias=False), X, load=load), TP2).troubles
    assert trouble.rule == "ambiguous-parameter"
    assert "load does not write parameter 'down.weight'" in trouble.message


def test_tensor_parallel_dtensors(judge):
    def build(mesh):
        impl = parallelize_module(MLP(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        return gg.Refinement(MLP(), impl, X)

    assert judge(build, TP2).status == "equal"
    assert judge(build, {"tp": 4}).status == "equal"
    assert judge(build, {"dp": 2, "tp": 2}).status == "equal"


def test_sequence_parallel_dtensors(judge):
    class Block(MLP):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8)

        def forward(self, x):
            return super().forward(self.norm(x))

    def build(mesh):
        plan = {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        }
        impl = parallelize_module(Block(), mesh["tp"], plan)
        return gg.Refinement(Block(), impl, (gg.tensor(2, 4, 8),), in_relations={"tp": Shard(1)})

    assert judge(build, TP2).status == "equal"


def test_fully_sharded(judge):
    class Summed(MLP):
        def forward(self, x):
            return super().forward(x).mean()

    def build(mesh):
        impl = fully_shard(Summed(), mesh=mesh["dp"])
        return gg.Refinement(Summed(), impl, X, in_relations={"dp": Shard(0)}, out_relations="infer")

    found = judge(build, {"dp": 2})
    assert not [name for name in found.differing if name.startswith(("grad(up", "grad(down"))]


def test_fully_sharded_and_tensor_parallel(record):
    def build(mesh):
        impl = parallelize_module(MLP(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        return gg.Refinement(MLP(), fully_shard(impl, mesh=mesh["dp"]), X, in_relations={"dp": Shard(0)})

    capture = record(build, {"dp": 2, "tp": 2})
    assert not capture.troubles
    assert len(capture.ranks) == 4


def test_sharded_and_partial_inputs(judge):
    def spec(x, y):
        return x * 2, y * 3

    def impl(x, y):
        total = y * 3
        dist.all_reduce(total)
        return x * 2, total

    relations = ({"tp": Shard(0)}, {"tp": Partial()})
    build = lambda mesh: gg.Refinement(
        spec,
        impl,
        (gg.tensor(4, 2), gg.tensor(3)),
        in_relations=relations,
        out_relations=({"tp": Shard(0)}, {"tp": Replicate()}),
    )
    assert judge(build, TP2).status == "equal"


def test_replicated_among_others(judge):
    def spec(x, b):
        return x * 2, b + 1

    relations = ({"tp": Shard(0)}, "replicate")
    build = lambda mesh: gg.Refinement(
        spec, spec, (gg.tensor(4, 2), gg.tensor(3)), in_relations=relations, out_relations=relations
    )
    assert judge(build, TP2).status == "equal"
    build = lambda mesh: gg.Refinement(spec, spec, (gg.tensor(4, 2), gg.tensor(3)), in_relations="replicate")
    assert judge(build, TP2).status == "equal"


def test_wrong_promise(judge):
    build = lambda mesh: gg.Refinement(
        lambda x: x + 1, lambda x: x + 1, X, in_relations={"tp": Shard(0)}, out_relations="replicate"
    )
    assert judge(build, {"tp": 2}).status == "differs"


def test_relations_by_name(judge):
    def spec(batch, scale):
        return batch["a"] * scale + batch["b"]

    inputs = {"batch": {"a": gg.tensor(4), "b": gg.tensor(4)}, "scale": 2.0}
    build = lambda mesh: gg.Refinement(spec, spec, inputs, in_relations={"batch": {"tp": Shard(0)}})
    assert judge(build, TP2).status == "equal"


def test_unknown_axis_and_input(record):
    build = lambda mesh: gg.Refinement(lambda x: x, lambda x: x, X, in_relations={"x": {"ep": Shard(0)}})
    assert "in_relations of input 'x': the mesh has no axis 'ep', only 'tp'" in record(build, TP2).troubles[0].message
    build = lambda mesh: gg.Refinement(lambda x: x, lambda x: x, X, in_relations={"y": {"tp": Shard(0)}})
    assert "in_relations: 'y' is neither an axis of the mesh nor an input" in record(build, TP2).troubles[0].message
    build = lambda mesh: gg.Refinement(lambda x: x, lambda x: x, X, in_relations="sharded")
    assert "in_relations of input 'x': 'sharded' is no layout" in record(build, TP2).troubles[0].message


def test_shard_inputs(judge, record):
    def zigzag(inputs, mesh):
        (x,) = inputs
        rank, count = mesh.get_local_rank("cp"), mesh["cp"].size()
        pieces = x.chunk(2 * count, 1)
        return (torch.cat([pieces[rank], pieces[2 * count - 1 - rank]], 1),)

    class Pointwise(nn.Module):
        def forward(self, x):
            return torch.tanh(x)

    class Summed(nn.Module):
        def __init__(self, group=None):
            super().__init__()
            self.group = group

        def forward(self, x):
            loss = torch.tanh(x).sum()
            return loss if self.group is None else _Sum.apply(loss, self.group)

    def build(mesh):
        return gg.Refinement(Summed(), Summed(mesh.get_group("cp")), (gg.tensor(2, 8, 3),), shard_inputs=zigzag)

    assert judge(build, {"cp": 2}).status == "equal"
    unclear = lambda mesh: gg.Refinement(Pointwise(), Pointwise(), (gg.tensor(2, 8, 3),), shard_inputs=zigzag)
    assert "out_relations" in record(unclear, {"cp": 2}).troubles[0].message


@dataclass
class Answer:
    logits: torch.Tensor
    hidden: tuple
    note: str = "text"


def test_output_names(record):
    def spec(x):
        return {"logits": x, "rest": [x + 1, None]}, Answer(x * 2, (x * 3,)), 5

    capture = record(lambda mesh: gg.Refinement(spec, spec, X), TP2)
    assert [promise.name for promise in capture.promises] == [
        'out[0]["logits"]',
        'out[0]["rest"][0]',
        "out[1].logits",
        "out[1].hidden[0]",
        "out[2]",
    ]


def test_one_output_each_is_the_same_whatever_its_name(judge):
    build = lambda mesh: gg.Refinement(lambda x: x + 1, lambda x: (x + 1, None), X)
    assert judge(build, TP2).status == "equal"


def test_missing_output(record):
    build = lambda mesh: gg.Refinement(lambda x: (x, x + 1), lambda x: {"a": x, "b": x}, X)
    troubles = record(build, TP2).troubles
    assert "returns 'out[0]', 'out[1]' and no rank" in troubles[0].message
    assert """'out["a"]', 'out["b"]'""" in troubles[0].message


def test_constants(judge, record):
    table = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    build = lambda mesh: gg.Refinement(lambda t: t @ t, lambda t: t @ table, (gg.constant(table),))
    assert judge(build, TP2).status == "equal"
    assert record(build, TP2).leaves[0].value is not None


def test_modules_in_closures_are_leaves(record, judge):
    """A training step as a function: the models it closes over have the same unknown parameters."""

    def build(mesh):
        model, copy = MLP(), ParallelMLP(mesh.get_group("tp"))

        def step(one):
            def run(x):
                one.zero_grad()
                loss = one(x).pow(2).mean()
                loss.backward()
                return loss, one.down.bias - 0.1 * one.down.bias.grad

            return run

        return gg.Refinement(step(model), step(copy), X)

    assert {leaf.name for leaf in record(build, TP2).leaves} == {
        "up.weight",
        "up.bias",
        "down.weight",
        "down.bias",
        "x",
    }
    assert judge(build, TP2).status == "equal"


class Holder:
    def __init__(self, *parts):
        self.parts = {"all": list(parts)}


def test_modules_in_objects_and_containers_are_leaves(judge):
    """Stages of a pipeline that a rank holds in an object: parameters are named as in the whole model."""

    def build(mesh):
        first, second = nn.ModuleDict({"0": nn.Linear(8, 8)}), nn.ModuleDict({"1": nn.Linear(8, 8)})
        holder = Holder(first, second)

        def run(x):
            early, late = holder.parts["all"]
            return late["1"](early["0"](x))

        return gg.Refinement(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), run, X)

    assert judge(build, TP2).status == "equal"


class Closed:
    __slots__ = ("model",)

    def __init__(self, model):
        self.model = model


def test_a_parameter_that_is_not_reached(record):
    """What nobody gave a value is no input of the claim: said, with the line that made it."""

    def build(mesh):
        closed = Closed(nn.Linear(8, 8))
        return gg.Refinement(nn.Linear(8, 8), lambda x: closed.model(x), X)

    (trouble,) = record(build, TP2).troubles
    assert trouble.rule == "ambiguous-parameter"
    assert "no parameter that is reached from impl" in trouble.message
    assert trouble.related[0][1] == "it is made here"


def test_tensors_in_closures_are_leaves(judge):
    def build(mesh):
        weight = torch.randn(8, 8)
        rank = mesh.get_local_rank("tp")

        def impl(x):
            y = x.chunk(2, -1)[rank] @ weight.chunk(2, 0)[rank]
            dist.all_reduce(y)
            return y

        return gg.Refinement(lambda x: x @ weight, impl, X)

    assert judge(build, TP2).status == "equal"


def test_gradients_need_a_relation(record):
    class Odd(nn.Module):
        def forward(self, x):
            return x[:1] * 2

    class Whole(nn.Module):
        def forward(self, x):
            return x * 2

    (trouble,) = record(lambda mesh: gg.Refinement(Whole(), Odd(), (gg.tensor(3, 2),)), TP2).troubles
    assert "output 'out'" in trouble.message
    assert "out_relations" in trouble.message


@pytest.mark.parametrize("placement", [Shard(0), Replicate()])
def test_outputs_that_are_dtensors_promise_their_placements(record, placement):
    def build(mesh):
        def impl(x):
            return distribute_tensor(x, mesh, [placement])

        return gg.Refinement(lambda x: x, impl, (gg.tensor(4, 2),))

    (promise,) = record(build, TP2).promises
    assert promise.wanted["tp"].kind == ("shard" if placement.is_shard() else "replicate")
