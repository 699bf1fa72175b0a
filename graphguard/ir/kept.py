"""What programs leave in the buffers of their modules and in their inputs: compared where the specification changes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from graphguard.ir.graph import Graph

_NAME: Final = re.compile(r"after\((.*)\)")


def kept_in(state: str) -> str:
    """The output that stands for what a program leaves in a buffer or an input."""
    return f"after({state})"


def is_kept(output: str) -> bool:
    """Whether an output is what a program leaves in a buffer or an input."""
    return _NAME.fullmatch(output) is not None


@dataclass(frozen=True, slots=True)
class Kept:
    """The graphs, with what they leave behind where that is compared; what of the specification's is left out, as something ``assumed``, and of the ranks' (``not_compared``)."""

    spec: Graph
    ranks: tuple[Graph, ...]
    assumed: tuple[str, ...]
    not_compared: tuple[str, ...]


def compared_states(
    spec: Graph, ranks: Sequence[Graph], inputs: Collection[str], plain: Callable[[str], str] = str
) -> Kept:
    """What programs leave behind, as far as it is compared; ``plain`` are names without what wrappers add.

    All buffers are compared if the specification changes any, else those of its buffers that a rank changes;
    of the ``inputs`` those that it changes and does not return, if a rank changes any of them, too.
    """
    changed = [name for name in _changed(spec) if name not in inputs or not _returned(spec, name)]
    written = {name for graph in ranks for name in _changed(graph)}
    had = {name for graph in ranks for name in _states(graph)}
    buffers = {name for graph in (spec, *ranks) for name in _states(graph) if name not in inputs}
    compared = {name for name in changed if name in inputs}
    if not compared & written:
        compared = set()
    if any(name not in inputs for name in changed):
        compared |= buffers
    else:
        common = {plain(name) for name in written - set(inputs)} & {plain(name) for name in _states(spec)}
        compared |= {name for name in buffers if plain(name) in common}
    assumed = [
        f"what the specification writes into its input '{name}' is not compared: no rank writes into it"
        if name in inputs
        else f"what the specification leaves in buffer '{name}' is not compared: no rank has it"
        for name in changed
        if name not in (compared if name in inputs else had)
    ]
    alone = [
        f"buffer '{name}', which ranks change and the specification does not have"
        for name in sorted(written - compared - set(inputs))
    ]
    return Kept(_with(spec, compared), tuple(_with(graph, compared) for graph in ranks), tuple(assumed), tuple(alone))


def _states(graph: Graph) -> Iterable[str]:
    """The buffers and inputs of which a graph says what is left in them."""
    return [match[1] for name in graph.outputs if (match := _NAME.fullmatch(name)) is not None]


def _changed(graph: Graph) -> list[str]:
    """Those in which it leaves something else than what was there."""
    return [name for name in _states(graph) if left_alone(graph, kept_in(name)) is None]


def left_alone(graph: Graph, output: str) -> str | None:
    """The buffer or input that an output stands for, where the program leaves in it what was there; else None."""
    match, var = _NAME.fullmatch(output), graph.outputs.get(output)
    if match is None or var is None or match[1] not in (graph.labels.get(var), graph.inputs.get(var)):
        return None
    return match[1]


def _returned(graph: Graph, name: str) -> bool:
    """Whether what is left in an input is an output as well."""
    var = graph.outputs[kept_in(name)]
    return any(out == var and not is_kept(output) for output, out in graph.outputs.items())


def _with(graph: Graph, compared: Collection[str]) -> Graph:
    """The graph without what is left in other buffers and inputs than these."""
    outputs = {
        name: var
        for name, var in graph.outputs.items()
        if (match := _NAME.fullmatch(name)) is None or match[1] in compared
    }
    return graph if len(outputs) == len(graph.outputs) else replace(graph, outputs=outputs)
