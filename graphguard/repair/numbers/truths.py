"""Tables of truths, such as masks of positions, that no input decides and that differ from the specification's: the first row in which they do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphguard.ir import Capture, Var
from graphguard.relations.numbers import Array
from graphguard.repair.graph.edits import Tensors
from graphguard.repair.numbers.point import Point

_BOOL = "bool"
_SHOWN = 4


def other_truths(tensors: Tensors, meant: Var, point: Point, capture: Capture) -> str:
    """In which row of which rank a table is true elsewhere than in the specification's rows of that rank; empty where that cannot be told."""
    spec = capture.spec
    whole = point.spec.get(meant)
    if spec is None or whole is None or not whole.literal or spec.types[meant].dtype != _BOOL or whole.array.ndim != 2:
        return ""
    for rank, var in sorted(tensors.items()):
        mine = point.ranks[rank].get(var)
        if mine is None or not mine.literal or mine.array.ndim != 2:
            return ""
        parts = list(_parts(whole.array, mine.array.shape, rank, capture))
        if not parts:
            return ""
        if any(np.array_equal(part, mine.array) for part in parts):
            continue
        rows = np.nonzero((parts[0] != mine.array).any(axis=1))[0]
        row = int(rows[0])
        who = f"row {row}" if parts[0].shape == whole.array.shape else f"row {row} of rank {rank}"
        return f"'{{what}}' is true {_columns(mine.array[row])} in {who}, and should be {_columns(parts[0][row])}"
    return ""


def _parts(whole: Array, shape: tuple[int, ...], rank: int, capture: Capture) -> Iterator[Array]:
    """The rows of a table that are a rank's along one axis, or all of them."""
    if whole.shape == shape:
        yield whole
        return
    for axis, size in capture.mesh.items():
        if size > 1 and shape[0] * size == whole.shape[0] and shape[1] == whole.shape[1]:
            first = shape[0] * capture.coordinates(rank)[axis]
            yield whole[first : first + shape[0]]


def _columns(row: Array) -> str:
    told = told_places(row, "column")
    return f"at {told}" if told else "nowhere"


def told_places(row: Array, name: str) -> str:
    """Where a row of truths holds, by number, such as ``keys 0..3``; empty where it holds nowhere."""
    found = [int(place) for place in np.nonzero(row)[0]]
    if len(found) < 2:
        return "".join(f"{name} {place}" for place in found)
    if found == list(range(found[0], found[-1] + 1)):
        return f"{name}s {found[0]}..{found[-1]}"
    shown = found if len(found) <= _SHOWN else [*found[:3], "...", found[-1]]
    return f"{name}s {', '.join(map(str, shown))}"
