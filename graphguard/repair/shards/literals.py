"""Tensors that are written down as numbers, by which every rank has those of the specification's first part: slopes or decays of the first heads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from graphguard.ir import Graph, Node, TensorType, Var
from graphguard.ir.graph import Constant, DType
from graphguard.ops import aten
from graphguard.refine.stages.constants import elements
from graphguard.repair.graph.editing import fresh, renamed
from graphguard.repair.graph.edits import OtherCalls
from graphguard.repair.graph.neighbours import Guess, Neighbours

_RULE: Final = "wrong-shard"
_COST: Final = 1
_ELEMENTS: Final = 64  # of a literal that is looked at
_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
_SHOWN: Final = 3  # numbers that are told


def literals(around: Neighbours) -> Iterator[Guess]:
    """A guess for each literal that all ranks have alike, and that is the first part of one of the specification's along a dim."""
    capture = around.capture
    spec = capture.spec
    if spec is None:
        return
    wanted = [numbers for constant in spec.constants.values() if (numbers := _numbers(constant)) is not None]
    for var, constant in capture.ranks[0].constants.items():
        held = _numbers(constant)
        alike = (graph.constants.get(var) for graph in capture.ranks)
        if held is None or any(other != constant for other in alike):
            continue
        for axis, size in capture.mesh.items():
            for whole in wanted if size > 1 else ():
                for dim in range(held.ndim):
                    if _is_first_part(held, whole, dim, size):
                        yield from _guess(around, var, constant, np.split(whole, size, dim), axis)


def _numbers(constant: Constant) -> np.ndarray | None:
    """The elements of a small literal of floats."""
    shape = constant.type.shape
    small = all(isinstance(extent, int) for extent in shape) and 1 < math.prod(map(int, shape)) <= _ELEMENTS  # type: ignore[arg-type]
    if not small or constant.data is None or constant.type.dtype not in _FLOATS:
        return None
    return elements(constant)


def _is_first_part(held: np.ndarray, whole: np.ndarray, dim: int, size: int) -> bool:
    if whole.ndim != held.ndim or whole.shape[dim] != size * held.shape[dim]:
        return False
    parts = np.split(whole, size, dim)
    return bool(np.array_equal(parts[0], held)) and not all(np.array_equal(part, held) for part in parts)


def _guess(around: Neighbours, var: Var, constant: Constant, parts: list[np.ndarray], axis: str) -> Iterator[Guess]:
    capture = around.capture
    readers = [
        site
        for site in around.sites.values()
        if var in site.node.operands() and set(site.position) == set(range(capture.world_size))
    ]
    if not readers:
        return
    calls: dict[int, dict[int, tuple[Node, ...]]] = {}
    types: dict[int, dict[Var, TensorType]] = {}
    for rank, graph in enumerate(capture.ranks):
        place = capture.coordinates(rank)[axis]
        if place:
            calls[rank], types[rank] = _with(graph, var, constant.type, parts[place])
    rank = min(calls)
    told = (
        f"'{{name}}' reads the numbers of the specification's first part on every rank: rank {rank} has {_told(parts[0])},"
        f" needs {_told(parts[capture.coordinates(rank)[axis]])} along axis '{axis}'"
    )
    yield _RULE, OtherCalls(calls, types, told), readers[0], _COST


def _with(
    graph: Graph, var: Var, kind: TensorType, numbers: np.ndarray
) -> tuple[dict[int, tuple[Node, ...]], dict[Var, TensorType]]:
    """The calls of a graph that read a literal, with other numbers in its place, and the types of what they add."""
    readers = [index for index, node in enumerate(graph.nodes) if var in node.operands()]
    first = fresh(graph)
    flat = [_written(number, kind.dtype) for number in numbers.reshape(-1)]
    ones = [Var(first + place) for place in range(len(flat))]
    row, whole = Var(first + len(flat)), Var(first + len(flat) + 1)
    near = graph.nodes[readers[0]]
    made = [
        *(
            replace(
                near,
                op=aten.full.default,
                args=((1,), number),
                kwargs={"dtype": DType(kind.dtype)},
                outs=(one,),
                draw=None,
            )
            for one, number in zip(ones, flat, strict=True)
        ),
        replace(near, op=aten.cat.default, args=(tuple(ones), 0), kwargs={}, outs=(row,), draw=None),
        replace(near, op=aten.view.default, args=(row, kind.shape), kwargs={}, outs=(whole,), draw=None),
    ]
    calls: dict[int, tuple[Node, ...]] = {index: (renamed(graph.nodes[index], {var: whole}),) for index in readers}
    calls[readers[0]] = (*made, *calls[readers[0]])
    types = {**dict.fromkeys(ones, replace(kind, shape=(1,))), row: replace(kind, shape=(len(flat),)), whole: kind}
    return calls, types


def _written(number: float, dtype: str) -> float:
    """The number that was written down, where it was rounded to float32."""
    return float(str(np.float32(number))) if dtype == "float32" else float(number)


def _told(numbers: np.ndarray) -> str:
    flat = [f"{float(number):.6g}" for number in numbers.reshape(-1)]
    return ", ".join(flat if len(flat) <= _SHOWN else [*flat[:_SHOWN], "..."])
