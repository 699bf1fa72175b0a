"""DTensor's placements as the relations of inputs, outputs and parameters: read without importing torch, applied by slicing."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from graphguard.ir import Placement
from graphguard.trace.source.errors import TracingError
from graphguard.trace.source.misnamed import did_you_mean, no_such_axis

Layout = dict[str, Placement]


@dataclass(frozen=True, slots=True)
class Mesh:
    """The mesh as one rank sees it: axis sizes in order, and this rank's coordinates."""

    sizes: dict[str, int]
    coordinates: dict[str, int]

    @classmethod
    def of_rank(cls, sizes: Mapping[str, int], rank: int) -> Mesh:
        """The mesh seen from a global rank; the last axis varies fastest."""
        position: dict[str, int] = {}
        for axis in reversed(list(sizes)):
            rank, position[axis] = divmod(rank, sizes[axis])
        return cls(dict(sizes), position)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return math.prod(self.sizes.values())

    def members(self, axis: str) -> tuple[int, ...]:
        """The global ranks that differ from this one along ``axis`` only, in axis order."""
        stride, base = 1, 0
        strides: dict[str, int] = {}
        for name in reversed(self.sizes):
            strides[name] = stride
            stride *= self.sizes[name]
        base = sum(self.coordinates[name] * strides[name] for name in self.sizes if name != axis)
        return tuple(base + index * strides[axis] for index in range(self.sizes[axis]))


def as_layout(value: Any, mesh: Mesh, dims: int, what: str) -> Layout:
    """A layout out of ``{axis: placement}`` or ``"replicate"``; dims count from the end where negative.  Raises ``TracingError``."""
    if isinstance(value, str) and value == "replicate":
        return {}
    if not isinstance(value, Mapping):
        raise TracingError(
            "trace-error",
            f"{what}: {value!r} is no layout{did_you_mean(str(value), ('replicate', 'infer'))}\n"
            f"needed: {{axis: placement}}, such as {{'{next(iter(mesh.sizes))}': Shard(0)}}, or 'replicate'",
        )
    layout: Layout = {}
    for axis, placement in value.items():
        if axis not in mesh.sizes:
            raise TracingError("trace-error", f"{what}: {no_such_axis(axis, mesh.sizes)}")
        layout[axis] = as_placement(placement, dims, what)
    return {axis: layout[axis] for axis in mesh.sizes if axis in layout}


def no_layouts(what: str, value: Any, words: tuple[str, ...], mesh: Mesh) -> TracingError:
    """That something is neither layouts nor one of the ``words`` that stand for some."""
    near = did_you_mean(value, words) if isinstance(value, str) else ""
    return TracingError(
        "trace-error",
        f"{what}={value!r} is no layout{near}\n"
        f"needed: {', '.join(map(repr, words))}, or placements by mesh axis, such as {{'{next(iter(mesh.sizes))}': Shard(0)}}",
    )


def no_such_key(what: str, key: Any, kind: str, known: Collection[str], mesh: Mesh) -> str:
    """That a dict of layouts has a key that is neither a mesh axis nor one of the tensors (``kind``: input or output) that it may name."""
    near = did_you_mean(str(key), (*mesh.sizes, *known))
    axes, names = (", ".join(map(repr, each)) for each in (mesh.sizes, known))
    return f"{what}: {key!r} is neither an axis of the mesh nor an {kind}{near}\nneeded: an axis ({axes}), or an {kind} ({names})"


def as_placement(placement: Any, dims: int, what: str) -> Placement:
    """One of DTensor's placements as ours; raises ``TracingError`` for anything else and for a dim that is out of range."""
    if isinstance(placement, Placement):
        return placement
    if not hasattr(placement, "is_shard"):
        raise TracingError(
            "trace-error",
            f"{what}: {placement!r} is not a placement; use Shard(dim), Replicate() or Partial() of torch.distributed.tensor",
        )
    if placement.is_replicate():
        return Placement("replicate")
    if placement.is_partial():
        return Placement("partial", reduce=str(getattr(placement, "reduce_op", "sum")))
    dim = int(placement.dim)
    if not -dims <= dim < dims:
        raise TracingError("trace-error", f"{what}: {placement!r} needs a tensor of more than {dims} dims")
    return Placement("shard", dim % dims)


