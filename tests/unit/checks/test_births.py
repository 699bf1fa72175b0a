"""Parameters whose memory a program copies, flattens or cuts before it runs: the value is there from the beginning."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

DP2 = {"dp": 2}
X = (gg.tensor(4, 6),)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(self.up(x))


class Held:
    """What an optimiser or an engine keeps: tensors that are no parameters of the program."""

    def __init__(self, *tensors):
        self.tensors = tensors


def flattened(model: nn.Module, parts: int = 1, rank: int = 0) -> list[torch.Tensor]:
    """All parameters in one buffer, whose memory they show, as ZeRO keeps them; with ``parts``, this rank's part alone."""
    flat = torch.cat([p.data.reshape(-1) for p in model.parameters()])
    start = 0
    for p in model.parameters():
        p.data = flat[start : start + p.numel()].view(p.shape)
        start += p.numel()
    if parts == 1:
        return [flat]
    shard = flat.chunk(parts)[rank].clone()
    for p in model.parameters():
        p.data = torch.empty(0)
    return [shard]


def test_a_flat_buffer_holds_the_parameters(judge):
    def build(mesh):
        model = Net()
        flattened(model)
        return gg.Refinement(Net(), model, X)

    assert judge(build, DP2).status == "equal"


def test_a_rank_keeps_a_part_of_the_flat_buffer(judge):
    def build(mesh):
        model, group = Net(), mesh.get_group("dp")
        shapes = [p.shape for p in model.parameters()]
        held = Held(*flattened(model, 2, mesh.get_local_rank("dp")))

        def run(x):
            (shard,) = held.tensors
            whole = torch.empty(2 * shard.numel())
            dist.all_gather_into_tensor(whole, shard, group=group)
            pieces = whole.split([shape.numel() for shape in shapes])
            for p, piece, shape in zip(model.parameters(), pieces, shapes, strict=True):
                p.data = piece.view(shape)
            return model(x)

        return gg.Refinement(Net(), run, X, grads=False)

    assert judge(build, DP2).status == "equal"


def test_a_wrong_part_is_wrong(judge):
    def build(mesh):
        model = Net()
        held = Held(*flattened(model, 2, 0))  # every rank keeps the first

        def run(x):
            (shard,) = held.tensors
            whole = torch.empty(2 * shard.numel())
            dist.all_gather_into_tensor(whole, shard, group=mesh.get_group("dp"))
            for p, piece in zip(model.parameters(), whole.split([24, 4, 4, 4]), strict=True):
                p.data = piece.view({24: (4, 6)}.get(piece.numel(), (4,)))
            return model(x)

        return gg.Refinement(Net(), run, X, grads=False)

    assert judge(build, DP2).status == "differs"


def test_copies_in_full_precision_are_copies(judge):
    def step(model, held):
        def run(x):
            model(x).square().sum().backward()
            with torch.no_grad():
                for p, master in zip(model.parameters(), held.tensors, strict=True):
                    master -= 0.1 * p.grad
                    p.copy_(master)
            return dict(model.named_parameters())

        return run

    def build(mesh):
        whole, model = Net(), Net()
        return gg.Refinement(
            step(whole, Held(*whole.parameters())),
            step(model, Held(*(p.detach().clone() for p in model.parameters()))),
            X,
        )

    assert judge(build, DP2).status == "equal"


def test_a_copy_of_an_initial_constant_is_no_constant(record):
    def build(mesh):
        model = Net()
        held = Held(model.norm.weight.detach().clone())  # ones, until the program has its parameters

        def run(x):
            return model(x) if held.tensors[0].sum().item() == 4 else x.new_zeros(4, 4)

        return gg.Refinement(Net(), run, X, grads=False)

    (trouble, *_) = record(build, DP2).troubles
    assert "a number that depends on its inputs" in trouble.message


def test_memory_that_was_only_replaced_is_judged_by_its_shape(judge):
    def build(mesh):
        model = Net()
        model.up.weight.data = torch.empty(2, 6)  # a shard, which is filled later

        def run(x):
            parts = [torch.empty(2, 6) for _ in range(2)]
            dist.all_gather(parts, model.up.weight.detach(), group=mesh.get_group("dp"))
            return model.norm(nn.functional.linear(x, torch.cat(parts), model.up.bias))

        return gg.Refinement(Net(), run, X, grads=False)

    assert judge(build, DP2).status == "equal"


@pytest.mark.parametrize("inplace", [True, False])
def test_the_specification_may_copy_as_well(judge, inplace):
    def kept(model):
        held = Held(*(p.detach().clone() for p in model.parameters()))
        if inplace:
            flattened(model)
        return lambda x: (model(x), *held.tensors)

    assert judge(lambda mesh: gg.Refinement(kept(Net()), kept(Net()), X, grads=False), DP2).status == "equal"
