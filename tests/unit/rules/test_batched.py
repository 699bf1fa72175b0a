"""What a rule gives for a part of its operands is that part of what it gives for the whole: along every dim that it acts on position by position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from graphguard.ir import Graph, Node, TensorType, Var
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import evaluate_node


@dataclass(frozen=True)
class Operand:
    """A float tensor, or integers below ``high``; cut along ``dim`` (None: the same for every part)."""

    shape: tuple[int, ...]
    dim: int | None
    high: int | None = None


@dataclass(frozen=True)
class Case:
    """A call whose results are cut along dims ``out``, one per result."""

    op: str
    args: tuple[Any, ...]
    shapes: tuple[tuple[int, ...], ...]
    out: tuple[int, ...]
    integers: tuple[int, ...] = ()


def t(*shape: int, cut: int | None = 0, high: int | None = None) -> Operand:
    return Operand(shape, cut, high)


CASES = [
    # closed functions of a line, batched over the rest
    Case("aten.topk.default", (t(6, 5), 2), ((6, 2), (6, 2)), (0, 0), (1,)),
    Case("aten.sort.default", (t(3, 6, 5, cut=1),), ((3, 6, 5), (3, 6, 5)), (1, 1), (1,)),
    Case("aten.argmax.default", (t(6, 5), 1), ((6,),), (0,), (0,)),
    Case("aten.max.dim", (t(6, 5), 1), ((6,), (6,)), (0, 0), (1,)),
    Case("aten.cumprod.default", (t(5, 6, cut=1), 0), ((5, 6),), (1,)),
    Case("aten.median.dim", (t(6, 5), 1), ((6,), (6,)), (0, 0), (1,)),
    Case("aten.cummax.default", (t(6, 5), 1), ((6, 5), (6, 5)), (0, 0), (1,)),
    Case("aten.cummax.default", (t(70, 6, cut=1), 0), ((70, 6), (70, 6)), (1, 1), (1,)),
    Case("aten.bucketize.Tensor", (t(6, 5), t(4, cut=None)), ((6, 5),), (0,), (0,)),
    Case("aten.linalg_inv_ex.default", (t(6, 3, 3),), ((6, 3, 3), (6,)), (0, 0)),
    Case("aten.cdist.default", (t(6, 5), t(4, 5, cut=None)), ((6, 4),), (0,)),
    Case("aten.cdist.default", (t(4, 5, cut=None), t(6, 5)), ((4, 6),), (1,)),
    Case("aten.max_pool2d_with_indices.default", (t(6, 2, 4, 4), [2, 2]), ((6, 2, 2, 2), (6, 2, 2, 2)), (0, 0), (1,)),
    Case("aten.scatter.src", (t(6, 5), 1, t(6, 2, high=5), t(6, 2)), ((6, 5),), (0,)),
    # written out
    Case("aten._softmax.default", (t(6, 5), 1, False), ((6, 5),), (0,)),
    Case("aten._log_softmax.default", (t(3, 5, 6, cut=2), 1, False), ((3, 5, 6),), (2,)),
    Case("aten.cumsum.default", (t(5, 6, cut=1), 0), ((5, 6),), (1,)),
    Case("aten.mm.default", (t(6, 5), t(5, 4, cut=None)), ((6, 4),), (0,)),
    Case("aten.mm.default", (t(4, 5, cut=None), t(5, 6, cut=1)), ((4, 6),), (1,)),
    Case("aten.linear.default", (t(2, 3, 4, cut=None), t(6, 4), t(6)), ((2, 3, 6),), (2,)),
    Case("aten.embedding.default", (t(5, 6, cut=1), t(2, 3, cut=None, high=5)), ((2, 3, 6),), (2,)),
    Case("aten.embedding.default", (t(5, 4, cut=None), t(6, 3, high=5)), ((6, 3, 4),), (0,)),
    Case("aten.gather.default", (t(6, 5), 1, t(6, 2, high=5)), ((6, 2),), (0,)),
    Case(
        "aten.native_layer_norm.default",
        (t(6, 5), [5], t(5, cut=None), None, 1e-5),
        ((6, 5), (6, 1), (6, 1)),
        (0, 0, 0),
    ),
    Case(
        "aten.native_group_norm.default",
        (t(6, 4, 3), None, None, 6, 4, 3, 2, 1e-5),
        ((6, 4, 3), (6, 2), (6, 2)),
        (0, 0, 0),
    ),
    Case(
        "aten.convolution.default",
        (t(6, 3, 8), t(4, 3, 3, cut=None), None, [1], [1], [1], False, [0], 1),
        ((6, 4, 8),),
        (0,),
    ),
    Case(
        "aten.convolution.default",
        (t(2, 3, 8, cut=None), t(6, 3, 3), t(6), [1], [1], [1], False, [0], 1),
        ((2, 6, 8),),
        (1,),
    ),
    Case(
        "aten.convolution.default",
        (t(6, 3, 5, 5), t(4, 3, 3, 3, cut=None), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        ((6, 4, 5, 5),),
        (0,),
    ),
    Case("aten.avg_pool2d.default", (t(6, 2, 4, 4), [2, 2]), ((6, 2, 2, 2),), (0,)),
    Case("aten.upsample_bilinear2d.default", (t(2, 6, 3, 3, cut=1), [5, 4], False), ((2, 6, 5, 4),), (1,)),
    Case("gg.sdpa", (t(6, 2, 3, 4), t(6, 2, 3, 4), t(6, 2, 3, 4), None, 0.0, True), ((6, 2, 3, 4),), (0,)),
    Case("gg.sdpa", (t(2, 6, 3, 4, cut=1), t(2, 6, 5, 4, cut=1), t(2, 6, 5, 4, cut=1)), ((2, 6, 3, 4),), (1,)),
    Case("gg.sdpa", (t(2, 2, 6, 4, cut=2), t(2, 2, 5, 4, cut=None), t(2, 2, 5, 4, cut=None)), ((2, 2, 6, 4),), (2,)),
]


ONE = slice(3, 4)


def _cut(algebra: NormalForm, v: NormalValue, dim: int | None, part: slice) -> NormalValue:
    return v if dim is None else algebra.slice(v, dim, part.start, part.stop)


def _shape(shape: tuple[int, ...], dim: int | None, part: slice | None) -> tuple[int, ...]:
    if dim is None or part is None:
        return shape
    return (*shape[:dim], part.stop - part.start, *shape[dim + 1 :])


def _evaluate(algebra: NormalForm, case: Case, part: slice | None) -> tuple[NormalValue, ...]:
    types: dict[Var, TensorType] = {}
    values: dict[Var, NormalValue] = {}
    args: list[Any] = []
    for place, arg in enumerate(case.args):
        if not isinstance(arg, Operand):
            args.append(tuple(arg) if isinstance(arg, list) else arg)
            continue
        var = Var(place)
        kind = "float" if arg.high is None else "int"
        leaf = algebra.leaf(f"x{place}", arg.shape, kind, None if arg.high is None else 0, arg.high)
        values[var] = leaf if part is None else _cut(algebra, leaf, arg.dim, part)
        types[var] = TensorType(values[var].shape, "float64" if arg.high is None else "int64")
        args.append(var)
    if case.op == "aten.native_group_norm.default" and part is not None:
        args[3] = part.stop - part.start
    outs = []
    for index, shape in enumerate(case.shapes):
        outs.append(Var(100 + index))
        types[outs[-1]] = TensorType(
            _shape(shape, case.out[index], part), "int64" if index in case.integers else "float64"
        )
    node = Node(case.op, tuple(args), {}, tuple(outs))
    notes: list[str] = []
    results = evaluate_node(algebra, node, Graph({}, {}, (node,), types, {}), values, notes.append)
    assert notes == []
    return results


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case.op}" for i, case in enumerate(CASES)])
@pytest.mark.parametrize("part", [slice(0, 2), slice(2, 6), ONE], ids=["first", "rest", "one"])
def test_part(case: Case, part: slice) -> None:
    algebra = NormalForm()
    whole = _evaluate(algebra, case, None)
    algebra.universe.specifying = False  # kernels of parts are matched against those of the whole, as a rank's are
    of_part = _evaluate(algebra, case, part)
    same = [
        equal(algebra.universe, value, _cut(algebra, wanted, dim, part))
        for value, wanted, dim in zip(of_part, whole, case.out, strict=True)
    ]
    assert all(same)
