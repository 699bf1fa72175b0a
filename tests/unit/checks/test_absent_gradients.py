"""A function that returns gradients by the names of parameters: None is zero, on both sides."""

import pytest
import torch
from torch import nn

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


@pytest.mark.parametrize("spec", KINDS)
@pytest.mark.parametrize("impl", KINDS)
def test_no_gradient_is_a_gradient_of_zero(spec, impl):
    if (spec, impl) == ("filled", "dropped"):
        pytest.skip("what the specification returns, a rank must return")
    assert verdict(returning(False, spec), returning(False, impl)) is gg.Verdict.REFINES


@pytest.mark.parametrize("none", ["kept", "filled"])
def test_a_gradient_that_the_specification_does_not_have(none):
    assert verdict(returning(False, none), returning(True)) is gg.Verdict.BROKEN


@pytest.mark.parametrize("none", ["kept", "filled"])
def test_a_gradient_that_only_the_specification_has(none):
    assert verdict(returning(True), returning(False, none)) is gg.Verdict.BROKEN
