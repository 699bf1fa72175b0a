"""Whole training steps: optimizers, clipping by the norm of all gradients, sharded states, accumulation, loss scaling, pipelines of micro-batches."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

INPUTS, HIDDEN, OUTPUTS, BATCH = 3, 4, 5, 8
ROWS: dict[str, Any] = {"dp": Shard(0)}
COPY: dict[str, Any] = {"dp": Replicate()}
DATA = (gg.tensor(BATCH, INPUTS), gg.tensor(BATCH, OUTPUTS))
Make = Callable[[Any], torch.optim.Optimizer]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, OUTPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Step:
    """A step of training; every rank has its rows of the batch, and ``wrong`` says what it leaves out."""

    def __init__(self, make: Make, mesh: Any = None, parts: int = 1, scale: float = 1.0, wrong: str = "") -> None:
        self.net, self.mesh, self.parts, self.scale, self.wrong = Net(), mesh, parts, scale, wrong
        self.optimizer = make(self.net.parameters())

    def __call__(self, x: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        self.optimizer.zero_grad()
        for rows, wanted in zip(x.chunk(self.parts), target.chunk(self.parts), strict=True):
            loss = F.mse_loss(self.net(rows), wanted) / (1 if self.wrong == "parts" else self.parts)
            (loss * self.scale).backward()
        if self.wrong == "clipped before":
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
        for parameter in self.net.parameters():
            assert parameter.grad is not None
            parameter.grad /= 1.0 if self.wrong == "scale" else self.scale
            if self.mesh is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= 1 if self.wrong == "mean" else self.mesh.size()
        if self.wrong != "clipped before":
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
        self.optimizer.step()
        return {name: parameter.detach() for name, parameter in self.net.named_parameters()}


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1)


def adagrad(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=0.1)


def adafactor(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adafactor(parameters, lr=0.1)


def trained(make: Make, ranks: int, **how: Any) -> gg.Verdict | None:
    return gg.verify(
        Step(make),
        lambda mesh: Step(make, mesh, **how),
        DATA,
        mesh={"dp": ranks},
        in_relations=(ROWS, ROWS),
        out_relations=COPY,
    ).verdict


@pytest.mark.parametrize(
    ("make", "ranks", "how"),
    [
        (sgd, 2, {}),
        (sgd, 4, {"scale": 128.0}),
        (adamw, 2, {}),
        (adamw, 2, {"parts": 2, "scale": 128.0}),
        (adagrad, 2, {}),
        (adafactor, 2, {}),
    ],
)
def test_steps(make: Make, ranks: int, how: dict[str, Any]) -> None:
    assert trained(make, ranks, **how) is gg.Verdict.REFINES


class Moved(Step):
    """The optimizer is made before the model is moved, which keeps its parameters."""

    def __init__(self, move: Callable[[nn.Module], nn.Module], mesh: Any) -> None:
        super().__init__(sgd, mesh)
        move(self.net)


@pytest.mark.parametrize("move", [lambda net: net.cuda(), lambda net: net.to("cuda").cpu()])
def test_a_model_that_is_moved_keeps_its_parameters(move: Callable[[nn.Module], nn.Module]) -> None:
    report = gg.verify(Step(sgd), lambda mesh: Moved(move, mesh), DATA, mesh={"dp": 2}, in_relations=(ROWS, ROWS))
    assert report.verdict is gg.Verdict.REFINES, report


@pytest.mark.parametrize(
    ("make", "how"),
    [
        (sgd, {"wrong": "clipped before"}),
        (adamw, {"wrong": "mean"}),
        (adamw, {"wrong": "parts", "parts": 2}),
        (sgd, {"wrong": "scale", "scale": 128.0}),
    ],
)
def test_wrong_steps(make: Make, how: dict[str, Any]) -> None:
    assert trained(make, 2, **how) is gg.Verdict.BROKEN


def clipped_to_norm(order: float, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """As PyTorch clips: the norm of the norms of all gradients."""
    total = nn.utils.get_total_norm(gradients, order)
    return tuple(gradient * (0.3 / (total + 1e-6)).clamp(max=1.0) for gradient in gradients)


def clipped_on_ranks(order: float, wrong: bool, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The rows of the first gradient are sharded, the second is whole on every rank."""
    split, whole = gradients
    if order == torch.inf:
        total = torch.maximum(split.max() if wrong else split.abs().max(), whole.abs().max())
        dist.all_reduce(total, op=dist.ReduceOp.MAX)
    else:
        total, rest = split.abs().pow(order).sum(), whole.abs().pow(order).sum()
        total += rest if wrong else 0
        dist.all_reduce(total)
        total = (total if wrong else total + rest) ** (1 / order)
    return tuple(gradient * (0.3 / (total + 1e-6)).clamp(max=1.0) for gradient in gradients)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, torch.inf])
