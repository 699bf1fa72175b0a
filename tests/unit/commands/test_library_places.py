"""Lines that a finding shows beside its own: where a parameter is made that it is about, and where the user's code came into a library that computes something anew."""

import json
from pathlib import Path

import pytest

from graphguard.cli import main

LIBRARY = """import torch
import torch.distributed as dist
from torch import nn


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))  # norm's own

    def forward(self, x):
        return x * self.weight


class Column(nn.Module):
    def __init__(self, inputs, outputs, group):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(outputs // dist.get_world_size(group), inputs))  # column's own
        self.weight.is_part = True

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


def build(kind, *given):
    return kind(*given)


class Heads(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.column = build(Column, 6, 4, group)
        self.norm = build(Norm, 2)  # norm's module

    def forward(self, x):
        return self.norm(self.column(x).unflatten(-1, (-1, 2)))


class Gated(nn.Module):
    def __init__(self, group, other):
        super().__init__()
        self.query = build(Column, 6, 4, other)  # query
        self.gate = build(Column, 6, 4, group)

    def forward(self, x):
        return self.query(x) * self.gate(x)


class Sinks(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.column = build(Column, 6, 4, group)
        self.sinks = nn.Parameter(torch.empty(4 // dist.get_world_size(group)))  # sinks

    def forward(self, x):
        return self.column(x) * self.sinks


def norm_of(parameters, group):
    counted = [one for one in parameters if getattr(one, "is_part", False) or dist.get_rank(group) == 0]
    total = torch.stack([one.grad.square().sum() for one in counted]).sum()
    dist.all_reduce(total, group=group)
    return total.sqrt()


class Anew(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, group, x):
        ctx.function, ctx.group = function, group
        ctx.save_for_backward(x.chunk(dist.get_world_size(group))[dist.get_rank(group)])
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, gradient):
        (part,) = ctx.saved_tensors
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, part.contiguous(), group=ctx.group)
        x = torch.cat(parts).detach().requires_grad_()
        with torch.enable_grad():
            out = ctx.function(x)  # computed anew
        torch.autograd.backward(out, gradient)
        return None, None, x.grad


def anew(function, group, x):
    return Anew.apply(function, group, x)


class Layer(nn.Module):
    def __init__(self, recomputed, group):
        super().__init__()
        self.recomputed, self.group = recomputed, group

    def forward(self, x):
        def checkpointed():
            return self.recomputed(torch.tanh, self.group, x)  # recomputed

        return checkpointed()  # called
"""
CHECKS = """import torch
from split.layers import Column, Gated, Heads, Layer, Sinks, anew, norm_of
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg


def trained(model):
    def run(x):
        model(x).square().sum().backward()
        return gg.gradients(model)

    return gg.Same(run, (gg.tensor(3, 6),))


@gg.check(mesh={"tp": 2})
def heads(mesh):
    return trained(Heads(mesh.get_group("tp")))


class Own(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.column = Column(6, 4, group)
        self.norm = nn.RMSNorm(2)  # own norm

    def forward(self, x):
        return self.norm(self.column(x).unflatten(-1, (-1, 2)))


@gg.check(mesh={"tp": 2})
def own(mesh):
    return trained(Own(mesh.get_group("tp")))


@gg.check(mesh={"tp": 2, "dp": 2})
def gated(mesh):
    model = Gated(mesh.get_group("tp"), mesh.get_group("dp"))
    return gg.Same(model, (gg.tensor(4, 6),), in_relations={"dp": Shard(0)}, grads=False)


@gg.check(mesh={"tp": 2})
def sinks(mesh):
    model = Sinks(mesh.get_group("tp"))

    def run(x):
        model(x).square().sum().backward()
        return {**gg.gradients(model), "norm": norm_of(model.parameters(), mesh.get_group("tp"))}

    return gg.Same(run, (gg.tensor(3, 6),))


def kept(function, group, x):
    return anew(function, group, x)


@gg.check(mesh={"tp": 2, "dp": 2})
def layer(mesh):
    model = Layer(kept, mesh.get_group("dp"))

    def run(x):
        x = x.requires_grad_()
        model(x).square().sum().backward()
        return x.grad

    return gg.Same(run, (gg.tensor(4, 6),), in_relations={"dp": Shard(0)})
"""
PLACES = {
    "heads": [("layers.py", "norm's own", "'norm.weight' is made here"), ("layers.py", "norm's module", "and its module here")],
    "own": [("checks.py", "own norm", "'norm.weight' is made here")],
    "gated": [("layers.py", "query", "'query.weight' is made here, in split: Shard(0) over 'dp'")],
    "sinks": [("layers.py", "sinks", "'sinks' is made here, in split: out[\"norm\"] counts its gradient of rank 0 alone")],
    "layer": [
        ("layers.py", "computed anew", "it is computed here"),
        ("layers.py", "recomputed", "and for this call"),
        ("layers.py", "called", "called in Layer.forward"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Every finding of the checks, by check, and all texts by file."""
    folder = tmp_path_factory.mktemp("places")
    package = folder / "site-packages" / "split"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "layers.py").write_text(LIBRARY)
    (folder / "project").mkdir()
    (folder / "project" / "checks.py").write_text(CHECKS)
    (folder / "project" / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["checks.py"]\n')
    out = folder / "found.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(package.parent), prepend=":")
        patch.chdir(folder / "project")
        main(["check", "--no-fix", "--no-cache", "--output", f"json={out}"])
    return {check["id"].partition("::")[2]: check["diagnostics"] for check in json.loads(out.read_text())["checks"]}


@pytest.mark.parametrize("name", PLACES)
def test_places_beside_the_line(told, name):
    texts = {"layers.py": LIBRARY.splitlines(), "checks.py": CHECKS.splitlines()}
    (finding,) = told[name]
    related = [(Path(one["file"]).name, one["range"]["start"]["line"], one["message"]) for one in finding["related"]]
    assert sum("made here" in text for *_, text in related) == sum("made here" in text for *_, text in PLACES[name])
    for file, mark, message in PLACES[name]:
        (line,) = (number for number, text in enumerate(texts[file], 1) if text.endswith(f"# {mark}"))
        assert [text for *place, text in related if place == [file, line] and text.startswith(message)], related
