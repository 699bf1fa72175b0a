"""What is noted of programs beside their results: which tensors are gradients of which parameters, and what is left in parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from graphguard.ir.graph import Graph, Var

_GRADIENT: Final = re.compile(r"gradient\((.*)\)#\d+")
_LEFT: Final = re.compile(r"left\((.*)\)")


@dataclass(frozen=True, slots=True)
class Left:
    """What a graph notes: the parameter that a tensor is a gradient of, and what is left in every parameter."""

    gradients: dict[Var, str]
    parameters: dict[str, Var]


def gradient_of(parameter: str, number: int) -> str:
    """The output that notes one of the gradients of a parameter."""
    return f"gradient({parameter})#{number}"


def left_in(parameter: str) -> str:
    """The output that notes what a program leaves in a parameter."""
    return f"left({parameter})"


def without_notes(graph: Graph) -> tuple[Graph, Left]:
    """The graph with its results alone, and what was noted."""
    outputs: dict[str, Var] = {}
    left = Left({}, {})
    for name, var in graph.outputs.items():
        if match := _GRADIENT.fullmatch(name):
            left.gradients[var] = match[1]
        elif match := _LEFT.fullmatch(name):
            left.parameters[match[1]] = var
        else:
            outputs[name] = var
    return (graph if len(outputs) == len(graph.outputs) else replace(graph, outputs=outputs)), left
