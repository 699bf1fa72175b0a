"""A reduction that is missing while another one over the same axis is in vain: the finding shows that one as well."""

import inspect

import pytest
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, x):
        return self.linear(x).square().mean()


class Averaged(Loss):
    def __init__(self, group, what):
        super().__init__()
        self.group = group
        for parameter in self.parameters():
            parameter.register_post_accumulate_grad_hook(getattr(self, what))

    def average_of_parameters(self, grad):
        dist.all_reduce(grad, op=dist.ReduceOp.AVG, group=self.group)

    def nothing(self, parameter):
        pass


def step(model):
    def run(x):
        model(x).backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    return run


@pytest.mark.parametrize(("what", "shown"), [("average_of_parameters", True), ("nothing", False)])
def test_what_is_reduced_in_vain_is_shown(what, shown):
    report = gg.verify(
        step(Loss()),
        lambda mesh: step(Averaged(mesh.get_group("dp"), what)),
        (gg.tensor(4, 6),),
        mesh={"dp": 2},
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
    )
    (finding,) = report.diagnostics
    assert finding.rule == "gradient-not-reduced"
    _, first = inspect.getsourcelines(Averaged.average_of_parameters)
    found = [
        place.span.line
        for place in finding.related
        if place.message == "what is reduced over 'dp' here is read nowhere"
    ]
    assert found == ([first + 1] if shown else [])