def dtensor_layout(tensor: Any, mesh: Mesh) -> Layout | None:
    """The layout of a DTensor over the axes of the check's mesh, in the order in which they cut; None for a plain tensor.

    Its own mesh may be a part of the check's, or another one over the same ranks.  Raises ``TracingError`` for any other.
    """
    if not hasattr(tensor, "placements"):
        return None
    placements: dict[str, Any] = {}
    for index, placement in enumerate(tensor.placements):
        ranks = group_ranks(tensor.device_mesh.get_group(index))
        if placement.is_replicate() or len(ranks) == 1:
            continue
        axes = [axis for axis in mesh.sizes if mesh.members(axis) == ranks]
        if not axes:
            raise TracingError(
                "trace-error",
                f"is placed over ranks {list(ranks)}, which is no axis of the mesh {mesh.sizes}\n"
                "fix: build it on the mesh that the check is given",
            )
        placements[axes[0]] = placement
    layout = as_layout(placements, mesh, tensor.ndim, "a DTensor")
    # _StridedShard: cut after the axes to its right, as FSDP does with what tensor parallelism left of a parameter
    late = [axis for axis in layout if type(placements[axis]).__name__ == "_StridedShard"]
    return {axis: layout[axis] for axis in (*(axis for axis in layout if axis not in late), *reversed(late))}


def packed_pieces(tensor: Any) -> int:
    """Of how many pieces a DTensor's dim is put together, each cut for itself: the factor of a strided shard beyond the ranks that cut the dim before it."""
    placements, mesh = tensor.placements, tensor.device_mesh
    for index, placement in enumerate(placements):
        if type(placement).__name__ == "_StridedShard":
            before = (mesh.size(i) for i in range(index + 1, mesh.ndim) if placements[i].is_shard(placement.dim))
            pieces = int(placement.split_factor) // math.prod(before)
            if pieces > 1:
                return pieces
    return 1


def group_ranks(group: Any) -> tuple[int, ...]:
    """The global ranks of a process group, in group order."""
    import torch.distributed as dist

    return tuple(dist.get_process_group_ranks(group))


def chunk(size: int, count: int, index: int) -> tuple[int, int]:
    """Start and length of chunk ``index`` of ``count``, as torch.chunk and DTensor cut: full chunks first, the last may be short or empty."""
    step = -(-size // count)
    start = min(index * step, size)
    return start, min(step, size - start)


def local_part(whole: Any, layout: Layout, mesh: Mesh) -> Any:
    """What this rank holds of a tensor: shards cut axis by axis in mesh order, anything else whole."""
    for axis, placement in layout.items():
        if placement.kind == "shard":
            start, length = chunk(whole.shape[placement.dim], mesh.sizes[axis], mesh.coordinates[axis])
            whole = whole.narrow(placement.dim, start, length)
    return whole


def describe(layout: Layout) -> str:
    """A layout in DTensor's words."""
    words = {"replicate": "Replicate()", "partial": "Partial()"}
    return (
        ", ".join(
            f"{axis}: " + (f"Shard({placement.dim})" if placement.kind == "shard" else words[placement.kind])
            for axis, placement in layout.items()
        )
        or "replicated"
    )


def layouts_between(whole: tuple[int, ...], local: tuple[int, ...], mesh: Mesh) -> list[Layout]:
    """Every layout with at most one sharded axis per dim that turns shape ``whole`` into ``local`` on this rank, all axes of size one left out."""
    if len(whole) != len(local):
        return []
    if whole == local:
        return [{}]
    found: list[Layout] = [{}]
    for dim, (size, part) in enumerate(zip(whole, local, strict=True)):
        if size == part:
            continue
        axes = [axis for axis, count in mesh.sizes.items() if count > 1 and _cuts(size, part, axis, mesh)]
        found = [{**layout, axis: Placement("shard", dim)} for layout in found for axis in axes if axis not in layout]
    return [{axis: layout[axis] for axis in mesh.sizes if axis in layout} for layout in found]


def _cuts(size: int, part: int, axis: str, mesh: Mesh) -> bool:
    def gives(index: int) -> bool:
        return chunk(size, mesh.sizes[axis], index)[1] == part

    index: Any = mesh.coordinates[axis]
    # of all ranks that are seen at once the answer decides, not each comparison on the way to it
    return bool(gives(index) if type(index) is int else index.made(gives))
