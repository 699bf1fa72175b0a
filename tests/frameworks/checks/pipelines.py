"""`torch.distributed.pipelining`: stages under its schedules, one or two on a rank, loss and gradients of every stage."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)

import graphguard as gg

DIM, BATCH, PIECES = 6, 8, 4


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, 2 * DIM)
        self.down = nn.Linear(2 * DIM, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def network() -> nn.ModuleDict:
    return nn.ModuleDict({str(index): Layer() for index in range(4)})


class Part(nn.Module):
    """The layers of one stage, under the names that they have in the whole."""

    def __init__(self, layers: nn.ModuleDict) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x


def loss_of(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(y, target)


def step(model: nn.Module):
    def run(x: torch.Tensor, target: torch.Tensor):
        loss = loss_of(model(x), target)
        loss.backward()
        return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}

    return run


def pipelined(mesh, schedule):
    """This rank's stage of as many as there are ranks, and its step."""
    rank, ranks = mesh.get_local_rank("pp"), mesh["pp"].size()
    each = 4 // ranks
    model = Part(nn.ModuleDict({str(index): Layer() for index in range(rank * each, rank * each + each)}))
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"), group=mesh.get_group("pp"))
    runs = schedule(stage, n_microbatches=PIECES, loss_fn=loss_of)

    def run(x: torch.Tensor, target: torch.Tensor):
        losses: list[torch.Tensor] = []
        if rank == 0:
            runs.step(x)
        elif rank == ranks - 1:
            runs.step(target=target, losses=losses)
        else:
            runs.step()
        found = {name: p.grad for name, p in model.named_parameters()}
        if losses:
            found["loss"] = torch.stack(losses).mean().detach()
        return found

    return run


INPUTS = (gg.tensor(BATCH, DIM), gg.tensor(BATCH, DIM))


@gg.check(mesh=[{"pp": 2}, {"pp": 4}])
def gpipe(mesh):
    return gg.Refinement(step(Part(network())), pipelined(mesh, ScheduleGPipe), INPUTS)


@gg.check(mesh=[{"pp": 2}, {"pp": 4}])
def one_forward_one_backward(mesh):
    return gg.Refinement(step(Part(network())), pipelined(mesh, Schedule1F1B), INPUTS)


def of_two_stages(mesh, schedule, second: int) -> gg.Refinement:
    """Two stages on every rank, one layer each: the rank's own number and another."""
    rank = mesh.get_local_rank("pp")
    models = {number: Part(nn.ModuleDict({str(number): Layer()})) for number in (rank, second)}
    stages = [
        PipelineStage(model, number, 4, torch.device("cpu"), group=mesh.get_group("pp"))
        for number, model in models.items()
    ]
    runs = schedule(stages, n_microbatches=PIECES, loss_fn=loss_of)

    def run(x: torch.Tensor, target: torch.Tensor):
        losses: list[torch.Tensor] = []
        given = (x,) if 0 in models else ()
        wanted = {"target": target, "losses": losses} if 3 in models else {}
        runs.step(*given, **wanted)
        found = {name: p.grad for model in models.values() for name, p in model.named_parameters()}
        if losses:
            found["loss"] = torch.stack(losses).mean().detach()
        return found

    return gg.Refinement(step(Part(network())), run, INPUTS)


@gg.check(mesh={"pp": 2})
def interleaved(mesh):
    return of_two_stages(mesh, ScheduleInterleaved1F1B, mesh.get_local_rank("pp") + 2)


@gg.check(mesh={"pp": 2})
def breadth_first(mesh):
    return of_two_stages(mesh, ScheduleLoopedBFS, mesh.get_local_rank("pp") + 2)


@gg.check(mesh={"pp": 2})
def zero_bubble(mesh):
    return of_two_stages(mesh, ScheduleInterleavedZeroBubble, mesh.get_local_rank("pp") + 2)


@gg.check(mesh={"pp": 2})
def zero_bubble_there_and_back(mesh):
    return of_two_stages(mesh, ScheduleZBVZeroBubble, 3 - mesh.get_local_rank("pp"))


@gg.check(mesh={"pp": 2})
def from_both_ends(mesh):
    return of_two_stages(mesh, ScheduleDualPipeV, 3 - mesh.get_local_rank("pp"))
