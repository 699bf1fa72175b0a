"""A function that returns gradients by the names of parameters: None is zero, on both sides."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import graphguard as gg


def returning(used, none="kept"):
    """A step whose second layer is used, or not; gradients that did not arrive are ``kept`` as None, ``filled`` with zeros or ``dropped``."""
    model = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 4)})

    def step(x):
        model.zero_grad()
        out = model["first"](x)
        (out + model["second"](x) if used else out).square().sum().backward()
        found = {name: parameter.grad for name, parameter in model.named_parameters()}
        if none == "dropped":
            return {"grads": [{name: value for name, value in found.items() if value is not None}]}
        if none == "filled":
            found = {name: torch.zeros(4) if value is None else value for name, value in found.items()}
            found["second.weight"] = found["second.weight"].expand(4, 4)
        return {"grads": [found]}

    return step


def verdict(spec, impl):
    return gg.verify(spec, lambda mesh: impl, inputs=(gg.tensor(2, 4),), mesh={"dp": 2}).verdict


KINDS = ("kept", "filled", "dropped")
PAIRS = [pair for pair in itertools.product(KINDS, KINDS) if pair != ("filled", "dropped")]  # what is zero is returned


@pytest.mark.parametrize(("spec", "impl"), PAIRS)
def test_no_gradient_is_a_gradient_of_zero(spec, impl):
    assert verdict(returning(False, spec), returning(False, impl)) is gg.Verdict.REFINES


@pytest.mark.parametrize("none", ["kept", "filled"])
def test_a_gradient_that_the_specification_does_not_have(none):
    assert verdict(returning(False, none), returning(True)) is gg.Verdict.BROKEN


@pytest.mark.parametrize("none", ["kept", "filled"])
def test_a_gradient_that_only_the_specification_has(none):
    assert verdict(returning(True), returning(False, none)) is gg.Verdict.BROKEN


class Spare(nn.Module):
    """A parameter in use, and one that is not, of which a rank has ``rows``."""

    def __init__(self, rows=8):
        super().__init__()
        self.used = nn.Parameter(torch.randn(4, 4))
        self.spare = nn.Parameter(torch.randn(rows, 4))

    def forward(self, x):
        return x @ self.used


class Distributed(Spare):
    def __init__(self, mesh):
        super().__init__()
        self.spare = nn.Parameter(distribute_tensor(self.spare.detach(), mesh, [Shard(0)]))


@pytest.mark.parametrize("impl", [lambda mesh: Spare(4), Distributed])
def test_a_part_of_a_parameter_that_is_not_in_use(impl):
    """Its gradient is zero, in the shape of the part."""
    assert gg.verify(Spare(), impl, inputs=(gg.tensor(2, 4),), mesh={"tp": 2}).verdict is gg.Verdict.REFINES


def test_the_gradient_of_packed_pieces():
    """What a function returns of a parameter whose two halves are cut each for itself."""

    def step(parameter):
        def run(x):
            weight = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            one, other = (x @ weight.t()).chunk(2, -1)
            (one * other).sum().backward()
            return parameter.grad

        return run

    def impl(mesh):
        whole = nn.Parameter(torch.randn(8, 4))
        return step(nn.Parameter(distribute_tensor(whole.detach(), mesh, [_StridedShard(0, split_factor=2)])))

    spec = step(nn.Parameter(torch.randn(8, 4)))
    assert gg.verify(spec, impl, inputs=(gg.tensor(2, 4),), mesh={"tp": 2}).verdict is gg.Verdict.REFINES


class Frozen(nn.Module):
    """Two layers of which some are not trained."""

    def __init__(self, *frozen):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)
        for name in frozen:
            getattr(self, name).requires_grad_(False)

    def forward(self, x):
        return self.second(self.first(x).sin())


FREEZINGS = [
    (["first"], ["first"], gg.Verdict.REFINES),
    (["first"], [], gg.Verdict.BROKEN),
    (["first"], ["second"], gg.Verdict.BROKEN),
    ([], ["first"], gg.Verdict.BROKEN),
    (["first", "second"], [], gg.Verdict.REFINES),  # a specification that trains nothing says nothing of gradients
]


def built(whole, frozen):
    return Frozen(*frozen)


def copied(whole, frozen):
    model = copy.deepcopy(whole).requires_grad_(True)
    for name in frozen:
        getattr(model, name).requires_grad_(False)
    return model


def loaded(state, impl, mesh):
    with torch.no_grad():
        for name, parameter in impl.named_parameters():
            parameter.copy_(state[name])


WAYS = [(built, None), (copied, None), (built, loaded)]


@pytest.mark.parametrize(("made", "load"), WAYS, ids=["named alike", "copied", "loaded"])
@pytest.mark.parametrize(("spec", "impl", "verdict_of_it"), FREEZINGS)
def test_what_one_side_freezes_the_other_does_not_train(spec, impl, verdict_of_it, made, load):
    whole = Frozen(*spec)
    report = gg.verify(whole, lambda _: made(whole, impl), inputs=(gg.tensor(3, 4),), mesh={"dp": 2}, load=load)
    assert report.verdict is verdict_of_it
    if spec and not impl and verdict_of_it is gg.Verdict.BROKEN:
        assert "'first.weight' gets a gradient, and in the specification it gets none" in report.diagnostics[0].message
