"""Checks of several layers, recorded as the product does it, with copies and without: ``python -m tests.unit.trace.copied_checks`` prints what came of each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from graphguard.ir import Capture, CheckRef
from graphguard.ir.spans import Span
from graphguard.trace.claims.api import Refinement, tensor
from graphguard.trace.process.limits import Limits
from graphguard.trace.programs import ranks
from graphguard.trace.programs.job import Job, Recorded
from graphguard.trace.worlds.world import warm
from tests.unit.trace.layered import DIM, TOKENS, Copy, Numbered, PreNorm, Reduce, Stack


class Parallel(nn.Module):
    """A layer cut by columns and rows, or (no group) whole."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group
        width = 2 * DIM // (1 if group is None else group.size())
        self.norm = nn.LayerNorm(DIM)
        self.up, self.down = nn.Linear(DIM, width, bias=False), nn.Linear(width, DIM, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        if self.group is None:
            return x + self.down(torch.relu(self.up(y)))
        y = Copy.apply(y, self.group)
        return x + Reduce.apply(self.down(torch.relu(self.up(y))), self.group)


class Adding(Stack):
    """Adds to what its layers return, in place: nobody knows beforehand that it will."""

    def forward(self, x: torch.Tensor, *rest: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *rest)
            x += 1
        return x


class Catching(Stack):
    """Differentiates by itself, twice, and catches whatever is raised."""

    def forward(self, x: torch.Tensor, *rest: Any) -> Any:
        y = super().forward(x, *rest)
        try:
            (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        except BaseException:  # noqa: BLE001 - the very point
            return y
        return y * grad.sum()


def parallel(mesh: Any) -> Refinement:
    group = mesh.get_group("tp")
    layers = Stack(*(Parallel() for _ in range(5))), Stack(*(Parallel(group) for _ in range(5)))
    return Refinement(*layers, inputs=(tensor(2, TOKENS, DIM),))


def plain(stack: Callable[..., nn.Module], layer: Callable[[], nn.Module]) -> Callable[[Any], Refinement]:
    def build(_: Any) -> Refinement:
        models = [stack(*(layer() for _ in range(5))) for _ in range(2)]
        return Refinement(*models, inputs=(tensor(2, TOKENS, DIM),))

    return build


class Watch:
    """What was recorded, round by round."""

    def __init__(self) -> None:
        self.rounds: list[list[Recorded]] = []
        usual = ranks.rounds

        def rounds(run: Any, size: int) -> Any:
            found = usual(run, size)
            self.rounds.append([run.__self__.specification, *found])
            return found

        ranks.rounds = rounds

    def copied(self) -> list[list[int]]:
        """How many layers of each program were copied, in each round."""
        return [[0 if one.trace is None else len(one.trace.copied) for one in found] for found in self.rounds]


def capture(build: Callable[[Any], Refinement], *, copies: bool) -> Capture:
    check = CheckRef("check.py::check", "check", Span("check.py", 1))
    job = Job(build, {"tp": 2}, check, ".", Limits(), time.monotonic(), copies=copies)
    return replace(ranks.record(job, lambda _: None)[0], seconds={})


CASES = {
    "parallel": parallel,
    "changed in place": plain(Adding, lambda: Numbered(0)),
    "catching": plain(Catching, PreNorm),
}


def main() -> None:
    """Print, for every case, how many layers of each program were copied in each round, and whether the capture is the one without copies."""
    warm()
    ranks.settle()
    watch = Watch()
    told = {}
    for name, build in CASES.items():
        watch.rounds.clear()
        found = capture(build, copies=True)
        copied = watch.copied()
        assert found.spec is not None, found.troubles
        told[name] = {"copied": copied, "same": repr(found) == repr(capture(build, copies=False))}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
