"""What a check claims, in a few lines: its inputs, its results and how they stand on the ranks, and whether gradients are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphguard.ir import Capture
from graphguard.ir.capture import Leaf
from graphguard.refine.found.promises import needed_by

NAMED: Final = 4


def claimed(capture: Capture) -> tuple[str, ...]:
    """Lines such as ``inputs: x 2×5×6``, ``claimed: out: Replicate`` and ``gradients: compared, of 5 tensors``."""
    inputs = [_shaped(leaf) for leaf in capture.leaves if leaf.kind in ("input", "partial")]
    parameters = sum(leaf.kind == "parameter" for leaf in capture.leaves)
    gradients = sum(promise.name.startswith("grad(") for promise in capture.promises)
    results = [needed_by(promise, capture) for promise in capture.promises if not promise.name.startswith("grad(")]
    given = _listed(inputs) + (f"; {parameters} parameter{'s' * (parameters > 1)}" if parameters else "")
    compared = f"compared, of {gradients} tensor{'s' * (gradients > 1)}" if gradients else "not compared"
    lines = [f"inputs: {given}"] if inputs else []
    return (*lines, *([f"claimed: {_listed(results)}"] if results else []), f"gradients: {compared}")


def _shaped(leaf: Leaf) -> str:
    return f"{leaf.name} {'×'.join(map(str, leaf.type.shape)) or 'scalar'}"


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return "; ".join(texts[:NAMED]) + more
