"""What programs leave in the buffers of their modules: compared where the specification changes any of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from graphguard.ir.graph import Graph

_NAME: Final = re.compile(r"after\((.*)\)")


def kept_in(buffer: str) -> str:
    """The output that stands for what a program leaves in a buffer."""
    return f"after({buffer})"


def is_kept(output: str) -> bool:
    """Whether an output is what a program leaves in a buffer."""
    return _NAME.fullmatch(output) is not None


def compared_buffers(spec: Graph, ranks: Sequence[Graph]) -> tuple[Graph, tuple[Graph, ...], tuple[str, ...]]:
    """The graphs, without what they leave in their buffers where the specification changes none; and what is left out, as something assumed."""
    changed = [
        match[1]
        for name, var in spec.outputs.items()
        if (match := _NAME.fullmatch(name)) is not None and spec.labels.get(var) != match[1]
    ]
    if not changed:
        return _without(spec), tuple(map(_without, ranks)), ()
    lost = [name for name in changed if not any(kept_in(name) in graph.outputs for graph in ranks)]
    assumed = tuple(
        f"what the specification leaves in buffer '{name}' is not compared: no rank has it" for name in lost
    )
    return spec, tuple(ranks), assumed


def _without(graph: Graph) -> Graph:
    if not any(map(is_kept, graph.outputs)):
        return graph
    outputs = {name: var for name, var in graph.outputs.items() if not is_kept(name)}
    return replace(graph, outputs=outputs)
