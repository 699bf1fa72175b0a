"""Puts the specification's parameters into a rank's modules: by their relations, or by the user's own loader."""

from __future__ import annotations

from typing import Any

from graphguard.checks.api import Refinement
from graphguard.checks.leaves import Leaves
from graphguard.checks.parameters import State, plain_name, relate
from graphguard.checks.placements import Mesh
from graphguard.checks.units import Unit, unit_of
from graphguard.trace.capture import Recording
from graphguard.trace.errors import TracingError


def bind_specification(recording: Recording, leaves: Leaves, unit: Unit) -> list[State]:
    """Make every parameter and buffer of the specification a leaf; returns the parameters that have gradients."""
    for state in unit.states:
        recording.bind(state.tensor, leaves.of_state(state))
        recording.label(state.tensor, state.name)
        state.tensor.grad = None
    return [state for state in unit.states if state.kind == "parameter" and state.tensor.requires_grad]


def bind_rank(
    recording: Recording, leaves: Leaves, refinement: Refinement, mesh: Mesh, device_mesh: Any
) -> list[State]:
    """Make every parameter and persistent buffer of the rank a part of a leaf; returns the parameters whose gradients are compared.

    Raises ``TracingError`` (``ambiguous-parameter``).
    """
    specification = unit_of(refinement.spec)
    if refinement.load is not None:
        whole = {
            name: leaves.of_state(state) for state in specification.states for name in (state.name, *state.aliases)
        }
        refinement.load(whole, refinement.impl, device_mesh)
        states = unit_of(refinement.impl).states
        differentiated = [state for state in states if state.kind == "parameter" and state.tensor.requires_grad]
    else:
        states = unit_of(refinement.impl).states
        bound = [state for state in states if not _stays_as_built(recording, state, specification)]
        relations = relate(specification.states, bound, mesh)
        for one in relations:
            recording.bind(one.state.tensor, one.part(leaves.of_state(one.source), mesh))
        # what the specification trains must be trained: a rank's parameter that is frozen by mistake has a zero gradient
        differentiated = [
            one.state for one in relations if one.source.kind == "parameter" and one.source.tensor.requires_grad
        ]
    for state in states:
        recording.label(state.tensor, state.name)
        state.tensor.grad = None
    return differentiated


def _stays_as_built(recording: Recording, state: State, specification: Unit) -> bool:
    """A buffer or a closed-over tensor whose values are known and that the specification does not have is what the implementation made it."""
    if state.kind == "parameter" and state.owners:
        return False
    names = {plain_name(name) for other in specification.states for name in (other.name, *other.aliases)}
    if {plain_name(name) for name in (state.name, *state.aliases)} & names:
        return False
    if state.kind == "buffer" and recording.known(state.tensor) is None:
        raise TracingError(
            "ambiguous-parameter",
            f"buffer '{state.name}' of the implementation has no counterpart in the specification\n"
            "fix: register it with persistent=False, or give load=f(spec_state_dict, impl, mesh) in the Refinement",
        )
    return recording.known(state.tensor) is not None
