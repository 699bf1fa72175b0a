"""How a rank's parameters and buffers come from the specification's: declared by DTensor or Megatron, inferred from shapes, or loaded.

Whatever the source, the result is the same: ordinary torch operations in the prelude put the specification's leaves into the rank's tensors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from typing import Any, Literal

import torch
import torch.distributed as dist

from graphguard.trace.calls.constants import in_memory
from graphguard.trace.claims.placements import (
    Layout,
    Mesh,
    describe,
    dtensor_layout,
    group_ranks,
    layouts_between,
    local_part,
    packed_pieces,
)
from graphguard.trace.source.errors import TracingError, handled

RULE = "ambiguous-parameter"
# What wrappers put into the qualified names of the modules they wrap.
_WRAPPERS = re.compile(
    r"(?:^|(?<=[.\"]))(?:module|_orig_mod|_checkpoint_wrapped_module|_forward_module|_fsdp_wrapped_module)\."
)


@dataclass(frozen=True, slots=True)
class State:
    """A parameter or persistent buffer of a module: its qualified name, further names of the same tensor, and the module that owns it.

    ``bare`` are its names within its own module, where that is one of several.
    """

    name: str
    kind: Literal["parameter", "buffer"]
    tensor: Any
    owners: tuple[Any, ...]
    aliases: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()


def states_of(module: torch.nn.Module) -> list[State]:
    """The parameters and persistent buffers of a module, tied ones once; ``owners`` are innermost first."""
    found: dict[int, State] = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for kind, name, tensor in _own_states(owner):
            full = f"{path}.{name}" if path else name
            known = found.get(id(tensor))
            if known is None:
                found[id(tensor)] = State(full, kind, in_memory(tensor), tuple(_owners(module, path)))
            elif full != known.name:
                found[id(tensor)] = State(known.name, known.kind, known.tensor, known.owners, (*known.aliases, full))
    return list(found.values())


def _own_states(module: torch.nn.Module) -> Iterator[tuple[Literal["parameter", "buffer"], str, Any]]:
    for name, parameter in module._parameters.items():  # noqa: SLF001 - named_parameters hides which module owns what
        if parameter is not None:
            yield "parameter", name, parameter
    for name, buffer in module._buffers.items():  # noqa: SLF001
        if buffer is not None and name not in module._non_persistent_buffers_set:  # noqa: SLF001 - the only place that knows
            yield "buffer", name, buffer


def tables_of(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """The tensors that a module made for itself, under their qualified names: buffers that are not persistent, and plain attributes."""
    for path, owner in module.named_modules(remove_duplicate=False):
        for name, tensor in (*owner._buffers.items(), *vars(owner).items()):  # noqa: SLF001
            if isinstance(tensor, torch.Tensor) and not _is_stored(owner, name):
                yield (f"{path}.{name}" if path else name), tensor


def _is_stored(owner: torch.nn.Module, name: str) -> bool:
    return name in owner._buffers and name not in owner._non_persistent_buffers_set  # noqa: SLF001


def _owners(root: torch.nn.Module, path: str) -> Iterator[Any]:
    while path:
        yield root.get_submodule(path)
        path = path.rpartition(".")[0]
    yield root


@cache
def plain_name(name: str) -> str:
    """A qualified name without what wrappers such as DDP and activation checkpointing add to it."""
    return _WRAPPERS.sub("", name)


@dataclass(frozen=True, slots=True)
class Related:
    """A tensor of the rank and the leaf that it is a part of; ``part`` cuts it out of the leaf, ``text`` says how."""

    state: State
    source: State
    layout: Layout
    stride: int = 1

    def part(self, whole: Any, mesh: Mesh) -> Any:
        """The rank's part of the leaf."""
        if self.stride == 1:
            return local_part(whole, self.layout, mesh)
        ((axis, placement),) = self.layout.items()
        return _strided_part(whole, placement.dim, mesh.sizes[axis], mesh.coordinates[axis], self.stride)


def relate(spec: Iterable[State], impl: Iterable[State], mesh: Mesh) -> list[Related]:
    """The leaf and the layout of every tensor of the rank.

    Raises ``TracingError`` naming the first parameter for which there is none, or more than one (``ambiguous-parameter``), or
    that would have to be two of the specification's at once (``conflicting-relations``).
    """
    whole = by_plain_name(spec)
    return [_related(state, whole, mesh) for state in impl]


def by_plain_name(states: Iterable[State]) -> dict[str, State]:
    """Every parameter and buffer under each of its names, without those of wrappers."""
    return {plain_name(name): state for state in states for name in (state.name, *state.aliases)}


