"""Results that are a parameter's gradient, or that bear a parameter's name: they must stand as the parameter does, which any clean relation would not say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphguard.ir import Leaf, Placement, Promise
from graphguard.ir.capture import Like, Wanted
from graphguard.ir.graph import Graph, Size
from graphguard.trace.claims.parameters import plain_name
from graphguard.trace.programs.compared import Program


@dataclass(frozen=True, slots=True)
class Standing:
    """A result of the specification that stands for a parameter, or, where it ``is_gradient``, for its gradient."""

    name: str
    parameter: Leaf
    is_gradient: bool


def standing(spec: Program, ranks: Sequence[Program], leaves: Sequence[Leaf]) -> Iterator[Standing]:
    """The results of which nothing is promised and that stand for parameters."""
    parameters = {plain_name(leaf.name): leaf for leaf in leaves if leaf.kind == "parameter"}
    spoken = {name for one in ranks for name in one.claims.wanted}
    for name in spec.claims.results:
        if spec.claims.wanted.get(name) != "infer" or name in spoken or name not in spec.graph.outputs:
            continue
        if not any(name in one.graph.outputs for one in ranks):
            continue  # a gradient that did not arrive, which ranks may leave out
        found = [
            one.noted.gradients.get(one.graph.outputs[name]) for one in (spec, *ranks) if name in one.graph.outputs
        ]
        gradient = next((parameter for parameter in found if parameter is not None), None)
        known = parameters.get(plain_name(gradient if gradient is not None else _key(name)))
        if known is not None and known.type.shape == _shape(spec.graph, name):
            yield Standing(name, known, gradient is not None)


def promised(one: Standing, spec: Graph, ranks: Sequence[Graph], mesh: Mapping[str, int]) -> tuple[Promise, str] | None:
    """How a result must stand on the ranks that return it, whole or as their parameter, and the name under which it then stands in the graphs of the ranks; None where it can be neither."""
    held = [graph for graph in ranks if one.name in graph.outputs]
    whole = _shape(spec, one.name)
    if all(_shape(graph, one.name) == whole for graph in held):
        wanted: Wanted = {axis: Placement("replicate") for axis in mesh}
        name = f"grad({one.parameter.name})" if one.is_gradient else one.name
        return Promise(name, wanted), name
    labels = {_label(graph, one) for graph in held}
    label = labels.pop() if len(labels) == 1 else None
    if label is None or (not one.is_gradient and label != _key(one.name)):
        return None
    name = f"grad({label})" if one.is_gradient else one.name
    return Promise(name, Like(label)), name


def with_standing(
    found: Sequence[Standing],
    spec: Graph,
    ranks: tuple[Graph, ...],
    promises: tuple[Promise, ...],
    mesh: Mapping[str, int],
) -> tuple[Graph, tuple[Graph, ...], tuple[Promise, ...]]:
    """The graphs, with such gradients under the names that gradients have, and all promises."""
    made = {promise.name: promise for promise in promises}
    for one in found:
        asked = promised(one, spec, ranks, mesh)
        if asked is None or (one.is_gradient and asked[1] in made):
            continue
        promise, name = asked
        made.pop(one.name)  # it says no more
        made[name] = promise
        spec = _also(spec, one.name, f"grad({one.parameter.name})" if one.is_gradient else name)
        ranks = tuple(_also(graph, one.name, name) for graph in ranks)
    return spec, ranks, tuple(made.values())


def _also(graph: Graph, name: str, other: str) -> Graph:
    if name not in graph.outputs or other in graph.outputs:
        return graph
    return replace(graph, outputs={**graph.outputs, other: graph.outputs[name]})


def _label(graph: Graph, one: Standing) -> str | None:
    """The rank's own name for the parameter, where the result has the shape that it has there."""
    for var, label in graph.labels.items():
        if plain_name(label) == plain_name(one.parameter.name) and graph.types[var].shape == _shape(graph, one.name):
            return label
    return None


def _key(name: str) -> str:
    """The last word of an output's name: of ``out["weight"]`` the key."""
    return name.removesuffix('"]').rpartition('["')[2]


def _shape(graph: Graph, name: str) -> tuple[Size, ...]:
    return graph.types[graph.outputs[name]].shape
