"""What people write: data parallel, sharded, tensor parallel, recomputed, clipped and stepped programs, equal to eager on numbers."""

import hashlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from programs import ops_of, run_ranks
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from graphguard.ir import Graph
from graphguard.ir.codec import dumps, graph_to_plain
from graphguard.ir.joining import join
from graphguard.ir.pruning import prune_prelude
from graphguard.trace.calls.lockstep import rounds
from graphguard.trace.record.capture import Recording
from graphguard.trace.worlds.world import World

pytestmark = pytest.mark.filterwarnings("ignore")


class MLP(nn.Module):
    def __init__(self, dim: int = 8, hidden: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.w2(F.gelu(self.w1(self.norm(x))))


SHAPES = {name: tuple(parameter.shape) for name, parameter in MLP().named_parameters()}
BATCH = (4, 8)
Train = Callable[[Recording, nn.Module, torch.Tensor, Any], None]


def numbers() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    leaves = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in SHAPES.items()}
    return leaves | {"x": torch.randn(BATCH, generator=generator)}


def sequential() -> tuple[MLP, torch.Tensor]:
    leaves = numbers()
    model = MLP()
    model.load_state_dict({name: leaves[name] for name in SHAPES})
    return model, leaves["x"]


def bind(recording: Recording, model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        name = name.removeprefix("module.")
        value = recording.leaf(name, SHAPES[name], torch.float32)
        if isinstance(parameter, DTensor):
            place = parameter.device_mesh.get_coordinate()
            for axis, placement in reversed(list(enumerate(parameter.placements))):
                if hasattr(placement, "dim"):
                    value = value.chunk(parameter.device_mesh.size(axis), placement.dim)[place[axis]]
        recording.bind(parameter, value)


def capture(build: Callable[[Any], nn.Module], train: Train, mesh: dict[str, int]) -> tuple[Graph, ...]:
    def one(rank: int, answers: Any) -> Any:
        with World(rank, mesh) as world:
            recording = Recording(world, answers)
            with recording:
                model = build(world.mesh)
                bind(recording, model)
                x = recording.leaf("x", BATCH, torch.float32)
                recording.phase = "forward"
                train(recording, model, x, world.mesh)
            return recording.finish()

    size = 1
    for extent in mesh.values():
        size *= extent
    traces = rounds(lambda ranks, answers: [one(rank, answers) for rank in ranks], size)
    assert all(trace.graph is not None for trace in traces), traces[0].troubles
    graphs = prune_prelude(tuple(trace.graph for trace in traces))
    assert not join(graphs).mismatches
    return graphs


def named(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name.removeprefix("module."), parameter) for name, parameter in model.named_parameters()]


def train(recording: Recording, model: nn.Module, x: torch.Tensor, mesh: Any) -> None:
    y = model(x)
    recording.output("out", y)
    (y * y).sum().backward()
    for name, parameter in named(model):
        recording.output(f"grad({name})", parameter.grad)


def train_on_a_part(recording: Recording, model: nn.Module, x: torch.Tensor, mesh: Any) -> None:
    axis = mesh["dp"]
    train(recording, model, x.chunk(axis.size(), 0)[axis.get_local_rank()], mesh)


def collectives(graph: Graph) -> Counter[str]:
    return Counter(op.removeprefix("gg.") for op in ops_of(graph) if op.startswith("gg."))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-5, atol=1e-5)


def tensor_parallel(mesh: Any) -> nn.Module:
    return parallelize_module(MLP(), mesh, {"w1": ColwiseParallel(), "w2": RowwiseParallel()})


def expected() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model, x = sequential()
    y = model(x)
    (y * y).sum().backward()
    return y.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("ways", [2, 4])
