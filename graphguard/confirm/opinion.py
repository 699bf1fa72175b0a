"""A second opinion on a capture from finite fields: is the engine incomplete, or the program wrong?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

import numpy as np
import torch

from graphguard.confirm.fields.field_run import FieldRun
from graphguard.confirm.fields.fields import Fields
from graphguard.confirm.fields.residues import P, Residues
from graphguard.confirm.promises import Comparison, comparisons, copied_axes, held_values
from graphguard.confirm.reduced.shrink import shrunk
from graphguard.confirm.run.elements import DTYPES, UnrunnableError
from graphguard.confirm.run.preludes import Preludes
from graphguard.confirm.run.replay import Values, constant_value, guessed_literal
from graphguard.ir import Capture, Constant, Graph, Var
from graphguard.ir.joining import join
from graphguard.relations.algebra import Unsupported

POINTS: Final = 3
ELEMENTS: Final = 200_000  # of one tensor; integers have no fast products


Opinion = Literal["equal", "differs", "unsure"]
"""What finite fields say.

``equal``: every promise holds at a random point, so the programs are very likely equal.  ``differs``: promises fail and nothing on the way was guessed.
``unsure``: they fail, but functions without a meaning in a field may be why; or it could not be run.
"""


def second_opinion(capture: Capture) -> Opinion:
    """Evaluate both programs at random points of a pair of finite fields, at reduced extents where they are large."""
    capture = shrunk(capture) or capture if _elements(capture) > ELEMENTS else capture
    if capture.spec is None or guessed_literal(capture) or _elements(capture) > ELEMENTS:
        return "unsure"
    # One point may be on the side of a comparison where both programs agree.
    said = (_at_point(capture, seed) for seed in range(POINTS))
    return next((opinion for opinion in said if opinion != "equal"), "equal")


def _at_point(capture: Capture, seed: int) -> Opinion:
    assert capture.spec is not None
    joined = join(capture.ranks)
    if joined.mismatches:
        return "unsure"
    run = FieldRun(capture, Fields(seed), _literal)
    try:
        spec = _outputs(capture.spec, run.specification(capture.spec))
        found = zip(capture.ranks, run.ranks(joined.order), strict=True)
        ranks = [_outputs(graph, values) for graph, values in found]
        preludes = Preludes(capture)
        differing = [
            promise.name
            for promise in capture.promises
            if _fails(comparisons(capture, promise, spec, ranks, preludes, _summed(capture, promise.name, ranks)))
        ]
    except (Unsupported, UnrunnableError):
        return "unsure"
    return "equal" if not differing else "unsure" if run.fields.guessed else "differs"


def _summed(capture: Capture, name: str, ranks: list[Values]) -> list[str]:
    """The axes along which ranks may hold parts of a sum; equal residues at a random point are copies."""
    copied = copied_axes(capture, held_values(capture, name, ranks))
    return [axis for axis in capture.mesh if axis not in copied]


def _elements(capture: Capture) -> int:
    sizes = (
        math.prod(n for n in kind.shape if isinstance(n, int))
        for graph in capture.graphs
        for kind in graph.types.values()
    )
    return max(sizes, default=0)


def _fails(alternatives: list[list[Comparison]]) -> bool:
    return all(any(_differ(comparison) for comparison in option) for option in alternatives)


def _differ(comparison: Comparison) -> bool:
    if not comparison.shaped:
        return True
    if comparison.expected.dtype == torch.bool:
        return bool((comparison.expected != comparison.found).any())
    # Residues: a sum over ranks has not been reduced yet.
    return bool(((comparison.expected - comparison.found) % P != 0).any())


def _literal(constant: Constant) -> np.ndarray:
    if DTYPES.get(constant.type.dtype, torch.complex64).is_complex:
        raise Unsupported("complex literals")
    return constant_value(constant).numpy()


def _outputs(graph: Graph, values: Mapping[Var, Residues]) -> Values:
    return {var: _tensor(values[var]) for var in graph.outputs.values()}


def _tensor(value: Residues) -> torch.Tensor:
    array = value.plain if value.plain is not None else value.p
    assert array is not None
    return torch.from_numpy(np.ascontiguousarray(array))