def named_alike(spec: Iterable[State], impl: Iterable[State]) -> list[State]:
    """The rank's parameters and buffers under the names that the specification has for them: where they are its own, and where names differ by a prefix."""
    spec = list(spec)
    theirs = {id(state.tensor): state for state in spec}
    whole = by_plain_name(spec)
    listed = [_as_theirs(state, theirs.get(id(state.tensor), state), whole) for state in impl]
    bare = Counter(plain_name(name) for state in listed for name in state.bare)
    return _without_prefix([_named(state, whole, bare) for state in listed], whole)


def _as_theirs(state: State, own: State, whole: Mapping[str, State]) -> State:
    """A tensor that is the specification's ``own``, whatever the rank calls it: a stage that holds ``model.layers[2]`` as its layer 0."""
    names = (state.name, *state.aliases)
    if own is state or all(whole.get(plain_name(name)) is own for name in names):
        return state
    kept = (name for name in names if whole.get(plain_name(name), own) is own and name != own.name)
    return replace(state, name=own.name, aliases=tuple(kept))


def _without_prefix(states: list[State], whole: Mapping[str, State]) -> list[State]:
    """The same without the modules that stand around all of them, or in those that stand around all of the specification's, where that gives every one a counterpart: a stage is an attribute of what runs it."""
    if all(_known(state, whole) for state in states):
        return states
    names = [plain_name(state.name) for state in states]
    shorter = ([name.removeprefix(own) for name in names] for own in _prefixes(names))
    longer = ([theirs + name for name in names] for theirs in _prefixes(whole))
    for wanted in (*shorter, *longer):
        if all(name in whole for name in wanted):
            return [
                replace(state, name=name, aliases=(state.name, *state.aliases))
                for state, name in zip(states, wanted, strict=True)
            ]
    return states


def _prefixes(names: Iterable[str]) -> list[str]:
    """What all names begin with, by modules, the shortest first."""
    paths = [name.split(".")[:-1] for name in names]
    shared = list(takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))
    return ["".join(f"{parts[0]}." for parts in shared[:count]) for count in range(len(shared) + 1)]


def _named(state: State, whole: Mapping[str, State], bare: Mapping[str, int]) -> State:
    """Parts of a model that are modules of their own, as pipeline stages are, may name their parameters as the whole does."""
    if _known(state, whole):
        return state
    names = [name for name in state.bare if plain_name(name) in whole and bare[plain_name(name)] == 1]
    return replace(state, name=names[0], aliases=(state.name, *state.aliases)) if names else state


def _known(state: State, whole: Mapping[str, State]) -> bool:
    return any(plain_name(name) in whole for name in (state.name, *state.aliases))


def _related(state: State, whole: Mapping[str, State], mesh: Mesh) -> Related:
    names = [name for name in (state.name, *state.aliases) if plain_name(name) in whole]
    if names:
        source = whole[plain_name(names[0])]
        apart = next((name for name in names if whole[plain_name(name)] is not source), None)
        if apart is not None:
            raise TracingError(
                "conflicting-relations",
                f"'{names[0]}' and '{apart}' are one {state.kind} of the implementation and two of the specification\n"
                "fix: tie them in the specification as well, or give the check load=f(spec_state_dict, impl, mesh)",
            )
        layout, stride = _layout(state, tuple(source.tensor.shape), mesh)
        return Related(state, source, layout, stride)
    raise TracingError(
        RULE,
        f"{state.kind} '{state.name}' of the implementation has no counterpart in the specification\n"
        f"the specification has {_some(list(whole))}\n"
        "fix: give the two the same name, or the check load=f(spec_state_dict, impl, mesh)",
    )


def _some(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:6])
    return (shown or "no parameters") + (", ..." if len(names) > 6 else "")


def _layout(state: State, whole: tuple[int, ...], mesh: Mesh) -> tuple[Layout, int]:
    local = local_tensor(state.tensor)
    if local is not state.tensor:
        layout = _dtensor_layout(state, whole, mesh)
        return layout, _packed(state, layout)
    shape = tuple(local.shape)
    if getattr(state.tensor, "tensor_model_parallel", False) is True:
        return _megatron_layout(state, whole, shape, mesh)
    layouts = layouts_between(whole, shape, mesh)
    if len(layouts) > 1:
        layouts = _by_groups(layouts, state, mesh) or layouts
    if len(layouts) == 1:
        return layouts[0], 1
    raise TracingError(RULE, _undecided(state, whole, shape, layouts, mesh))


def is_distributed(tensor: Any) -> bool:
    """Whether a tensor says by its placements what it is a part of, as a DTensor does."""
    return local_tensor(tensor) is not tensor


