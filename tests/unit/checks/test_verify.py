"""gg.verify and gg.assert_refines: any callable, from any process, and nothing left behind."""

import importlib
import linecache
import os
import subprocess
import sys
import threading

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg


class Linear(nn.Module):
    def __init__(self, width, group=None, reduce=True):
        super().__init__()
        self.group = group
        self.reduce = reduce
        self.weight = nn.Parameter(torch.randn(4, width))

    def forward(self, x):
        if self.group is None:
            return x @ self.weight.t()
        y = _Scatter.apply(x, self.group) @ self.weight.t()
        return _Sum.apply(y, self.group) if self.reduce else y


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.chunk(dist.get_world_size(group), -1)[dist.get_rank(group)].contiguous()

    @staticmethod
    def backward(ctx, gradient):
        parts = [torch.empty_like(gradient) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, gradient.contiguous(), group=ctx.group)
        return torch.cat(parts, -1), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, group):
        y = y.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


X = (gg.tensor(3, 8),)


def right(mesh):
    return Linear(4, mesh.get_group("tp"))


def wrong(mesh):
    return Linear(4, mesh.get_group("tp"), reduce=False)


def test_refines():
    report = gg.verify(Linear(8), right, X, mesh={"tp": 2})
    assert report.verdict is gg.Verdict.REFINES
    assert not report.diagnostics
    assert report.counterexample is None
    assert all(str(relation) for relation in report.relations.values())
    shown = report._repr_html_()
    assert "<code>Shard(1) over tp</code>" in shown
    assert 'title="concat(weight@0, weight@1; dim=1)"' in shown
    assert (report.check.name, report.mesh) == ("test_refines", {"tp": 2})


def test_broken():
    report = gg.verify(Linear(8), wrong, X, mesh={"tp": 2}, out_relations="replicate", grads=False)
    assert report.verdict is gg.Verdict.BROKEN
    (diagnostic,) = report.diagnostics
    assert diagnostic.rule == "missing-reduction"
    assert diagnostic.span.file == __file__
    assert report.counterexample.promise == "out"
    assert report.counterexample.mesh == {"tp": 2}
    assert "error[missing-reduction]" in report._repr_html_(), "a notebook shows what the terminal does"


def product_of(x, w):
    return x @ w


PRODUCT = {
    "inputs": (gg.tensor(3, 8), gg.tensor(8, 5)),
    "in_relations": ({"tp": Shard(1)}, {"tp": Shard(0)}),
    "out_relations": "replicate",
}


def test_a_defect_in_a_module_that_was_imported_before_is_told_there(tmp_path, monkeypatch):
    (tmp_path / "parallel_heads.py").write_text("def run(x, w):\n    logits = x @ w\n    return logits.exp()\n")
    monkeypatch.syspath_prepend(tmp_path)
    run = importlib.import_module("parallel_heads").run
    report = gg.verify(
        lambda x, w: (x @ w).exp(),
        lambda mesh: run,
        (gg.tensor(3, 8), gg.tensor(8, 2)),
        mesh={"tp": 2},
        in_relations=({"tp": Shard(1)}, {"tp": Shard(0)}),
        out_relations="replicate",
        grads=False,
    )
    (diagnostic,) = report.diagnostics
    assert (diagnostic.rule, diagnostic.span.file) == ("missing-reduction", str(tmp_path / "parallel_heads.py"))
    assert "'logits'" in diagnostic.message


def test_counterexample_is_on_the_smallest_mesh_where_the_same_is_wrong():
    report = gg.verify(product_of, lambda mesh: product_of, mesh={"tp": 4}, **PRODUCT)
    assert report.mesh == {"tp": 4}
    assert report.diagnostics[0].rule == "missing-reduction"
    assert report.counterexample.mesh == {"tp": 2}


def test_counterexample_stays_where_smaller_meshes_are_right():
    def doubled_on_four(mesh):
        def impl(x, w):
            y = x @ w
            dist.all_reduce(y)
            return y * (dist.get_world_size() / 2)

        return impl

    report = gg.verify(product_of, doubled_on_four, mesh={"tp": 4}, **PRODUCT)
    assert report.verdict is gg.Verdict.BROKEN
    assert report.counterexample.mesh == {"tp": 4}