@pytest.mark.parametrize("wrong", [False, True])
def test_norms_of_all_gradients(order: float, wrong: bool) -> None:
    report = gg.verify(
        partial(clipped_to_norm, order),
        lambda _: partial(clipped_on_ranks, order, wrong),
        (gg.tensor(6, 4), gg.tensor(5)),
        mesh={"dp": 2},
        in_relations=(ROWS, COPY),
        out_relations=(ROWS, COPY),
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES)


SIZES = (INPUTS * HIDDEN, HIDDEN * OUTPUTS)
State = tuple[torch.Tensor, torch.Tensor]


def adam(weights: torch.Tensor, gradient: torch.Tensor, state: State, decay: float = 0.01) -> tuple[torch.Tensor, ...]:
    """The third step with decoupled weight decay."""
    mean, square = 0.9 * state[0] + 0.1 * gradient, 0.99 * state[1] + 0.01 * gradient * gradient
    change = mean / (1 - 0.9**3) / ((square / (1 - 0.99**3)).sqrt() + 1e-8)
    return weights * (1 - 0.1 * decay) - 0.1 * change, mean, square


def flat_gradient(first: torch.Tensor, second: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    first, second = first.detach().requires_grad_(), second.detach().requires_grad_()
    loss = F.mse_loss(torch.tanh(x @ first) @ second, target)
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, [first, second])])


def clipped(gradient: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
    return gradient * (0.3 / (squares.sqrt() + 1e-6)).clamp(max=1.0)


def named(weights: torch.Tensor, mean: torch.Tensor, square: torch.Tensor) -> dict[str, torch.Tensor]:
    first, second = weights.split(SIZES)
    return {"first": first.view(INPUTS, -1), "second": second.view(HIDDEN, -1), "mean": mean, "square": square}


def whole_states(first: torch.Tensor, second: torch.Tensor, *rest: torch.Tensor) -> dict[str, torch.Tensor]:
    x, target, mean, square = rest
    gradient = flat_gradient(first, second, x, target)
    weights = torch.cat([first.flatten(), second.flatten()])
    return named(*adam(weights, clipped(gradient, gradient.pow(2).sum()), (mean, square)))


def sharded_states(mesh: Any, scattered: bool, wrong: str) -> Callable[..., dict[str, torch.Tensor]]:
    """ZeRO: a rank keeps its part of the states, and steps its part of the flat weights; stage 2 scatters the gradients as well."""

    def run(first: torch.Tensor, second: torch.Tensor, *rest: torch.Tensor) -> dict[str, torch.Tensor]:
        x, target, mean, square = rest
        ranks, rank, size = mesh.size(), mesh.get_local_rank("dp"), sum(SIZES) // mesh.size()
        part = slice(rank * size, (rank + 1) * size)
        gradient = flat_gradient(first, second, x, target) / ranks
        own = gradient.new_empty(size)
        if scattered:
            dist.reduce_scatter_tensor(own, gradient)
        else:
            dist.all_reduce(gradient)
            own = gradient[part]
        squares = own.pow(2).sum()
        if wrong != "norm":
            dist.all_reduce(squares)
        weights = torch.cat([first.flatten(), second.flatten()])[part]
        weights, *state = adam(weights, clipped(own, squares), (mean, square), decay=0.0 if wrong == "decay" else 0.01)
        out = weights.new_empty(sum(SIZES))
        dist.all_gather_into_tensor(out, weights)
        return named(out, *state)

    return run


@pytest.mark.parametrize(
    ("ranks", "scattered", "wrong"),
    [(2, False, ""), (4, False, ""), (2, True, ""), (4, True, ""), (2, True, "norm"), (2, True, "decay")],
)
def test_sharded_states(ranks: int, scattered: bool, wrong: str) -> None:
    state = gg.tensor(sum(SIZES))
    report = gg.verify(
        whole_states,
        lambda mesh: sharded_states(mesh, scattered, wrong),
        (gg.tensor(INPUTS, HIDDEN), gg.tensor(HIDDEN, OUTPUTS), *DATA, state, state),
        mesh={"dp": ranks},
        in_relations=(COPY, COPY, ROWS, ROWS, ROWS, ROWS),
        out_relations={"first": COPY, "second": COPY, "mean": ROWS, "square": ROWS},
    )
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES)


