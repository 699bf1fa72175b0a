"""The inputs of a check as leaves: named after the specification's arguments, whole for the specification, each rank's part for the rank."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from graphguard.ir import Leaf, TensorType
from graphguard.trace.claims.api import Fixed, TensorSpec
from graphguard.trace.claims.placements import Layout, Mesh, as_layout, local_part
from graphguard.trace.source.errors import TracingError


@dataclass(frozen=True, slots=True)
class Input:
    """One tensor among the inputs: its name, what was declared of it, and the leaf that stands for it.

    ``layout`` is its relation on the ranks; a partial input's leaf stacks the summands of the ranks along a new first dim.
    """

    name: str
    declared: TensorSpec | Fixed
    layout: Layout
    summands: int = 0
    requires_grad: bool = False

    @property
    def value(self) -> torch.Tensor | None:
        """The values, where they are fixed."""
        return self.declared.value if isinstance(self.declared, Fixed) else None

    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return tuple(self.declared.shape if isinstance(self.declared, TensorSpec) else self.declared.value.shape)

    def dtype(self) -> torch.dtype:
        """The element type."""
        if isinstance(self.declared, Fixed):
            return self.declared.value.dtype
        return torch.get_default_dtype() if self.declared.dtype is None else self.declared.dtype

    def whole(self, leaf: Any) -> Any:
        """The specification's input."""
        return leaf.sum(0) if self.summands else leaf

    def local(self, leaf: Any, mesh: Mesh) -> Any:
        """The rank's input, in memory of its own: nothing that looks beside it finds what other ranks have."""
        if self.summands:
            leaf = leaf[_summand(self.layout, mesh)]
        return local_part(leaf, self.layout, mesh).clone(memory_format=torch.contiguous_format)

    def as_leaf(self) -> Leaf:
        """The leaf that stands for this input, as data."""
        shape = (self.summands, *self.shape()) if self.summands else self.shape()
        bounds = self.declared if isinstance(self.declared, TensorSpec) else TensorSpec(())
        kind = TensorType(shape, str(self.dtype()).removeprefix("torch."))
        return Leaf(self.name, "partial" if self.summands else "input", kind, bounds.low, bounds.high)


def _summand(layout: Layout, mesh: Mesh) -> int:
    index = 0
    for axis, placement in layout.items():
        if placement.kind == "partial":
            index = index * mesh.sizes[axis] + mesh.coordinates[axis]
    return index


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a program is called with, and the tensors in it with the inputs that they are, or are parts of."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: tuple[tuple[Input, Any], ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a check: the arguments with an :class:`Input` in place of every tensor; ``tree`` has them as they were declared."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tree: Any

    def tensors(self) -> list[Input]:
        """Every tensor among the inputs, in order."""
        return _inputs_in((self.args, self.kwargs))

    def sharded_axes(self) -> frozenset[str]:
        """The mesh axes over which some input is sharded."""
        layouts = [one.layout for one in self.tensors()]
        return frozenset(axis for layout in layouts for axis, placement in layout.items() if placement.kind == "shard")

    def given(self, tensor: Callable[[Input], Any], differentiated: bool) -> Arguments:
        """The arguments with ``tensor`` in place of every input; those that take part in gradients require one where ``differentiated``."""
        found: list[tuple[Input, Any]] = []

        def put(one: Input) -> Any:
            value = tensor(one)
            if one.requires_grad or (differentiated and (value.is_floating_point() or value.is_complex())):
                value = value.detach().requires_grad_()
            found.append((one, value))
            return value

        args, kwargs = map_leaves(put, (self.args, self.kwargs), Input)
        return Arguments(args, kwargs, tuple(found))

    def as_declared(self, tensor: Callable[[Input], Any]) -> Any:
        """``inputs`` as the check wrote them, with ``tensor`` in place of every declaration."""
        return map_leaves(tensor, self.tree, Input)

    def sharded(self, local: Any, differentiated: bool) -> Arguments:
        """The arguments that ``shard_inputs`` made for this rank, in memory of their own; a tensor in the place of an input is a part of it."""
        args, kwargs = _arguments(local)
        places = dict(_places((self.args, self.kwargs), Input))
        found: list[tuple[Input, Any]] = []

        def put(path: tuple[Any, ...], value: torch.Tensor) -> Any:
            one = places.get(path)
            if one is None:
                return value
            value = value.clone()
            if differentiated and (value.is_floating_point() or value.is_complex()):
                value = value.detach().requires_grad_()
            found.append((one, value))
            return value

        args, kwargs = _map_places(put, (args, kwargs), torch.Tensor)
        return Arguments(args, kwargs, tuple(found))


def declared_inputs(spec: Any, inputs: Any, in_relations: Any, mesh: Mesh) -> Inputs:
    """Name the tensors of ``inputs`` after the arguments of ``spec`` and note their relations.  Raises ``TracingError``."""
    if inputs is None or (isinstance(inputs, tuple | list | Mapping) and not inputs and _takes_arguments(spec)):
        raise TracingError(
            "trace-error",
            "the check declares no inputs\nfix: give inputs, such as inputs=(gg.tensor(2, 8, 64),)",
        )
    args, kwargs = _arguments(inputs)
    named_args = tuple(_named(value, name) for name, value in zip(_argument_names(spec, len(args)), args, strict=True))
    named_kwargs = {key: _named(value, key) for key, value in kwargs.items()}
    return _with_relations(_inputs(named_args, named_kwargs, inputs), in_relations, mesh)