def test_a_program_that_is_not_written_for_a_smaller_mesh_gives_no_counterexample_there():
    def rows(inputs, mesh):
        (x,) = inputs
        return (x.chunk(2)[mesh.get_local_rank("dp")].chunk(2, 1)[mesh.get_local_rank("tp")],)  # two, whatever the mesh

    def another_function(mesh):
        def impl(x):
            y = torch.cos(x * x).sum(1)
            dist.all_reduce(y, group=mesh.get_group("tp"))
            return y

        return impl

    report = gg.verify(
        lambda x: torch.tanh(x).sum(1),
        another_function,
        (gg.tensor(4, 8),),
        mesh={"dp": 2, "tp": 2},
        shard_inputs=rows,
        out_relations={"dp": Shard(0)},
    )
    assert report.verdict is gg.Verdict.BROKEN
    assert report.counterexample.mesh["dp"] == 2
    assert report.counterexample.found == report.counterexample.found  # a number


def test_what_cannot_be_run_is_in_the_report():
    def raises(mesh):
        raise ValueError("no such layer")

    report = gg.verify(Linear(8), raises, X, mesh={"tp": 2})
    assert report.verdict is None
    assert "ValueError: no such layer" in report.diagnostics[0].message
    assert report.diagnostics[0].span.file == __file__


def test_assert_refines():
    gg.assert_refines(Linear(8), right, X, mesh={"tp": 2})
    with pytest.raises(AssertionError, match="missing-reduction"):
        gg.assert_refines(Linear(8), wrong, X, mesh={"tp": 2}, out_relations="replicate", grads=False)


def test_bad_mesh():
    with pytest.raises(ValueError, match="positive whole number"):
        gg.verify(Linear(8), right, X, mesh={"tp": 0})
    with pytest.raises(ValueError, match="a mesh maps axis names to sizes"):
        gg.assert_refines(Linear(8), right, X)


def test_closures_and_existing_tensors():
    weight = torch.randn(8, 8)

    def spec(x):
        return torch.tanh(x @ weight)

    def impl(mesh):
        group = mesh.get_group("tp")

        def run(x):
            rank = dist.get_rank(group)
            return torch.tanh(x @ weight.chunk(2, 1)[rank])

        return run

    assert gg.verify(spec, impl, X, mesh={"tp": 2}).verdict is gg.Verdict.REFINES


def test_nothing_is_left_behind(capfd):
    """Used torch, a gradient, a random state: all are as they were, and what ranks print is not printed here."""

    def impl(mesh):
        print("from a rank")
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(123)
        os.environ["LEFT_BEHIND"] = "1"
        return right(mesh)

    spec = Linear(8)
    spec(torch.ones(3, 8)).sum().backward()
    gradient, values = spec.weight.grad.clone(), spec.weight.detach().clone()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    gg.verify(spec, impl, X, mesh={"tp": 2})
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(spec.weight.grad, gradient)
    assert torch.equal(spec.weight, values)
    assert type(spec.weight.data) is torch.Tensor
    assert torch.get_default_dtype() is torch.float32
    assert not dist.is_initialized()
    assert "LEFT_BEHIND" not in os.environ
    assert capfd.readouterr().out == ""


def test_from_a_thread():
    verdicts = []
    thread = threading.Thread(
        target=lambda: verdicts.append(gg.verify(Linear(8), right, X, mesh={"tp": 2}, grads=False).verdict)
    )
    thread.start()
    thread.join()
    assert verdicts == [gg.Verdict.REFINES]


IN_USE = """
import torch, torch.distributed as dist
import graphguard as gg
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.set_num_threads(4)
(torch.randn(512, 512) @ torch.randn(512, 512)).sum()
x = torch.ones(1)
dist.all_reduce(x)

def impl(mesh):
    def run(x):
        part = x.chunk(2, 0)[dist.get_rank()].sum(0)
        dist.all_reduce(part)
        return part
    return run

report = gg.verify(lambda x: x.sum(0), impl, (gg.tensor(4, 3),), mesh={"tp": 2})
assert report.verdict is gg.Verdict.REFINES, report
dist.all_reduce(x)
assert dist.get_world_size() == 1 and x.item() == 1
print("still in use")
"""