def local_tensor(tensor: Any) -> Any:
    """The rank's own tensor of a distributed one: to_local() is an operation, which would be recorded."""
    return getattr(tensor, "_local_tensor", tensor)


def _dtensor_layout(state: State, whole: tuple[int, ...], mesh: Mesh) -> Layout:
    if tuple(state.tensor.shape) != whole:
        raise TracingError(
            RULE,
            f"parameter '{state.name}' is a DTensor of shape {list(state.tensor.shape)}; the specification's is {list(whole)}\n"
            "fix: give the check load=f(spec_state_dict, impl, mesh)",
        )
    try:
        with handled():
            layout = dtensor_layout(state.tensor, mesh)
    except TracingError as error:
        raise TracingError(RULE, f"parameter '{state.name}' {error.message}") from error
    assert layout is not None
    return layout


def _packed(state: State, layout: Layout) -> int:
    pieces = packed_pieces(state.tensor)
    if pieces > 1 and len(layout) > 1:
        raise TracingError(
            RULE,
            f"parameter '{state.name}' is a DTensor of {pieces} packed pieces that several axes of the mesh cut\n"
            "fix: give the check load=f(spec_state_dict, impl, mesh)",
        )
    return pieces if layout else 1


def _megatron_layout(state: State, whole: tuple[int, ...], shape: tuple[int, ...], mesh: Mesh) -> tuple[Layout, int]:
    """Megatron marks a sharded parameter with ``tensor_model_parallel``, ``partition_dim`` and ``partition_stride``; others by the first alone."""
    dim = getattr(state.tensor, "partition_dim", None)
    stride = int(getattr(state.tensor, "partition_stride", 1))
    layouts = [
        layout
        for layout in layouts_between(whole, shape, mesh)
        if dim is None or all(placement.dim == dim for placement in layout.values())
    ]
    if len(layouts) > 1:
        layouts = _by_groups(layouts, state, mesh) or _by_name(layouts) or layouts
    if len(layouts) != 1:
        raise TracingError(RULE, _undecided(state, whole, shape, layouts, mesh))
    return layouts[0], stride if layouts[0] else 1


def _by_groups(layouts: list[Layout], state: State, mesh: Mesh) -> list[Layout]:
    """The layouts over axes whose process group the parameter's module, or one around it, holds; the innermost module that holds one decides."""
    for owner in state.owners:
        held = {axis for ranks in _groups_in(owner) for axis in mesh.sizes if mesh.members(axis) == ranks}
        if held:
            return [layout for layout in layouts if set(layout) <= held]
    return []


def _groups_in(owner: Any) -> Iterator[tuple[int, ...]]:
    for value in vars(owner).values():
        if isinstance(value, dist.ProcessGroup):
            yield group_ranks(value)
        elif isinstance(value, dist.DeviceMesh) and value.ndim == 1:
            yield group_ranks(value.get_group())


def _by_name(layouts: list[Layout]) -> list[Layout]:
    return [layout for layout in layouts if set(layout) <= {"tp", "tensor", "model", "mp"}]


def _strided_part(whole: Any, dim: int, count: int, index: int, stride: int) -> Any:
    """Megatron's strided partition: of ``count * stride`` equal pieces, this rank has every ``count``-th."""
    size = whole.shape[dim] // (count * stride)
    return torch.cat([whole.narrow(dim, (piece * count + index) * size, size) for piece in range(stride)], dim)


def _undecided(state: State, whole: tuple[int, ...], shape: tuple[int, ...], layouts: list[Layout], mesh: Mesh) -> str:
    sizes = f"{list(whole)} in the specification and {list(shape)} on this rank"
    lines = [f"it is not clear how {state.kind} '{state.name}' relates to the specification's: it is {sizes}"]
    if layouts:
        lines.append("it could be " + ", or ".join(describe(layout) for layout in layouts))
        lines.append(
            "fix: use DTensor, keep the axis' process group as an attribute of the module, or give load=f(spec_state_dict, impl, mesh)"
        )
    else:
        lines.append(f"no dim is divided by one axis of the mesh {mesh.sizes}{_remainders(whole, mesh)}")
        lines.append("fix: give the check load=f(spec_state_dict, impl, mesh)")
    return "\n".join(lines)


def _remainders(whole: tuple[int, ...], mesh: Mesh) -> str:
    indivisible = [
        f"{size} is not divisible by {axis}={count}"
        for size in whole
        for axis, count in mesh.sizes.items()
        if size % count
    ]
    return f" ({', '.join(indivisible)})" if indivisible else ""
