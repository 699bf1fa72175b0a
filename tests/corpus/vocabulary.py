"""What the sketches of ``cases.jsonl`` may call: collectives on real ``torch.distributed``, raw and differentiable."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

CASES = Path(__file__).with_name("cases.jsonl")
_REDUCTIONS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
Group = Sequence[int] | None


def members(group: Group) -> tuple[int, ...]:
    """Global ranks of a group; None is the world."""
    return tuple(range(dist.get_world_size())) if group is None else tuple(group)


_groups: dict[tuple[int, tuple[int, ...]], dist.ProcessGroup] = {}


def process_group(group: Group) -> dist.ProcessGroup:
    """The process group of a list of ranks, made once per world."""
    if group is None:
        return dist.group.WORLD
    key = (id(dist.group.WORLD), tuple(group))
    if key not in _groups:
        _groups[key] = dist.new_group(list(group), use_local_synchronization=True)
    return _groups[key]


def place(group: Group) -> tuple[int, int]:
    """This rank's position in a group, and the group's size."""
    ranks = members(group)
    return ranks.index(dist.get_rank()), len(ranks)


# -- raw collectives: no gradient flows through them


def all_reduce(t: torch.Tensor, op: str = "sum", group: Group = None) -> torch.Tensor:
    out = t.detach().clone().contiguous()
    dist.all_reduce(out, op=_REDUCTIONS[op], group=process_group(group))
    return out / len(members(group)) if op == "mean" else out


def all_gather_list(t: torch.Tensor, group: Group = None) -> list[torch.Tensor]:
    t = t.detach().contiguous()
    parts = [torch.empty_like(t) for _ in members(group)]
    dist.all_gather(parts, t, group=process_group(group))
    return parts


def all_gather(t: torch.Tensor, dim: int = 0, group: Group = None) -> torch.Tensor:
    return torch.cat(all_gather_list(t, group), dim)


def reduce_scatter(t: torch.Tensor, dim: int = 0, op: str = "sum", group: Group = None) -> torch.Tensor:
    me, size = place(group)
    return all_reduce(t, op, group).chunk(size, dim)[me].clone()


def all_to_all(t: torch.Tensor, scatter: int, gather: int, group: Group = None) -> torch.Tensor:
    me, size = place(group)
    return torch.cat([part.chunk(size, scatter)[me] for part in all_gather_list(t, group)], gather)


def broadcast(t: torch.Tensor, src: int = 0, group: Group = None) -> torch.Tensor:
    out = t.detach().clone().contiguous()
    dist.broadcast(out, src=members(group)[src], group=process_group(group))
    return out


def shard(t: torch.Tensor, dim: int, r: int | None = None, R: int | None = None) -> torch.Tensor:
    r = dist.get_rank() if r is None else r
    R = dist.get_world_size() if R is None else R
    return t.chunk(R, dim)[r].clone()


def leaf(t: torch.Tensor) -> torch.Tensor:
    return t.detach().clone().requires_grad_(True)


def grad(loss: torch.Tensor, *parameters: torch.Tensor) -> Any:
    """Gradients, zero where there are none; a single one stands alone."""
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    found = tuple(torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True))
    return found[0] if len(found) == 1 else found


# -- differentiable collectives, each with its stated backward


def _pair(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """An autograd function of one tensor from its forward and its backward, which take the same further arguments."""

    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *rest):
            ctx.rest = rest
            return forward(x, *rest)

        @staticmethod
        def backward(ctx, d):
            return (backward(d, *ctx.rest), *(None for _ in ctx.rest))

    return Pair.apply


def _split(d: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    me, size = place(group)
    return d.chunk(size, dim)[me].clone()


_copy = _pair(lambda x, g: x.clone(), lambda d, g: all_reduce(d, group=g))
_reduce = _pair(lambda x, g: all_reduce(x, group=g), lambda d, g: d.clone())
_all_reduce_both = _pair(lambda x, g: all_reduce(x, group=g), lambda d, g: all_reduce(d, group=g))
_gather_reduce = _pair(lambda x, dim, g: all_gather(x, dim, g), lambda d, dim, g: reduce_scatter(d, dim, group=g))
_gather_split = _pair(lambda x, dim, g: all_gather(x, dim, g), _split)
_scatter = _pair(_split, lambda d, dim, g: all_gather(d, dim, g))
_reduce_scatter = _pair(lambda x, dim, g: reduce_scatter(x, dim, group=g), lambda d, dim, g: all_gather(d, dim, g))

VOCABULARY: dict[str, Any] = {
    "torch": torch,
    "F": torch.nn.functional,
    "AR": all_reduce,
    "AG": all_gather,
    "AGL": all_gather_list,
    "RS": reduce_scatter,
    "A2A": all_to_all,
    "BC": broadcast,
    "shard": shard,
    "leaf": leaf,
    "grad": grad,
    "f_copy": lambda x, group=None: _copy(x, group),
    "f_reduce": lambda x, group=None: _reduce(x, group),
    "f_ar_nn": lambda x, group=None: _all_reduce_both(x, group),
    "f_gather": lambda x, dim=0, bwd="rs", group=None: (_gather_reduce if bwd == "rs" else _gather_split)(
        x, dim, group
    ),
    "f_scatter": lambda x, dim=0, group=None: _scatter(x, dim, group),
    "f_rs": lambda x, dim=0, group=None: _reduce_scatter(x, dim, group),
}


@dataclass(frozen=True)
class Case:
    """One record as functions of the same whole inputs; ``buggy`` and ``fixed`` are what every rank runs."""

    id: str
    control: bool
    world: int
    promise: tuple[str, ...]
    inputs: tuple[torch.Tensor, ...]
    spec: Callable[..., Any]
    buggy: Callable[..., Any]
    fixed: Callable[..., Any]

    def promises(self, outputs: int) -> tuple[str, ...]:
        """What is promised of each of a number of outputs."""
        return self.promise * outputs if len(self.promise) == 1 else self.promise


class _in_double:
    def __enter__(self):
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_):
        torch.set_default_dtype(self.before)


def load(record: dict[str, Any]) -> Case:
    """A record's functions; needs no process group until a rank's program runs."""
    generator = torch.Generator().manual_seed(7)
    made: list[torch.Tensor] = []

    def rnd(*shape: int) -> torch.Tensor:
        made.append(torch.randn(*shape, generator=generator, dtype=torch.float64))
        return made[-1]

    space: dict[str, Any] = {**VOCABULARY, "rnd": rnd}
    with _in_double():
        exec(compile(record["sketch"], f"{record['id']}.py", "exec"), space)
    names = [next(name for name, value in space.items() if value is tensor) for tensor in made]

    def bound(call: Callable[[], Any]) -> Callable[..., Any]:
        def run(*inputs: torch.Tensor) -> Any:
            space.update(zip(names, inputs, strict=True))
            with _in_double():
                return call()

        return run

    def rank_program(fixed: bool) -> Callable[..., Any]:
        return bound(lambda: space["rank"](dist.get_rank(), dist.get_world_size(), fixed))

    return Case(
        id=record["id"],
        control=record["kind"] == "control",
        world=record["world"],
        promise=tuple(record["promise"].split(",")),
        inputs=tuple(made),
        spec=bound(lambda: space["seq"]()),
        buggy=rank_program(False),
        fixed=rank_program(True),
    )


def records() -> list[dict[str, Any]]:
    """Every record, in file order."""
    return [json.loads(line) for line in CASES.read_text().splitlines()]
