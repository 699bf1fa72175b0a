"""Puts the specification's parameters into a rank's modules: by their relations, or by the user's own loader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from graphguard.checks.api import Refinement
from graphguard.checks.leaves import Leaves
from graphguard.checks.parameters import Related, State, plain_name, relate
from graphguard.checks.placements import Mesh
from graphguard.checks.units import Unit, tables, unit_of
from graphguard.trace.capture import Recording
from graphguard.trace.errors import TracingError


def bind_specification(recording: Recording, leaves: Leaves, unit: Unit) -> list[State]:
    """Make every parameter and buffer of the specification a leaf; returns the parameters that have gradients."""
    for state in unit.states:
        _bind(recording, state, state, partial(leaves.of_state, state))
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
        relations = relate(specification.states, [_as_made(recording, state) for state in bound], mesh)
        for one, state in zip(relations, bound, strict=True):
            _bind(recording, one.state, state, partial(_part, leaves, one, mesh))
        # what the specification trains must be trained: a rank's parameter that is frozen by mistake has a zero gradient
        differentiated = [
            replace(one.state, tensor=state.tensor)
            for one, state in zip(relations, bound, strict=True)
            if one.source.kind == "parameter" and one.source.tensor.requires_grad
        ]
    _keep_tables(recording, refinement)
    for state in states:
        recording.label(state.tensor, state.name)
        state.tensor.grad = None
    return differentiated


def _keep_tables(recording: Recording, refinement: Refinement) -> None:
    """A specification that was built before the recording has its tables as rounded numbers; a rank that computed the same bits has these, too."""
    outside = {name: one for name, one in tables(refinement.spec).items() if not isinstance(one, FakeTensor)}
    if outside:
        for name, tensor in tables(refinement.impl).items():
            if name in outside:
                recording.bind_if_equal(tensor, outside[name])


def _part(leaves: Leaves, one: Related, mesh: Mesh) -> Any:
    return one.part(leaves.of_state(one.source), mesh)


def _as_made(recording: Recording, state: State) -> State:
    """A parameter whose memory was moved or cut since it was made, after its elements had been read, as it was made."""
    made = recording.read_since_birth(state.tensor)
    if made is None or recording.same_memory(made, state.tensor):
        return state
    for name, attribute in vars(state.tensor).items():  # Megatron's marks
        if name not in vars(made):
            setattr(made, name, attribute)
    return replace(state, tensor=made)


def _bind(recording: Recording, related: State, state: State, value: Callable[[], Any]) -> None:
    """Give a parameter its value: where it is now, and in the memory that it was made with, if that has been read."""
    made = recording.read_since_birth(state.tensor)
    if made is not None:
        recording.bind_birth(made, value)
    if related.tensor is state.tensor:
        recording.bind(state.tensor, value())


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
