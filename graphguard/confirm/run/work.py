"""How much work a run on numbers is, in the steps of :mod:`graphguard.ir.fuel`: what is counted is the size of the work, not how long it took."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from graphguard.confirm.run.draws import elements_of
from graphguard.confirm.run.operators import cost_of
from graphguard.ir import Capture, Graph
from graphguard.ir.fuel import SECOND

_MULTIPLICATIONS: Final = 5e9 / SECOND  # in the time of a step
_DRAWING: Final = 100.0  # multiplications in the time that a random number takes
_CALL: Final = 6e-5 * SECOND  # steps that a call takes, whatever its size


def work_of(graphs: Iterable[Graph]) -> int:
    """The steps of one run of some graphs."""
    nodes = [(graph, node) for graph in graphs for node in graph.nodes]
    cost = sum(cost_of(graph, node) for graph, node in nodes)
    return math.ceil(cost / _MULTIPLICATIONS + len(nodes) * _CALL)


def work_of_calls(capture: Capture) -> int:
    """The steps of a run at any extents."""
    return math.ceil(capture.calls * _CALL)


def work_of_drawing(capture: Capture) -> int:
    """The steps of drawing the leaves of a capture."""
    return math.ceil(elements_of(capture) * _DRAWING / _MULTIPLICATIONS)
