"""Whether an edit leaves the specification what it was: word by word, or in other words that are proved to say the same.

A function that both programs call cannot be mended without changing the specification's text; what counts is what it computes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from graphguard.ir import Capture, Placement, Promise
from graphguard.ir.fuel import SECOND
from graphguard.ir.likeness import same_question
from graphguard.refine.proving.prove import prove

_AXIS: Final = "all"
_STEPS: Final = 2 * SECOND


def asks_the_same(first: Capture, second: Capture) -> bool:
    """Whether the second specification computes what the first does, of the same inputs and parameters, and as much is promised of it."""
    if same_question(first, second):
        return True
    if second.spec is None or not same_question(first, replace(second, spec=first.spec)):
        return False
    return _computes_the_same(first, second)


def _computes_the_same(first: Capture, second: Capture) -> bool:
    """Whether the second specification, as the one rank of a world, is proved to be the first."""
    assert first.spec is not None
    assert second.spec is not None
    if set(first.spec.outputs) != set(second.spec.outputs):
        return False
    promises = tuple(Promise(name, {_AXIS: Placement("replicate")}) for name in first.spec.outputs)
    alone = replace(
        first, mesh={_AXIS: 1}, ranks=(second.spec,), promises=promises, traits={**first.traits, **second.traits}
    )
    return prove(alone, steps=_STEPS, effort="hasty").outcome.proved