def test_in_a_process_whose_process_groups_are_in_use(tmp_path):
    (tmp_path / "script.py").write_text(IN_USE)
    run = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stdout == "still in use\n", run.stderr


def test_interactive_code():
    """Code that lives in no file is known to linecache; findings are placed in it."""
    source = "def wrong(mesh):\n    def run(x):\n        return x.chunk(2, 0)[dist.get_rank()].sum(0)\n    return run\n"
    name = "<ipython-input-7>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope = {"dist": dist}
    exec(compile(source, name, "exec"), scope)
    report = gg.verify(
        lambda x: x.sum(0), scope["wrong"], (gg.tensor(4, 3),), mesh={"tp": 2}, out_relations="replicate"
    )
    assert report.verdict is gg.Verdict.BROKEN
    assert (report.diagnostics[0].span.file, report.diagnostics[0].span.line) == (name, 3)


class Rotary(nn.Module):
    """A table that is computed when the model is built: a buffer of its own, an attribute, or too large to be followed."""

    def __init__(self, kind, theta=10000.0):
        super().__init__()
        rows = {"large": 1 << 19, "long": 1 << 16}.get(kind, 4)
        angles = torch.arange(rows)[:, None].float() / theta ** (torch.arange(0, 8, 2).float() / 8)
        if kind == "attribute":
            self.cos = angles.cos()
        else:
            self.register_buffer("cos", angles.cos(), persistent=False)
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return x @ self.weight * self.cos[: x.shape[0]]


@pytest.mark.parametrize(
    ("kind", "theta", "verdict"),
    [
        ("buffer", 1e4, "refines"),
        ("attribute", 1e4, "refines"),
        ("long", 1e4, "refines"),
        ("large", 1e4, "unknown"),  # numbers of a literal that is not kept refute nothing
        ("buffer", 5e5, "broken"),
        ("attribute", 1e4 + 1, "broken"),
        ("long", 5e5, "broken"),
        ("large", 5e5, "unknown"),
    ],
)
def test_tables_that_the_specification_computed_before_are_those_that_the_ranks_compute(kind, theta, verdict):
    """What was computed before was rounded; that a rank's real numbers are not is no difference."""
    report = gg.verify(Rotary(kind), lambda mesh: Rotary(kind, theta), (gg.tensor(4, 4),), mesh={"tp": 2})
    assert report.verdict is gg.Verdict(verdict)


def test_tables_of_a_function_s_models():
    module = Rotary("buffer")

    def impl(mesh):
        model = nn.ModuleDict({"module": Rotary("buffer")})
        return lambda x: model["module"](x)

    assert gg.verify(lambda x: module(x), impl, (gg.tensor(4, 4),), mesh={"tp": 2}).verdict is gg.Verdict.REFINES


class TestOneProgram:
    """gg.verify(gg.Same, build): what is built for one rank is the specification."""

    def test_the_program_is_proved_against_itself_on_one_rank(self):
        def build(mesh):
            group = mesh.get_group("tp")
            assert dist.get_world_size() == mesh.size()
            return Linear(8 // mesh.size(), group)

        report = gg.verify(gg.Same, build, (gg.tensor(3, 8),), mesh={"tp": 2}, out_relations="replicate", grads=False)
        assert report.verdict is gg.Verdict.REFINES, report.diagnostics
        assert str(report.relations["weight"]) == "concat(weight@0, weight@1; dim=1)"
        assert not dist.is_initialized()

    def test_a_program_that_was_built_already_is_refused(self):
        with pytest.raises(TypeError, match=r"give gg\.Same itself and a function of the mesh"):
            gg.verify(gg.Same(Linear(8), (gg.tensor(3, 8),)), lambda _: Linear(8), mesh={"tp": 2})