class Whole:
    """Loss and gradients of the whole batch at once."""

    def __init__(self) -> None:
        self.net = Net()

    def __call__(self, x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
        loss = F.mse_loss(self.net(x), target)
        loss.backward()
        return {"loss": loss.detach(), **{name: parameter.grad for name, parameter in self.net.named_parameters()}}


class Pipeline:
    """One layer on each of two ranks; micro-batches go forward, and their gradients back."""

    def __init__(self, mesh: Any, count: int, wrong: str) -> None:
        self.count, self.wrong, self.first = count, wrong, mesh.get_local_rank("pp") == 0
        self.net = Net()

    def gradients(self) -> dict[str, Any]:
        named = self.net.named_parameters()
        return {name: parameter.grad for name, parameter in named if parameter.grad is not None}

    def forth(self, x: torch.Tensor) -> torch.Tensor:
        results = [torch.relu(self.net.first(rows)) for rows in x.chunk(self.count)]
        for result in results:
            dist.send(result.detach(), 1)
        for result in reversed(results) if self.wrong == "order" else results:
            gradient = torch.empty_like(result)
            dist.recv(gradient, 1)
            result.backward(gradient)
        return torch.zeros(())

    def back(self, target: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        received = []
        for rows in target.chunk(self.count):
            received.append(torch.empty(rows.shape[0], HIDDEN))
            dist.recv(received[-1], 0)
        for x, rows in zip(received, target.chunk(self.count), strict=True):
            x.requires_grad_()
            loss = F.mse_loss(self.net.second(x), rows) / (1 if self.wrong == "mean" else self.count)
            loss.backward()
            dist.send(x.grad, 0)
            total = total + loss.detach()
        return total

    def __call__(self, x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
        loss = self.forth(x) if self.first else self.back(target)
        dist.broadcast(loss, 1)
        return {"loss": loss, **self.gradients()}


@pytest.mark.parametrize(("count", "wrong"), [(2, ""), (4, ""), (2, "order"), (4, "mean")])
def test_pipelines(count: int, wrong: str) -> None:
    report = gg.verify(Whole(), lambda mesh: Pipeline(mesh, count, wrong), DATA, mesh={"pp": 2})
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES)


def gradients(scale: bool, unscale: bool = True, group: Any = None) -> Callable[..., dict[str, torch.Tensor]]:
    """Gradients of a mean; scaled by a scaler for CUDA, without which PyTorch would scale nothing, and unscaled again."""
    net = Net()

    def run(x: torch.Tensor, _: torch.Tensor) -> dict[str, torch.Tensor]:
        scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
        loss = net(x).square().mean()
        (scaler.scale(loss) if scale else loss).backward()
        found = {}
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            found[name] = parameter.grad / scaler.get_scale() if scale and unscale else parameter.grad
            if group is not None:
                dist.all_reduce(found[name], op=dist.ReduceOp.AVG, group=group)
        return found

    return run


@pytest.mark.parametrize(("unscale", "wanted"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_losses_are_scaled_for_cuda(unscale: bool, wanted: gg.Verdict) -> None:
    result = gg.verify(
        gradients(scale=False),
        lambda mesh: gradients(scale=True, unscale=unscale, group=mesh.get_group("dp")),
        DATA,
        mesh={"dp": 2},
        in_relations=ROWS,
        out_relations=COPY,
    )
    assert result.verdict is wanted, result


@pytest.mark.parametrize(
    "hook",
    [
        default_hooks.fp16_compress_hook,
        default_hooks.bf16_compress_hook,  # which PyTorch takes where there is CUDA
        default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
    ],
)
def test_gradients_that_are_compressed_on_their_way(hook: Any) -> None:
    def step(net: nn.Module) -> Callable[..., dict[str, Any]]:
        def run(x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
            F.mse_loss(net(x), target).backward()
            return {name.removeprefix("module."): p.grad for name, p in net.named_parameters()}

        return run

    def parallel(_: Any) -> Callable[..., dict[str, Any]]:
        net = nn.parallel.DistributedDataParallel(Net())
        net.register_comm_hook(dist.group.WORLD, hook)
        return step(net)

    found = gg.verify(step(Net()), parallel, DATA, mesh={"dp": 2}, in_relations=ROWS, out_relations="replicate")
    assert found.verdict is gg.Verdict.BROKEN
    assert {one.code for one in found.diagnostics} == {"lower-precision"}, found.diagnostics


def test_an_optimizer_with_states_writes_nothing_into_texts() -> None:
    """What a step closes over is named, keys of states among it, which are tensors."""

    def step(net: nn.Module) -> Callable[..., dict[str, Any]]:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for parameter in net.parameters():
            optimizer.state[parameter]["mine"] = True

        def run(x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
            F.mse_loss(net(x), target).backward()
            optimizer.step()
            return dict(net.named_parameters())

        return run

    found = gg.verify(step(Net()), lambda _: step(Net()), DATA, mesh={"dp": 2}, out_relations="replicate")
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
    assert not [one for one in found.assumed if "texts" in one]
