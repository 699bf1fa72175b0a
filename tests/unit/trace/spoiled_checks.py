"""Checks whose ranks are alike but for what spoils that, each on a mesh of more ranks than are all recorded."""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg

RANKS = 18
Check = Callable[[Any], Any]


class Whole(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


Spoils = Callable[[torch.Tensor, Any, int], torch.Tensor]


class Columns(nn.Module):
    """Columns of the weight on every rank, as many as ``sizes`` says; ``spoil`` makes ranks differ."""

    def __init__(self, mesh: Any, sizes: list[int], spoil: Spoils) -> None:
        super().__init__()
        self.rank, self.group, self.sizes, self.spoil = mesh.get_local_rank("tp"), mesh.get_group("tp"), sizes, spoil
        self.weight = nn.Parameter(torch.empty(3, sizes[self.rank]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.spoil(x @ self.weight, self.rank, len(self.sizes))
        parts = [x.new_empty(x.shape[0], size) for size in self.sizes]
        dist.all_gather(parts, y.contiguous(), group=self.group)
        return torch.cat(parts, 1)


def columns(spoil: Spoils, width: int = 2, short: int = 0) -> Check:
    def load(spec: dict[str, torch.Tensor], impl: nn.Module, mesh: Any) -> None:
        parts = list(spec["weight"].chunk(mesh.size(), 1))
        parts += [spec["weight"][:, :0]] * (mesh.size() - len(parts))
        with torch.no_grad():
            impl.weight.copy_(parts[mesh.get_local_rank("tp")])  # type: ignore[operator, union-attr]

    def check(mesh: Any) -> Any:
        total = width * mesh.size() - short
        sizes = [len(part) for part in torch.arange(total).chunk(mesh.size())]
        sizes += [0] * (mesh.size() - len(sizes))
        inputs = (gg.tensor(2, 3),)
        return gg.Refinement(Whole(total), Columns(mesh, sizes, spoil), inputs, grads=False, load=load)

    return check


ODD = 7
TABLE = [3.0 if rank == ODD else 1.0 for rank in range(64)]


def exchanged(y: torch.Tensor, rank: Any, _: int) -> torch.Tensor:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, 3 if rank == ODD else 1)
    return y * sum(found)


def by_parity(y: torch.Tensor, rank: Any, size: int) -> torch.Tensor:
    groups = [dist.new_group(list(range(start, size, 2))) for start in (0, 1)]
    z = y.detach().clone()
    dist.all_reduce(z, group=groups[rank % 2])
    return y + 0 * z


def odd_part(y: torch.Tensor, rank: Any, size: int) -> torch.Tensor:
    parts = [torch.ones(1) for _ in range(size)]
    parts[ODD] = parts[ODD] * 2
    return y * parts[rank]


def written_part(y: torch.Tensor, rank: Any, size: int) -> torch.Tensor:
    factors = torch.ones(size)
    factors[ODD] = 2.0
    return y * factors.chunk(size)[rank]


def written_in_place(y: torch.Tensor, rank: Any, size: int) -> torch.Tensor:
    """One element of a table is another on every rank, and one of these is read."""
    table = torch.zeros(size).scatter_(0, torch.tensor([rank]), 1.0)
    return y * (2 if table[ODD].item() else 1)


def part_that_is_read(y: torch.Tensor, rank: Any, size: int) -> torch.Tensor:
    """Ranks take parts of a table that came about in one way, and are told apart by the number in each."""
    return y * 2 if torch.arange(size).chunk(size)[rank].item() == ODD else y


SPOILS: dict[str, tuple[Spoils, int]] = {
    "one rank doubles": (lambda y, rank, _: y * 2 if rank == ODD else y, RANKS - 1),
    "one rank halves": (lambda y, rank, size: y * 0.5 if rank == size // 2 else y, RANKS - 1),
    "half of the ranks": (lambda y, rank, size: y * 2 if rank >= size // 2 else y, RANKS - 1),
    "every other rank": (lambda y, rank, _: y * 2 if rank % 2 == 0 else y, RANKS - 1),
    "a list by rank": (lambda y, rank, _: y * TABLE[rank], RANKS),
    "a list in a call": (lambda y, rank, _: y * list(TABLE)[rank], RANKS),
    "a dict by rank": (lambda y, rank, _: y * dict(enumerate(TABLE))[rank], RANKS),
    "a set of ranks": (lambda y, rank, _: y * 2 if rank in {ODD} else y, RANKS),
    "a table that is a tensor": (lambda y, rank, _: y * torch.tensor(TABLE)[rank].item(), RANKS),
    "text": (lambda y, rank, _: y * 2 if f"rank {rank}" == f"rank {ODD}" else y, RANKS),
    "the environment": (lambda y, _, __: y * 2 if os.environ["RANK"] == str(ODD) else y, RANKS),
    "a range": (lambda y, rank, _: y * 2 if ODD in range(rank, rank + 1) else y, RANKS),
    "a square": (lambda y, rank, _: y * (rank * rank), RANKS),
    "one part of a list": (odd_part, RANKS),
    "one part that is written": (written_part, RANKS),
    "a table that is written in place": (written_in_place, RANKS),
    "a part whose number is read": (part_that_is_read, RANKS),
    "objects of other ranks": (exchanged, RANKS),
    "groups by parity": (by_parity, RANKS - 1),
}


def failing(mesh: Any) -> Any:
    if mesh.get_local_rank("tp") == ODD:
        raise ValueError("not on this rank")
    return columns(as_it_is)(mesh)


def as_it_is(y: torch.Tensor, *_: Any) -> torch.Tensor:
    return y


CHECKS: dict[str, Check] = {
    "alike": columns(as_it_is),
    "failing": failing,
    **{f"short by {short}": columns(as_it_is, 3, short) for short in (1, 4, 5)},
    **{name: columns(spoil) for name, (spoil, _) in SPOILS.items()},
}
NAMES = {name: "check_" + name.replace(" ", "_") for name in CHECKS}
for _name, _check in CHECKS.items():
    globals()[NAMES[_name]] = gg.check(mesh={"tp": RANKS})(_check)
