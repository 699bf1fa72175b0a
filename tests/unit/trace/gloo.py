"""Runs every snippet on real gloo processes; started as a program, one process for each rank, results in files."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from snippets import SNIPPETS, W


def main(rank: int, folder: Path) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=W)
    results = {}
    for name, program in SNIPPETS.items():
        x = inputs(rank).requires_grad_()
        try:
            y = program(x)
        except (RuntimeError, ValueError) as error:
            results[name] = repr(error)  # what gloo itself lacks is the same on every rank
            continue
        grad = None
        if y.requires_grad:
            with contextlib.suppress(RuntimeError):  # some backwards of PyTorch's own raise, on every rank
                (grad,) = torch.autograd.grad(y.sum(), x)
        results[name] = (y.detach(), grad)
        dist.barrier()
    torch.save(results, folder / f"{rank}.pt")
    (folder / f"{rank}.done").touch()
    while len(list(folder.glob("*.done"))) < W:  # leaving early would break the others' connections
        time.sleep(0.05)
    os._exit(0)


def inputs(rank: int) -> torch.Tensor:
    """What a rank starts from; all ranks of a check share the leaf, so its part is cut out of one table."""
    return table()[rank]


def table() -> torch.Tensor:
    """Small whole numbers, so that the order of a sum over ranks, which is gloo's own business, does not matter."""
    return torch.randint(-9, 9, (W, 8, 4), generator=torch.Generator().manual_seed(3)).float()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
