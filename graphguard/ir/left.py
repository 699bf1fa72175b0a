"""What is noted of programs beside their results: which tensors are gradients of which parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from graphguard.ir.graph import Graph, Var

_GRADIENT: Final = re.compile(r"gradient\((.*)\)#(\d+)")


@dataclass(frozen=True, slots=True)
class Left:
    """What a graph notes: the parameter that a tensor is a gradient of, and the gradients that lie in parameters at the end."""

    gradients: dict[Var, str]
    lying: dict[str, Var]


def gradient_of(parameter: str, number: int = 0) -> str:
    """The output that notes one of the gradients of a parameter; the one that lies in it at the end has no number."""
    return f"gradient({parameter})#{number}"


def without_notes(graph: Graph) -> tuple[Graph, Left]:
    """The graph with its results alone, and what was noted."""
    outputs: dict[str, Var] = {}
    left = Left({}, {})
    for name, var in graph.outputs.items():
        match = _GRADIENT.fullmatch(name)
        if match is None:
            outputs[name] = var
            continue
        left.gradients[var] = match[1]
        if match[2] == "0":
            left.lying[match[1]] = var
    return (graph if len(outputs) == len(graph.outputs) else replace(graph, outputs=outputs)), left