def _inputs(args: tuple[Any, ...], kwargs: dict[str, Any], declared: Any) -> Inputs:
    if isinstance(declared, Mapping):
        return Inputs(args, kwargs, kwargs)
    return Inputs(args, kwargs, args if isinstance(declared, tuple | list) else args[0])


def _takes_arguments(spec: Any) -> bool:
    try:
        parameters = inspect.signature(_called(spec)).parameters.values()
    except (TypeError, ValueError):
        return True
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(one.default is one.empty and one.kind not in variadic for one in parameters)


def _called(spec: Any) -> Callable[..., Any]:
    return spec.forward if isinstance(spec, torch.nn.Module) else spec


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    return (inputs,), {}


def _argument_names(spec: Any, count: int) -> list[str]:
    """The names of the first ``count`` positional arguments, made up where the signature does not tell."""
    try:
        parameters = list(inspect.signature(_called(spec)).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{index}]" for index in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return (names + [f"input[{index}]" for index in range(len(names), count)])[:count]


def _named(value: Any, name: str) -> Any:
    """The same structure with an :class:`Input` in place of every declaration of a tensor."""
    if isinstance(value, torch.Tensor):
        return Input(name, TensorSpec(tuple(value.shape), value.dtype), {}, requires_grad=value.requires_grad)
    if isinstance(value, TensorSpec | Fixed):
        return Input(name, value, {})
    if isinstance(value, Mapping):
        return {key: _named(item, f"{name}[{key!r}]".replace("'", '"')) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_named(item, f"{name}[{index}]") for index, item in enumerate(value))
    return value


def map_leaves(function: Callable[[Any], Any], tree: Any, kind: type) -> Any:
    """The same structure with ``function`` applied to every value of ``kind`` in tuples, lists and dicts."""
    if isinstance(tree, kind):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_leaves(function, item, kind) for key, item in tree.items()}
    if isinstance(tree, tuple | list):
        items = [map_leaves(function, item, kind) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree


def _inputs_in(tree: Any) -> list[Input]:
    return [value for _, value in _places(tree, Input)]


def _places(tree: Any, kind: type, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value of ``kind`` in nested tuples, lists and dicts with the keys and indices that lead to it."""
    if isinstance(tree, kind):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from _places(item, kind, (*path, key))
    elif isinstance(tree, tuple | list):
        for index, item in enumerate(tree):
            yield from _places(item, kind, (*path, index))


def _map_places(function: Callable[[tuple[Any, ...], Any], Any], tree: Any, kind: type) -> Any:
    """As :func:`map_leaves`; ``function`` also gets the place."""
    paths = iter([path for path, _ in _places(tree, kind)])
    return map_leaves(lambda value: function(next(paths), value), tree, kind)


def _with_relations(inputs: Inputs, relations: Any, mesh: Mesh) -> Inputs:
    if relations is None:
        return inputs
    by_name = dict(_relation_rows(inputs, relations, mesh))

    def relate(one: Input) -> Input:
        layout = as_layout(by_name.get(one.name) or {}, mesh, len(one.shape()), f"in_relations of input '{one.name}'")
        return replace(one, layout=layout, summands=_summands(layout, one, mesh))

    return Inputs(*(map_leaves(relate, tree, Input) for tree in (inputs.args, inputs.kwargs, inputs.tree)))


def _relation_rows(inputs: Inputs, relations: Any, mesh: Mesh) -> Iterator[tuple[str, Any]]:
    """(input, placements by axis): one dict or word for every input, or one per input in order or by argument."""
    if isinstance(relations, str) or (isinstance(relations, Mapping) and set(relations) <= set(mesh.sizes)):
        for one in inputs.tensors():
            yield one.name, relations
        return
    arguments: dict[Any, Any] = {**dict(enumerate(inputs.args)), **inputs.kwargs}
    names = {one.name: one for one in inputs.tensors()}
    rows = relations.items() if isinstance(relations, Mapping) else enumerate(relations)
    for key, row in rows:
        if key in names:
            yield key, row
        elif key in arguments:
            yield from ((one.name, row) for one in _inputs_in(arguments[key]))
        else:
            known = ", ".join(names)
            raise TracingError("trace-error", f"in_relations speaks of input {key!r}; the inputs are {known}")


def _summands(layout: Layout, one: Input, mesh: Mesh) -> int:
    axes = [axis for axis, placement in layout.items() if placement.kind == "partial"]
    if any(layout[axis].reduce != "sum" for axis in axes):
        raise TracingError(
            "trace-error", f"in_relations of input '{one.name}': only Partial() with reduce_op 'sum' is supported"
        )
    return math.prod(mesh.sizes[axis] for axis in axes) if axes else 0