def test_tensor_parallel_module(ways: int) -> None:
    graphs = capture(tensor_parallel, train, {"tp": ways})
    assert collectives(graphs[0]) == {"all_reduce": 2}
    y, grads = expected()
    found = run_ranks(graphs, numbers())
    assert all(close(out["out"], y) for out in found)
    assert close(torch.cat([out["grad(w1.weight)"] for out in found], 0), grads["w1.weight"])
    assert close(torch.cat([out["grad(w2.weight)"] for out in found], 1), grads["w2.weight"])


def test_fully_sharded() -> None:
    def build(mesh: Any) -> nn.Module:
        return fully_shard(MLP(), mesh=mesh)

    graphs = capture(build, train_on_a_part, {"dp": 2})
    assert collectives(graphs[0]) == {"all_gather": 1, "reduce_scatter": 1}
    y, grads = expected()
    found = run_ranks(graphs, numbers())
    assert close(torch.cat([out["out"] for out in found]), y)
    for name, grad in grads.items():  # FSDP averages, the loss sums over the batch
        assert close(torch.cat([out[f"grad({name})"] for out in found]) * 2, grad)


def test_fully_sharded_and_tensor_parallel() -> None:
    def build(mesh: Any) -> nn.Module:
        return fully_shard(tensor_parallel(mesh["tp"]), mesh=mesh["dp"])

    graphs = capture(build, train_on_a_part, {"dp": 2, "tp": 2})
    y, grads = expected()
    found = run_ranks(graphs, numbers())
    assert close(torch.cat([found[0]["out"], found[2]["out"]]), y)
    assert close(torch.cat([out["out"] for out in found[1::2]]), y)
    assert close(torch.cat([found[0]["grad(norm.weight)"], found[2]["grad(norm.weight)"]]) * 2, grads["norm.weight"])


def test_distributed_data_parallel() -> None:
    graphs = capture(lambda mesh: DistributedDataParallel(MLP()), train_on_a_part, {"dp": 2})
    assert collectives(graphs[0]) == {"all_reduce": 1}  # one bucket
    _, grads = expected()
    for out in run_ranks(graphs, numbers()):
        assert all(close(out[f"grad({name})"] * 2, grad) for name, grad in grads.items())


def test_recomputation_runs_the_collectives_again() -> None:
    def recomputed(recording: Recording, model: nn.Module, x: torch.Tensor, mesh: Any) -> None:
        y = checkpoint(model, x.requires_grad_(), use_reentrant=False)
        y = checkpoint(model, y, use_reentrant=True)
        recording.output("out", y)
        (y * y).sum().backward()
        recording.output("grad(w1.weight)", model.w1.weight.grad)

    graphs = capture(tensor_parallel, recomputed, {"tp": 2})
    model, x = sequential()
    y = model(model(x))
    (y * y).sum().backward()
    found = run_ranks(graphs, numbers())
    assert close(found[1]["out"], y)
    assert close(torch.cat([out["grad(w1.weight)"] for out in found]), model.w1.weight.grad)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "sgd-fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True, amsgrad=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_two_clipped_steps(name: str) -> None:
    def step(model: nn.Module, x: torch.Tensor) -> None:
        optimizer = OPTIMIZERS[name](model.parameters())
        for _ in range(2):
            y = model(x)
            (y * y).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()

    def steps(recording: Recording, model: nn.Module, x: torch.Tensor, mesh: Any) -> None:
        step(model, x)
        for name, parameter in model.named_parameters():
            recording.output(name, parameter)

    graphs = capture(lambda mesh: MLP(), steps, {"dp": 1})
    assert {"forward", "backward", "step"} == {node.phase for node in graphs[0].nodes}
    model, x = sequential()
    step(model, x)
    found = run_ranks(graphs, numbers())[0]
    for parameter_name, parameter in model.named_parameters():
        if name.endswith("fused"):  # its kernel rounds in another order
            assert torch.allclose(found[parameter_name], parameter.detach(), atol=1e-6)
        else:
            assert torch.equal(found[parameter_name], parameter.detach())


FRESH = """
import sys, json, warnings
warnings.filterwarnings("ignore")
from graphguard.trace.worlds.world import warm
warm()
import test_programs
print(test_programs.last_rank_alone())
"""


