"""What programs leave in modules: parameters that they change, and the gradients of those that a function closes over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphguard.trace.claims.api import gradient_in
from graphguard.trace.claims.parameters import plain_name
from graphguard.trace.claims.units import Unit
from graphguard.trace.record.capture import Recording


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Names of parameters: those that are ``trained``, those into which the program ``wrote`` and those that it ``returned``.

    ``closed_over``: by a function, whose gradients nobody asks for.
    """

    trained: tuple[str, ...] = ()
    wrote: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    closed_over: bool = False


def leftovers(recording: Recording, unit: Unit, results: Mapping[str, Any], *, grads: bool) -> Leftovers:
    """What a program left in its parameters, apart from what it returned; notes the gradients that lie there, where these are asked for."""
    parameters = [state for state in unit.states if state.kind == "parameter"]
    trained = [state for state in parameters if grads and state.tensor.requires_grad]
    for state in () if unit.is_module else trained:
        gradient = gradient_in(state.tensor)
        if gradient is not None:
            recording.gradient(state.name, gradient)
    written = recording.written_among([state.tensor for state in parameters])
    memory = {recording.memory_of(value) for value in results.values()}
    keys = {plain_name(name).removesuffix('"]').rpartition('["')[2] for name in results}
    return Leftovers(
        tuple(state.name for state in trained),
        tuple(state.name for state, wrote in zip(parameters, written, strict=True) if wrote),
        tuple(
            state.name
            for state in parameters
            if recording.memory_of(state.tensor) in memory
            or any(plain_name(name) in keys for name in (state.name, *state.aliases))
        ),
        closed_over=grads and not unit.is_module,
    )
