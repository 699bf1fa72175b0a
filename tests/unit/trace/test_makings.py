"""Where parameters were made, and what a backward pass differentiates that it computed anew."""

from pathlib import Path

import pytest
import torch
from programs import record
from torch import nn
from torch.utils.checkpoint import checkpoint

from graphguard.trace.claims.parameters import states_of
from graphguard.trace.record.capture import Recording
from graphguard.trace.worlds.world import World


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))  # own


def built(kind):
    return kind()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = built(Scale)  # scale
        self.layers = nn.Sequential(nn.Linear(2, 2))  # layers


def line(mark):
    texts = Path(__file__).read_text().splitlines()
    return next(number for number, text in enumerate(texts, 1) if text.endswith(f"# {mark}"))


MADE = {"scale.weight": ["own", "scale"], "layers.0.weight": ["layers"]}  # PyTorch's own code is not shown


@pytest.mark.parametrize("name", MADE)
def test_the_lines_that_make_a_parameter(name):
    with World(0, {"w": 1}) as world, Recording(world) as recording:
        block = Block().double()
        block.get_submodule(name.rpartition(".")[0]).weight = nn.Parameter(torch.ones(2))  # as wrappers do
        (state,) = (each for each in states_of(block) if each.name == name)
        frames = recording.made(state.owners, "weight")
    assert [frame.span.line for frame in frames] == [line(mark) for mark in MADE[name]]


def recomputed(x):
    return torch.tanh(x).sin()  # anew


def test_what_is_computed_anew_is_differentiated_at_its_own_line():
    def program(x):
        x = x.detach().requires_grad_()
        checkpoint(recomputed, x, use_reentrant=True).sum().backward()  # called
        return x.grad

    graph = record(program, [torch.ones(3)]).graph
    (node,) = (each for each in graph.nodes if each.op == "aten.tanh_backward.default")
    assert [frame.function for frame in graph.stack_of(node.forward)][:1] == ["recomputed"]
    (anew,) = {each.forward for each in graph.nodes if each.stack == node.forward}
    assert [frame.span.line for frame in graph.stack_of(anew)] == [line("called")]