def last_rank_alone() -> str:
    with World(1, {"tp": 2}) as world:
        recording = Recording(world)
        with recording:
            model = tensor_parallel(world.mesh)
            bind(recording, model)
            x = recording.leaf("x", BATCH, torch.float32)
            recording.phase = "forward"
            train(recording, model, x, world.mesh)
        graph = recording.finish().graph
    assert graph is not None
    return hashlib.sha256(dumps(graph_to_plain(graph))).hexdigest()


def test_a_rank_after_another_equals_a_rank_in_a_fresh_process() -> None:
    """DTensor's caches hold the mesh of the rank that filled them; ``World`` must empty them."""
    fresh = subprocess.run(
        [sys.executable, "-c", FRESH], cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=60
    )
    capture(tensor_parallel, train, {"tp": 2})
    assert last_rank_alone() == fresh.stdout.split()[-1]


def test_the_program_may_initialise_the_group_itself() -> None:
    def build(mesh: Any) -> nn.Module:
        dist.init_process_group("nccl")
        assert dist.get_backend() == "nccl"
        assert (dist.get_rank(), dist.get_world_size()) == (mesh.get_rank(), 2)
        return MLP()

    assert len(capture(build, train, {"tp": 2})) == 2
    assert not dist.is_initialized()


def test_accumulated_gradients() -> None:
    def accumulate(recording: Recording, model: nn.Module, x: torch.Tensor, mesh: Any) -> None:
        for part in x.chunk(2):
            (model(part) ** 2).sum().backward()
        for name, parameter in model.named_parameters():
            recording.output(f"grad({name})", parameter.grad)

    graphs = capture(lambda mesh: MLP(), accumulate, {"dp": 1})
    _, grads = expected()
    found = run_ranks(graphs, numbers())[0]
    assert all(close(found[f"grad({name})"], grad) for name, grad in grads.items())


@pytest.mark.parametrize("kind", ["1F1B", "GPipe"])
def test_pipeline(kind: str) -> None:
    from programs import record_ranks
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    class Stage(nn.Module):
        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            self.weight = nn.Parameter(weight.detach())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x @ self.weight)

    def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (out - target).pow(2).mean()

    def program(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rank = dist.get_rank()
        module = Stage(first if rank == 0 else second)
        stage = PipelineStage(module, rank, 2, torch.device("cpu"))
        schedule = (Schedule1F1B if kind == "1F1B" else ScheduleGPipe)(stage, n_microbatches=4, loss_fn=loss)
        if rank == 0:
            schedule.step(x)
            return (module.weight.grad,)
        out = schedule.step(target=x * 2, losses=[])
        return module.weight.grad, out

    generator = torch.Generator().manual_seed(0)
    x, first, second = (torch.randn(n, 4, generator=generator) for n in (8, 4, 4))
    graphs = record_ranks(program, [x, first, second], {"pp": 2})
    found = run_ranks(graphs, {"in0": x, "in1": first, "in2": second})
    first, second = first.requires_grad_(), second.requires_grad_()
    out = torch.relu(torch.relu(x @ first) @ second)
    (sum(loss(o, t) for o, t in zip(out.chunk(4), (x * 2).chunk(4), strict=True)) / 4).backward()
    assert close(found[1]["out[1]"], out)
    assert close(found[0]["out[0]"], first.grad)
    assert close(found[1]["out[0]"], second.grad)


def test_gradients_of_parameters_from_outside() -> None:
    from programs import record, run

    weight = nn.Parameter(torch.ones(3))

    def program(x: torch.Tensor) -> torch.Tensor:
        (x * weight).pow(2).sum().backward()
        grad, weight.grad = weight.grad, None
        return grad

    trace = record(program, [torch.arange(3.0)])
    assert trace.graph is not None
    assert torch.equal(run(trace.graph, {"in0": torch.arange(3.0)})["out[0]"], program(torch.arange(3.0)))
