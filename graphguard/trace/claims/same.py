"""One program as its own specification: what the process that runs it on one rank tells the ranks of a mesh, which build it for themselves.

A rank of a :class:`Refinement` has the specification beside its own program, and looks at it.  Here that lies in another process, whose job has one rank: it
sends the names, shapes and known elements of its parameters, and what it declares of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from graphguard.ir import Leaf
from graphguard.ir.graph import Constant
from graphguard.trace.calls.constants import LARGEST_TABLE, constant_of
from graphguard.trace.claims.inputs import Input, Inputs
from graphguard.trace.claims.parameters import State, local_tensor
from graphguard.trace.claims.units import Unit
from graphguard.trace.record.capture import Recording
from graphguard.trace.source.errors import TracingError


@dataclass(frozen=True, slots=True)
class Distant:
    """A parameter or buffer of another process: as :class:`State`, with the tensor described; ``value`` are its elements where they are known and not trained."""

    name: str
    kind: Literal["parameter", "buffer"]
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    trained: bool
    aliases: tuple[str, ...]
    bare: tuple[str, ...]
    value: Constant | None


@dataclass(frozen=True, slots=True)
class Original:
    """A program as it was built on one rank: its parameters and buffers, its inputs by name with the elements of those that are fixed, and what it is."""

    states: tuple[Distant, ...]
    inputs: Mapping[str, tuple[Leaf, Constant | None]]
    is_module: bool


def original(recording: Recording, unit: Unit, inputs: Inputs) -> Original:
    """What the ranks need to know of the program that this process runs alone; before its parameters become unknowns."""
    return Original(
        tuple(_distant(recording, state) for state in unit.states),
        {one.name: (one.as_leaf(), _fixed(recording, one)) for one in inputs.tensors()},
        unit.is_module,
    )


def _distant(recording: Recording, state: State) -> Distant:
    tensor, own = state.tensor, local_tensor(state.tensor)
    trained = bool(tensor.requires_grad)
    known = None if trained or own.numel() > LARGEST_TABLE else recording.known(own, LARGEST_TABLE)
    value = constant_of(known) if known is not None and recording.is_written(own) else None
    shape = tuple(tensor.shape)
    return Distant(
        state.name, state.kind, shape, tensor.dtype, own.device.type, trained, state.aliases, state.bare, value
    )


def _fixed(recording: Recording, one: Input) -> Constant | None:
    known = None if one.value is None else recording.known(one.value)
    return None if known is None else constant_of(known)


def beside(recording: Recording, told: Original, unit: Unit, inputs: Inputs) -> Unit:
    """The program of the other process, as if it had been built beside this rank's own; raises ``TracingError`` where the two are not one program's."""
    if told.is_module != unit.is_module:
        kinds = ("a function", "a module")
        raise TracingError(
            "trace-error",
            f"the program is {kinds[told.is_module]} on one rank and {kinds[unit.is_module]} on the mesh\n"
            "fix: give gg.Same a module, or a function, on both",
        )
    for problem in _unlike(recording, told, inputs):
        raise TracingError("trace-error", problem)
    states = (
        State(
            one.name,
            one.kind,
            recording.stand_in(one.shape, one.dtype, one.device, one.value, requires_grad=one.trained),
            (),
            one.aliases,
            one.bare,
        )
        for one in told.states
    )
    return Unit(unit.call, tuple(states), unit.is_module)


def _unlike(recording: Recording, told: Original, inputs: Inputs) -> Iterator[str]:
    """Inputs that the program does not declare alike in both worlds, in words."""
    mine = {one.name: one for one in inputs.tensors()}
    for name in (*told.inputs, *mine):
        if (name in told.inputs) != (name in mine):
            where = ("the mesh", "one rank") if name in mine else ("one rank", "the mesh")
            yield f"the program takes an input '{name}' on {where[0]}, and none of that name on {where[1]}\n{_WHOLE}"
    for name, (leaf, value) in told.inputs.items():
        own = mine[name].as_leaf()
        if (leaf.type, leaf.low, leaf.high) != (own.type, own.low, own.high):
            yield f"input '{name}' is {_shown(leaf)} on one rank and {_shown(own)} on the mesh\n{_WHOLE}"
        here = _fixed(recording, mine[name])
        if (value and value.digest) != (here and here.digest):
            yield f"input '{name}' is fixed to other values on one rank than on the mesh\n{_WHOLE}"


_WHOLE = (
    "fix: give gg.Same the same inputs on every mesh, whole; in_relations, such as {'dp': Shard(0)}, or"
    " shard_inputs=f(inputs, mesh) says what a rank has of them"
)


def _shown(leaf: Leaf) -> str:
    bounds = "" if leaf.low is None and leaf.high is None else f" from {leaf.low} to {leaf.high}"
    return f"{leaf.type.dtype} {list(leaf.type.shape)}{bounds}"


def unlike_claims(where: str) -> TracingError:
    """A check that returns :class:`Same` in some worlds, and a refinement in another."""
    return TracingError(
        "trace-error",
        f"the check returns gg.Refinement on {where}, and gg.Same elsewhere\n"
        "fix: return gg.Same on every rank and for the mesh of one rank, or gg.Refinement with a specification of its own",
    )
