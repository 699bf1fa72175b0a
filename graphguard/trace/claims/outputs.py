"""What a program returns, by name: ``out``, ``out[0]``, ``out["logits"]``; and the relations promised of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphguard.ir import Placement
from graphguard.ir.graph import Size
from graphguard.trace.claims.parameters import plain_name
from graphguard.trace.claims.placements import Layout, Mesh, as_layout, layouts_between
from graphguard.trace.claims.results import Kind
from graphguard.trace.source.errors import TracingError


@dataclass(frozen=True, slots=True)
class OutputType:
    """An output of the specification, as the ranks need to know it; ``absent``: a gradient that did not arrive, which ranks may leave out.

    ``kind`` is ``number`` for one that was read from a tensor, and ``constant`` for one that depends on nothing; ``gradient`` of a parameter that was returned as such.
    """

    name: str
    shape: tuple[Size, ...]
    dtype: str
    differentiable: bool
    absent: bool = False
    kind: Kind = "tensor"

    @property
    def is_number(self) -> bool:
        """Whether it is a number of Python's."""
        return self.kind in ("number", "constant")


def known_sizes(output: OutputType) -> tuple[int, ...]:
    """The shape of an output at which a gradient arrives; raises ``TracingError`` where only the data decides it."""
    known = tuple(size for size in output.shape if isinstance(size, int))
    if len(known) != len(output.shape):
        raise TracingError(
            "trace-error",
            f"output '{output.name}' has a size that only the data decides, so no gradient can arrive at it\n"
            "fix: give grads=False to check the outputs only",
        )
    return known


def matched_names(names: list[str], specification: list[str]) -> dict[str, str]:
    """The implementation's output names as the specification's; two programs with one output each mean the same one.

    A name may hold a parameter's, as a dict of gradients does: what wrappers put into that does not count.
    """
    if len(names) == 1 and len(specification) == 1:
        return {names[0]: specification[0]}
    plain = {plain_name(name): name for name in specification}
    found = {name: name if name in specification else plain.get(plain_name(name), name) for name in names}
    return found if len(set(found.values())) == len(found) else {name: name for name in names}


def promised_layouts(out_relations: Any, outputs: list[OutputType], mesh: Mesh) -> dict[str, Layout]:
    """The layouts that ``out_relations`` promises, by output; none for ``"infer"``.  Raises ``TracingError``."""
    return {name: complete(layout, mesh) for name, layout in _named_layouts(out_relations, outputs, mesh).items()}


def demanded_axes(out_relations: Any, outputs: list[OutputType], mesh: Mesh) -> dict[str, tuple[str, ...]]:
    """For every output that ``out_relations`` speaks of, the axes that it names: along these, no rank may leave it out."""
    named = _named_layouts(out_relations, outputs, mesh)
    return {name: tuple(axis for axis in layout if mesh.sizes[axis] > 1) for name, layout in named.items()}


def _named_layouts(out_relations: Any, outputs: list[OutputType], mesh: Mesh) -> dict[str, Layout]:
    outputs = [one for one in outputs if one.kind != "gradient"]  # stands as its parameter does
    everywhere = {axis: Placement("replicate") for axis in mesh.sizes}
    if isinstance(out_relations, str):
        if out_relations == "infer":
            return {}
        if out_relations == "replicate":
            return {one.name: everywhere for one in outputs}
        raise TracingError(
            "trace-error",
            f"out_relations is 'infer', 'replicate' or placements by mesh axis, as {{'{next(iter(mesh.sizes))}': Shard(0)}}; found {out_relations!r}",
        )
    return {
        one.name: everywhere
        if row == "replicate"
        else as_layout(row, mesh, len(one.shape), f"out_relations of '{one.name}'")
        for one, row in _rows(out_relations, outputs, mesh)
        if row is not None and row != "infer"
    }


def _rows(out_relations: Any, outputs: list[OutputType], mesh: Mesh) -> list[tuple[OutputType, Any]]:
    if isinstance(out_relations, Mapping):
        if set(out_relations) <= set(mesh.sizes):
            return [(one, _of_number(out_relations) if one.is_number else out_relations) for one in outputs]
        named = {one.name: one for one in outputs}
        keys = {key: named.get(key) or named.get(f'out["{key}"]') for key in out_relations}
        for key, one in keys.items():
            if one is None:
                raise TracingError(
                    "trace-error", f"out_relations speaks of {key!r}; the outputs are {', '.join(named)}"
                )
        return [(one, out_relations[key]) for key, one in keys.items() if one is not None]
    meant = next((some for some in _countable(outputs) if len(some) == len(out_relations)), None)
    if meant is None:
        raise TracingError(
            "trace-error",
            f"out_relations has {len(out_relations)} entries for {len(outputs)} outputs: {', '.join(one.name for one in outputs)}",
        )
    return list(zip(meant, out_relations, strict=True))


def _of_number(placements: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of all outputs, of a number, which nothing can shard."""
    return {
        axis: Placement("replicate") if getattr(one, "is_shard", bool)() else one for axis, one in placements.items()
    }


def _countable(outputs: list[OutputType]) -> Iterator[list[OutputType]]:
    """The outputs that a tuple of placements may count: all, or those that are no numbers."""
    yield outputs
    yield [one for one in outputs if one.kind != "number"]
    yield [one for one in outputs if one.kind == "tensor"]


def complete(layout: Layout, mesh: Mesh) -> Layout:
    """A promise names every axis, those it speaks of in the order in which they cut; DTensor's default is replication."""
    return {**layout, **{axis: Placement("replicate") for axis in mesh.sizes if axis not in layout}}


def cotangent_layout(
    output: OutputType, local: tuple[int, ...], promised: Layout | None, mesh: Mesh, sharded: frozenset[str] | None
) -> Layout:
    """How the gradient of an output reaches this rank: placed as the output is.

    Of several readings of the shapes, one over axes that shard the inputs (``sharded``; None: by a function that nobody can turn round) is meant.
    Raises ``TracingError`` where the shapes leave more than one reading.
    """
    if promised is not None:
        return promised
    layouts = layouts_between(known_sizes(output), local, mesh)
    if len(layouts) > 1 and sharded:
        layouts = [layout for layout in layouts if set(layout) <= sharded] or layouts
    if len(layouts) == 1 and (sharded is not None or not layouts[0]):
        return layouts[0]
    raise TracingError(
        "trace-error",
        f"gradients need to know how output '{output.name}' is placed: "
        f"it is {list(output.shape)} in the specification and {list(local)} on this rank\n"
        "fix: give the check out_relations, or grads=False to check the outputs only",
    )
