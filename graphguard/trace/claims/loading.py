"""Puts the specification's parameters into a rank's modules: by their relations, or by the user's own loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from graphguard.trace.claims.api import Refinement
from graphguard.trace.claims.built import computes_otherwise, filled_otherwise
from graphguard.trace.claims.leaves import Leaves
from graphguard.trace.claims.parameters import (
    Related,
    State,
    by_plain_name,
    is_distributed,
    local_tensor,
    named_alike,
    plain_name,
    relate,
)
from graphguard.trace.claims.placements import Mesh
from graphguard.trace.claims.units import Unit, tables, unit_of
from graphguard.trace.record.capture import Recording
from graphguard.trace.source.errors import TracingError


def computed(recording: Recording, unit: Unit) -> frozenset[int]:
    """The tensors, by identity, that a function closes over and that were computed of its modules' parameters while it was built: shards that it cut out of them.

    They are no parameters of their own; those that the program trains are.
    """
    owned = [state.tensor for state in unit.states if state.owners]
    loose = [state.tensor for state in unit.states if not state.owners and not state.tensor.requires_grad]
    if not owned or not loose:
        return frozenset()
    origins = recording.origins(owned)
    return frozenset(id(tensor) for tensor in loose if origins.of(tensor))


def bind_specification(recording: Recording, leaves: Leaves, unit: Unit) -> list[State]:
    """Make every parameter and buffer of the specification a leaf; returns the parameters that have gradients."""
    values = [partial(leaves.of_state, state) for state in unit.states]
    recording.bind_before_reads(_births(recording, unit.states, values))
    for state, value in zip(unit.states, values, strict=True):
        recording.bind(state.tensor, value())
        recording.label(state.tensor, state.name)
        state.tensor.grad = None
    return [state for state in unit.states if state.kind == "parameter" and state.tensor.requires_grad]


def bind_rank(
    recording: Recording,
    leaves: Leaves,
    refinement: Refinement,
    specification: Unit,
    implementation: Unit,
    mesh: Mesh,
    device_mesh: Any,
) -> list[State]:
    """Make every parameter and persistent buffer of the rank a part of a leaf of the specification; returns the parameters whose gradients are compared.

    Raises ``TracingError`` (``ambiguous-parameter``).
    """
    if refinement.load is not None:
        whole = {
            name: leaves.of_state(state) for state in specification.states for name in (state.name, *state.aliases)
        }
        refinement.load(whole, refinement.impl, device_mesh)
        states = unit_of(refinement.impl).states
        differentiated = [state for state in states if _is_compared(state, specification)]
    else:
        states = tuple(named_alike(specification.states, implementation.states))
        made, others = _made_of_specification(recording, leaves, specification.states, states)
        bound = [state for state in others if not _stays_as_built(recording, state, specification)]
        relations = relate(specification.states, [_as_made(recording, state) for state in bound], mesh)
        loaded = [not computes_otherwise(recording, one, mesh) for one in relations]
        bound, relations = list(compress(bound, loaded)), list(compress(relations, loaded))
        for text in filter(None, (filled_otherwise(recording, one, mesh) for one in relations)):
            recording.assume(text)
        values = [partial(_part, leaves, one, mesh) for one in relations]
        recording.bind_before_reads(_births(recording, bound, values))
        for one, state, value in zip(relations, bound, values, strict=True):
            if one.state.tensor is state.tensor:
                recording.bind(state.tensor, value())
        # a parameter that either side freezes by mistake has a zero gradient there
        differentiated = [
            replace(one.state, tensor=state.tensor)
            for one, state in zip(relations, bound, strict=True)
            if _is_compared(state, specification, one.source)
        ]
        differentiated += [state for state in made if _is_compared(state, specification)]
    _keep_tables(recording, refinement)
    for state in states:
        recording.label(state.tensor, state.name)
        state.tensor.grad = None
    return differentiated


def _keep_tables(recording: Recording, refinement: Refinement) -> None:
    """A specification that was built before the recording has its tables as rounded numbers; a rank that computed the same bits has these, too."""
    made = {name: local_tensor(one) for name, one in tables(refinement.spec).items()}
    outside = {name: one for name, one in made.items() if not isinstance(one, FakeTensor)}
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


def _births(
    recording: Recording, states: Iterable[State], values: Iterable[Callable[[], Any]]
) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """The memory that parameters were made with, where that has been read since."""
    for state, value in zip(states, values, strict=True):
        made = recording.read_since_birth(state.tensor)
        if made is not None:
            yield made, value


def _made_of_specification(
    recording: Recording, leaves: Leaves, specification: Sequence[State], states: Iterable[State]
) -> tuple[list[State], list[State]]:
    """The rank's parameters and buffers that the program made of the specification's while it was built, and the others.

    Those have what the program gave them, as if ``load`` had: the specification's parameters that they come from get their values before they are read.
    """
    origins = recording.origins([state.tensor for state in specification])
    own = {id(state.tensor) for state in specification}
    made: list[State] = []
    others: list[State] = []
    sources: set[int] = set()
    for state in states:
        found = frozenset() if id(state.tensor) in own or is_distributed(state.tensor) else origins.of(state.tensor)
        sources |= found
        (made if found else others).append(state)
    origins.bind({index: partial(leaves.of_state, specification[index]) for index in sorted(sources)})
    return made, others


def _is_compared(state: State, specification: Unit, source: State | None = None) -> bool:
    """Whether a parameter's gradient is compared: where the specification trains ``source``, its counterpart, or the rank trains it and the specification trains any.

    Of what has no counterpart it is compared where the rank trains it.
    """
    named = by_plain_name(specification.states)
    names = (plain_name(name) for name in (state.name, *state.aliases))
    source = source or next((named[name] for name in names if name in named), state)
    if source.kind != "parameter":
        return False
    trains = any(each.kind == "parameter" and each.tensor.requires_grad for each in specification.states)
    return bool(source.tensor.requires_grad or (trains and state.tensor.requires_grad))


def _stays_as_built(recording: Recording, state: State, specification: Unit) -> bool:
    """A buffer or a closed-over tensor whose values are known and that the specification does not have is what the implementation made it."""
    if state.kind == "parameter" and state.owners:
        return False
    if {plain_name(name) for name in (state.name, *state.aliases)} & by_plain_name(specification.states).keys():
        return False
    if state.kind == "buffer" and recording.known(state.tensor) is None:
        raise TracingError(
            "ambiguous-parameter",
            f"buffer '{state.name}' of the implementation has no counterpart in the specification\n"
            "fix: register it with persistent=False, or give the check load=f(spec_state_dict, impl, mesh)",
        )
    return recording.known(state.tensor) is not None
