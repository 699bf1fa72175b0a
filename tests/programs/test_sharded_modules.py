"""Modules under ``fully_shard`` as scripts write it, and what is said of steps that go wrong in them."""

import linecache
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.nn.parallel import DistributedDataParallel as DDP

import graphguard as gg

ROWS = {"dp": Shard(0)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 4), nn.Linear(4, 6, bias=False), nn.Linear(6, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Step:
    """A step of training; the mesh is the one that ``fully_shard`` makes for itself."""

    def __init__(self, ranks: int = 0, wrong: str = "") -> None:
        if ranks:
            with torch.device("meta"):
                self.net = Net()
            fully_shard(self.net)
            self.net.to_empty(device="cpu")
            for module in (self.net.first, self.net.second, self.net.last):
                module.reset_parameters()
        else:
            self.net = Net()
        self.wrong = wrong
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def __call__(self, x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
        loss = F.mse_loss(self.net(x), target) * (3 if self.wrong == "scale" else 1)
        loss.backward()
        if self.wrong != "step":
            self.optimizer.step()
        return dict(self.net.named_parameters())


def checked(wrong: str = "") -> Any:
    inputs = (gg.tensor(8, 6), gg.tensor(8, 4))
    return gg.verify(Step(), lambda mesh: Step(mesh.size(), wrong), inputs, mesh={"dp": 2}, in_relations=ROWS)


def test_the_mesh_that_fully_shard_makes_for_itself() -> None:
    found = checked()
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics


def test_a_loss_that_is_scaled_is_no_gather_without_a_gradient() -> None:
    (finding,) = checked("scale").diagnostics
    assert finding.rule == "wrong-scale"
    assert "3" in finding.message.splitlines()[0]


def test_a_step_that_is_not_taken_is_told_where_the_gradients_are_asked_for() -> None:
    found = checked("step")
    assert found.verdict is gg.Verdict.BROKEN
    (finding,) = found.diagnostics
    assert finding.message.startswith(
        "'first.weight', 'first.bias', 'second.weight' and 'last.weight' are returned as they were: the specification changes them"
    )
    assert "loss.backward()" in linecache.getline(finding.span.file, finding.span.line)
    assert any(place.message == "the specification changes them" for place in finding.related)


class Normed(Step):
    """A step along each matrix's gradient over its norm; ``part``: the norm of the rank's own rows."""

    def __call__(self, x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
        F.mse_loss(self.net(x), target).backward()
        with torch.no_grad():
            for parameter in self.net.parameters():
                gradient = getattr(parameter.grad, "_local_tensor", parameter.grad)
                total = gradient.square().sum()
                if gradient is not parameter.grad and self.wrong != "part":
                    dist.all_reduce(total)
                mine = getattr(parameter, "_local_tensor", parameter)
                mine -= 0.1 * gradient / total.sqrt()
        return dict(self.net.named_parameters())


@pytest.mark.parametrize("wrong", ["", "part"])
def test_an_update_by_the_norm_of_a_rank_s_own_rows(wrong: str) -> None:
    """It was told as a gather of parameters through which no gradient comes back."""
    inputs = (gg.tensor(8, 6), gg.tensor(8, 4))
    found = gg.verify(Normed(), lambda mesh: Normed(mesh.size(), wrong), inputs, mesh={"dp": 2}, in_relations=ROWS)
    assert found.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), found.diagnostics
    for finding in found.diagnostics:
        assert "'total'" in finding.message
        assert finding.rule == "missing-reduction"


class Padded(nn.Module):
    """Attention over a sequence that is padded to a multiple of the ranks; ``kept``: the padding is attended to."""

    def __init__(self, group: Any = None, kept: bool = False) -> None:
        super().__init__()
        self.qkv, self.group, self.kept = nn.Linear(4, 3 * 8), group, kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[1]
        if self.group is not None:
            ranks, rank = dist.get_world_size(self.group), dist.get_rank(self.group)
            x = F.pad(x, (0, 0, 0, -rows % ranks)).chunk(ranks, dim=1)[rank]
        q, k, v = (t.unflatten(-1, (4, 2)) for t in self.qkv(x).chunk(3, dim=-1))
        if self.group is not None:
            q, k, v = (self.exchanged(t)[:, : None if self.kept else rows] for t in (q, k, v))
        return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))[:, :, :rows]

    def exchanged(self, part: torch.Tensor) -> torch.Tensor:
        ranks = dist.get_world_size(self.group)
        sent = [each.contiguous() for each in part.chunk(ranks, dim=2)]
        arrived = [torch.empty_like(sent[0]) for _ in sent]
        dist.all_to_all(arrived, sent, group=self.group)
        return torch.cat(arrived, dim=1)


@pytest.mark.parametrize("kept", [False, True])
def test_padding_that_is_attended_to(kept: bool) -> None:
    found = gg.verify(
        Padded(),
        lambda mesh: Padded(mesh.get_group("sp"), kept),
        (gg.tensor(2, 5, 4),),
        mesh={"sp": 2},
        grads=False,
        out_relations={"sp": Shard(1)},
    )
    assert found.verdict is (gg.Verdict.BROKEN if kept else gg.Verdict.REFINES), found.diagnostics
    for finding in found.diagnostics:
        assert "6 elements along dim 2, the specification's has 5: what pads it is not left out" in finding.message


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


class Loop:
    def __init__(self, ranks: int = 0) -> None:
        self.net = Small()
        self.model = DDP(self.net) if ranks else self.net
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def out(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)

    def __call__(self, x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
        loss = F.mse_loss(self.out(x), target)
        loss.backward()
        self.optimizer.step()
        return dict(self.model.named_parameters())


class Inside(Loop):
    def out(self, x: torch.Tensor) -> torch.Tensor:
        return self.model.module(x)


class Beside(Loop):
    def __init__(self, ranks: int = 0) -> None:
        super().__init__()
        self.model = DDP(self.net)

    def out(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


@pytest.mark.parametrize(("loop", "called"), [(Loop, ""), (Inside, "self.model.module(x)"), (Beside, "self.net(x)")])
def test_a_forward_pass_round_its_wrapper(loop: Any, called: str) -> None:
    """All gradients are wrong for one reason."""
    inputs = (gg.tensor(8, 6), gg.tensor(8, 3))
    found = gg.verify(
        Loop(),
        lambda mesh: loop(mesh.size()),
        inputs,
        mesh={"dp": 2},
        in_relations=ROWS,
        out_relations="replicate",
    )
    assert found.verdict is (gg.Verdict.BROKEN if called else gg.Verdict.REFINES), found.diagnostics
    assert len(found.diagnostics) == bool(called)
    for finding in found.diagnostics:
        assert finding.rule == "gradient-not-reduced"
        assert finding.message.startswith("this call goes round 'self.model', a DistributedDataParallel")
        assert called in linecache.getline(finding.span.file, finding.span.line)
