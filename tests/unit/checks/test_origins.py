"""A rank's weights that the program makes of the specification's while it is built: they are what the program made them, right or wrong."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TP2 = {"tp": 2}
X = (gg.tensor(3, 6),)
OUTSIDE = nn.Linear(6, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 4, bias=False)

    def forward(self, x):
        return self.up(x)


class Fused(nn.Module):
    """Two projections of the specification in one."""

    def __init__(self, net, rank):
        super().__init__()
        parts = [part.weight.detach().chunk(2)[rank] for part in (net.query, net.key)]
        self.both = nn.Parameter(torch.cat(parts))

    def forward(self, x):
        return torch.chunk(x @ self.both.t(), 2, dim=-1)


class Apart(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(6, 4, bias=False)
        self.key = nn.Linear(6, 4, bias=False)

    def forward(self, x):
        return self.query(x), self.key(x)


def sharded(cut, *, itself=False):
    """A check whose rank has what ``cut`` makes of the weight of a copy of the specification, or of the model of which the specification is a copy."""

    def build(mesh):
        model = Net()
        other = copy.deepcopy(model)
        net, mine = (other, model) if itself else (model, other)
        mine.up.weight = nn.Parameter(cut(mine.up.weight, mesh.get_local_rank()))
        return gg.Refinement(net, mine, X, out_relations={"tp": Shard(1)}, grads=False)

    return build


def of_a_shared_model(mesh):
    net, mine = Net(), Net()
    mine.up.weight = nn.Parameter(
        net.up.weight[2 * mesh.get_local_rank() :][:2]
    )  # a view of the specification's memory
    return gg.Refinement(net, mine, X, out_relations={"tp": Shard(1)}, grads=False)


def loaded(mesh):
    net, mine = Net(), nn.Module()
    mine.up = nn.Linear(6, 2, bias=False)
    mine.forward = lambda x: mine.up(x)
    mine.load_state_dict({name: one.chunk(2)[mesh.get_local_rank()] for name, one in net.state_dict().items()})
    return gg.Refinement(net, mine, X, out_relations={"tp": Shard(1)}, grads=False)


def broadcast(mesh):
    net = Net()
    mine = copy.deepcopy(net)
    for one in mine.parameters():
        dist.broadcast(one.data, 0)
    return gg.Refinement(net, mine, X)


def made_outside(mesh):
    mine = copy.deepcopy(OUTSIDE)
    mine.weight = nn.Parameter(OUTSIDE.weight.detach().flip(0))
    return gg.Refinement(OUTSIDE, lambda x: mine(x), X)


def fused(mesh):
    net = Apart()
    return gg.Refinement(net, Fused(net, mesh.get_local_rank()), X, out_relations={"tp": Shard(1)}, grads=False)


def of_a_model_from_outside(cut):
    """A check whose rank has a part of a copy of a model that was made before the recording."""

    def build(mesh):
        mine = copy.deepcopy(OUTSIDE)
        mine.bias = None
        mine.weight = nn.Parameter(cut(mine.weight, mesh.get_local_rank()))
        return gg.Refinement(lambda x: x @ OUTSIDE.weight.t(), lambda x: mine(x), X, out_relations={"tp": Shard(1)})

    return build


def changed_in_place(mesh):
    mine = Net()
    net = copy.deepcopy(mine)
    with torch.no_grad():
        mine.up.weight.mul_(2)
    return gg.Refinement(net, mine, X)


def filled_in_place(mesh):
    """The model of which the specification is a copy gets other numbers: it is related by its name."""
    mine = Net()
    net = copy.deepcopy(mine)
    nn.init.normal_(mine.up.weight)
    return gg.Refinement(net, mine, X)


def two_copies_of_one(mesh):
    """Copies of one tensor are parameters of their own."""
    first = torch.randn(4, 6)
    net, mine = Apart(), Apart()
    with torch.no_grad():
        for model in (net, mine):
            model.query.weight.copy_(first)
            model.key.weight.copy_(first)
    return gg.Refinement(net, mine, X)


RIGHT = {
    "cut": sharded(lambda weight, rank: torch.tensor_split(weight, 2)[rank]),
    "copied": sharded(lambda weight, rank: weight.detach().clone().narrow(0, 2 * rank, 2)),
    "twice and half": sharded(lambda weight, rank: (weight * 2).chunk(2)[rank] / 2),
    "a view": of_a_shared_model,
    "loaded": loaded,
    "broadcast": broadcast,
    "fused": fused,
    "the model itself": sharded(lambda weight, rank: weight.chunk(2)[rank], itself=True),
    "a model from outside": of_a_model_from_outside(lambda weight, rank: weight.chunk(2)[rank]),
    "filled in place": filled_in_place,
    "two copies of one": two_copies_of_one,
}
WRONG = {
    "the first part everywhere": sharded(lambda weight, rank: torch.tensor_split(weight, 2)[0]),
    "parts in reversed order": sharded(lambda weight, rank: weight.chunk(2)[1 - rank]),
    "every second row": sharded(lambda weight, rank: weight[rank::2]),
    "scaled": sharded(lambda weight, rank: weight.chunk(2)[rank] * 2),
    "from outside": made_outside,
    "the first part of the model itself": sharded(lambda weight, rank: weight.chunk(2)[0], itself=True),
    "the first part of a model from outside": of_a_model_from_outside(lambda weight, rank: weight.chunk(2)[0]),
    "changed in place": changed_in_place,
}


@pytest.mark.parametrize("name", list(RIGHT))
def test_right(judge, name):
    assert judge(RIGHT[name], TP2).status == "equal"


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong(judge, name):
    assert judge(WRONG[name], TP2).status == "differs"


def test_gradients_are_those_of_the_parts(judge):
    """What a rank made of the specification's weight is trained where that is, and its gradient is the same part of that of the weight."""

    def build(mesh):
        net, rank = Net(), mesh.get_local_rank()
        mine = copy.deepcopy(net)
        mine.up.weight = nn.Parameter(mine.up.weight.detach().chunk(2)[rank].clone())

        def step(model):
            def run(x):
                model.zero_grad()
                loss = model(x).sum()
                loss.backward()
                return model.up.weight.grad

            return run

        return gg.Refinement(step(net), step(mine), X, out_relations={"tp": Shard(0)})

    assert judge(build, TP2).status == "equal"


