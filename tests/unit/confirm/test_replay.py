"""Every collective on numbers, by its definition."""

from __future__ import annotations

import pytest
import torch

from graphguard.confirm.run.elements import UnrunnableError
from graphguard.confirm.run.replay import run_ranks
from graphguard.ir import Graph, Var
from graphguard.ir.building import Builder
from graphguard.ir.joining import join

WORLD = (0, 1)
F32 = ((2,), "float32")
X = torch.arange(4, dtype=torch.float64)  # rank 0 holds 0, 1 and rank 1 holds 2, 3


def own(b: Builder, rank: int) -> Var:
    return b.call("aten.slice.Tensor", b.input("x", (4,)), 0, 2 * rank, 2 * rank + 2, out=F32)


def run(build) -> list[list[float]]:
    """What each rank has in 'out' after ``build(builder, rank, own tensor)``."""
    graphs: list[Graph] = []
    for rank in WORLD:
        b = Builder()
        b.outputs["out"] = build(b, rank, own(b, rank))
        graphs.append(b.graph())
    values = run_ranks(join(tuple(graphs)), graphs, {"x": X})
    return [found[graph.outputs["out"]].reshape(-1).tolist() for graph, found in zip(graphs, values, strict=True)]


def joined(b: Builder, count: int) -> Var:
    return b.call("aten.cat.default", b.nodes[-1].outs, 0, out=((2 * count,), "float32"))


def listed(op: str, *more):
    """A collective of a list: each member's two tensors are its own and ten times that."""

    def build(b: Builder, _: int, x: Var) -> Var:
        ten = b.call("aten.mul.Scalar", x, 10.0, out=F32)
        many = op == "gg.all_to_all"
        b.call(op, (x, ten), *more, WORLD, out=[F32, F32] if many else [F32])
        return joined(b, 2) if many else b.nodes[-1].outs[0]

    return build


def gathered(b: Builder, _: int, x: Var) -> Var:
    b.call("gg.all_gather", x, WORLD, out=[F32, F32])
    return joined(b, 2)


def sent(b: Builder, rank: int, x: Var) -> Var:
    if rank == 0:
        b.call("gg.send", x, 1, 7, WORLD, out=[])
        return x
    return b.call("gg.recv", 0, 7, WORLD, out=F32)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda b, _, x: b.call("gg.all_reduce", x, "sum", WORLD, out=F32), [[2, 4], [2, 4]]),
        (lambda b, _, x: b.call("gg.all_reduce", x, "avg", WORLD, out=F32), [[1, 2], [1, 2]]),
        (lambda b, _, x: b.call("gg.all_reduce", x, "max", WORLD, out=F32), [[2, 3], [2, 3]]),
        (lambda b, _, x: b.call("gg.all_reduce", x, "min", WORLD, out=F32), [[0, 1], [0, 1]]),
        (lambda b, _, x: b.call("gg.all_reduce", x, "product", WORLD, out=F32), [[0, 3], [0, 3]]),
        (lambda b, _, x: b.call("gg.broadcast", x, 1, WORLD, out=F32), [[2, 3], [2, 3]]),
        (lambda b, _, x: b.call("gg.reduce", x, 1, "sum", WORLD, out=F32), [[0, 1], [2, 4]]),
        (gathered, [[0, 1, 2, 3], [0, 1, 2, 3]]),
        (listed("gg.reduce_scatter", "sum"), [[2, 4], [20, 40]]),
        (listed("gg.all_to_all"), [[0, 1, 2, 3], [0, 10, 20, 30]]),
        (listed("gg.scatter", 1), [[2, 3], [20, 30]]),
        (sent, [[0, 1], [0, 1]]),
    ],
)
def test_collective(build, expected):
    assert run(build) == expected


def test_ranks_that_wait_for_each_other_for_ever_are_not_run():
    def half(b: Builder, rank: int, x: Var) -> Var:
        return b.call("gg.all_reduce", x, "sum", WORLD, out=F32) if rank == 0 else x

    with pytest.raises(UnrunnableError, match="rank 0 waits"):
        run(half)
