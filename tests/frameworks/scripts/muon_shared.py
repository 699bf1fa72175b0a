"""In modded-nanogpt's manner: gradients averaged by hand, Muon whose updates the ranks share out, micro-batches of tokens from each rank's own place."""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

BATCH, ROWS, LENGTH, VOCABULARY, WIDTH = 4, 2, 4, 16, 8


def orthogonal(update: torch.Tensor, steps: int = 1) -> torch.Tensor:
    """Newton-Schulz iterations towards the nearest orthogonal matrix."""
    update = update / (update.norm() + 1e-7)
    for _ in range(steps):
        square = update @ update.T
        update = 3.4445 * update + (-4.7750 * square + 2.0315 * square @ square) @ update
    return update


class Muon(torch.optim.Optimizer):
    """Every rank works out the updates of its own parameters, and all of them gather the results."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(list(parameters), {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        for group in self.param_groups:
            parameters = group["params"]
            for first in range(0, len(parameters), world):
                several = parameters[first : first + world]
                updates = [torch.zeros_like(one) for one in several]
                if rank < len(several):
                    own = several[rank]
                    updates[rank] = orthogonal(own.grad)
                for place, update in enumerate(updates):
                    dist.broadcast(update, src=place)
                    several[place].add_(update, alpha=-group["lr"])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.up = nn.Linear(WIDTH, WIDTH, bias=False)
        self.down = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        hidden = hidden + self.down(functional.relu(self.up(hidden)).square())
        logits = hidden @ self.embedding.weight.T
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def batches(rank: int, world: int):
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, 400)
    place = rank * ROWS * LENGTH
    while True:
        part = tokens[place : place + ROWS * LENGTH + 1]
        inputs, targets = torch.from_numpy(part[:-1].copy()), torch.from_numpy(part[1:].copy())
        yield inputs.view(ROWS, LENGTH), targets.view(ROWS, LENGTH)
        place += world * ROWS * LENGTH


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Model()
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), 0)
    adam = torch.optim.Adam(model.embedding.parameters(), lr=1e-3)
    muon = Muon([model.up.weight, model.down.weight], lr=0.02)
    accumulated = BATCH // (ROWS * world)
    loader = batches(rank, world)
    for _ in range(4):
        for _ in range(accumulated):
            inputs, targets = next(loader)
            (model(inputs, targets) / accumulated).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        for optimizer in (adam, muon):
            optimizer.step()
        model.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