@pytest.mark.parametrize("fill", [nn.init.normal_, nn.init.zeros_, nn.init.xavier_uniform_, nn.init.trunc_normal_])
def test_what_is_filled_anew_is_known_by_its_name(judge, fill):
    """A copy that gets numbers of its own after it was made is related as one that never was a copy."""

    def build(mesh):
        net = Net()
        mine = copy.deepcopy(net)
        with torch.no_grad():
            fill(mine.up.weight)
        return gg.Refinement(net, mine, X)

    assert judge(build, TP2).status == "equal"


def test_a_copy_of_what_is_filled_later_is_known_by_its_name(judge):
    def build(mesh):
        net = Net()
        mine = copy.deepcopy(net)
        nn.init.ones_(net.up.weight)
        return gg.Refinement(net, mine, X)

    assert judge(build, TP2).status == "equal"


def test_constants_made_by_the_check(judge, record):
    def build(mesh):
        return gg.Refinement(lambda i: i * 2, lambda i: i + torch.arange(4), (gg.constant(torch.arange(4)),))

    assert judge(build, TP2).status == "equal"
    assert record(build, TP2).leaves[0].value is not None


def test_constants_of_unknown_elements(record):
    def build(mesh):
        return gg.Refinement(lambda x: x, lambda x: x, (gg.constant(torch.rand(4)),))

    (trouble, *_) = record(build, TP2).troubles
    assert "gg.constant was given a tensor whose elements are not known, as the input 'x'" in trouble.message
