"""One program of a check, recorded: the specification, or what one rank runs.

Both are functions of the same leaves.  The prelude puts leaves into inputs and parameters, then come the forward pass and, for
modules, the gradients of everything that has one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch

from graphguard.ir import Frame, Leaf, Placement, Span
from graphguard.ir.capture import Like, Wanted
from graphguard.ir.kept import kept_in
from graphguard.trace.claims.api import Refinement, Same, gradient_in
from graphguard.trace.claims.endings import returning
from graphguard.trace.claims.inputs import Arguments, declared_inputs
from graphguard.trace.claims.leaves import Leaves
from graphguard.trace.claims.leftovers import Leftovers, leftovers
from graphguard.trace.claims.loading import bind_rank, bind_specification, computed
from graphguard.trace.claims.outputs import OutputType, complete, cotangent_layout, demanded_axes, promised_layouts
from graphguard.trace.claims.parameters import State, is_distributed, local_tensor, named_alike
from graphguard.trace.claims.placements import Layout, Mesh, dtensor_layout, local_part, packed_pieces
from graphguard.trace.claims.results import placed_as
from graphguard.trace.claims.returned import Returned, Told, has_gradient
from graphguard.trace.claims.same import Original, beside, original
from graphguard.trace.claims.units import Unit, unit_of
from graphguard.trace.record.capture import Recording
from graphguard.trace.source.errors import TracingError
from graphguard.trace.source.provenance import outermost


@dataclass(frozen=True, slots=True)
class Claims:
    """What a recorded program says beside its graph.

    ``leaves`` that it used; ``outputs`` of the specification; ``wanted`` relations of outputs by name; ``results`` are the names
    that it returned, gradients aside; ``loaded`` are the parameters that the user's loader must have written.  ``told`` are its results that are not in the graph;
    ``demanded`` are the axes along which every rank must return an output; ``gradients`` were returned as such; ``left`` is what is left in parameters; ``returns`` is where the program returns.
    ``made`` is where parameters were made, and their modules.
    """

    leaves: tuple[Leaf, ...]
    outputs: tuple[OutputType, ...]
    wanted: dict[str, Wanted]
    results: tuple[str, ...]
    loaded: tuple[str, ...] = ()
    told: Told = field(default_factory=Told)
    demanded: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gradients: frozenset[str] = frozenset()
    left: Leftovers = field(default_factory=Leftovers)
    returns: Span | None = None
    made: dict[str, tuple[Frame, ...]] = field(default_factory=dict)


def as_refinement(value: Any) -> Refinement:
    """What a check returned; raises ``TracingError`` where it is no claim."""
    if not isinstance(value, Refinement | Same):
        kind = "None" if value is None else f"an object of type {type(value).__name__}"
        raise TracingError(
            "trace-error",
            f"a check returns gg.Refinement(spec, impl, inputs) or gg.Same(program, inputs); this one returned {kind}",
        )
    if isinstance(value, Same):
        value = value.as_refinement()
    elif value.spec is value.impl and isinstance(value.spec, torch.nn.Module):
        raise TracingError(
            "trace-error",
            "spec and impl are the same object, so there is nothing to compare\n"
            "fix: build the specification separately; parallelize_module and fully_shard change the module they are given",
        )
    if value.in_relations is not None and value.shard_inputs is not None:
        raise TracingError(
            "conflicting-relations",
            "in_relations and shard_inputs both say what a rank's inputs are\nfix: leave one of them out",
        )
    return value


def _is_kept_whole(recording: Recording, refinement: Refinement, unit: Unit) -> None:
    """Raise ``TracingError`` where the implementation has cut a parameter that it shares with the specification: what is compared with is then a shard."""
    if refinement.impl is refinement.spec:
        return
    shared = {id(state.tensor) for state in unit_of(refinement.impl).states}
    for state in unit.states:
        made = recording.shape_at_birth(state.tensor) if id(state.tensor) in shared else None
        if made is not None and prod(made) != state.tensor.numel():
            raise TracingError(
                "trace-error",
                f"{state.kind} '{state.name}' is one object of the specification and the implementation, which has cut it from {list(made)} to {list(state.tensor.shape)}: "
                "there is no whole one to compare with\n"
                "fix: build the specification separately, or give the implementation copy.deepcopy(model)",
            )


def record_specification(
    recording: Recording,
    refinement: Refinement,
    mesh: Mesh,
    tell: Callable[[tuple[OutputType, ...]], None],
    tell_original: Callable[[Original], None] | None = None,
) -> Claims:
    """Record the specification; ``tell`` gets its outputs as soon as the forward pass has been run, and ``tell_original`` before it what ranks that have no specification beside them need."""
    unit = unit_of(refinement.spec)
    leaves = Leaves(recording, unit.device)
    inputs = declared_inputs(refinement.spec, refinement.inputs, refinement.in_relations, mesh)
    if tell_original is not None:
        tell_original(original(recording, unit, inputs))
    unit = unit.without(computed(recording, unit))
    _is_kept_whole(recording, refinement, unit)
    states = bind_specification(recording, leaves, unit)
    buffers = _buffers(unit.states)
    differentiates = _differentiates(refinement)
    arguments = inputs.given(lambda one: one.whole(leaves.of_input(one)), differentiates)
    returned = _forward(recording, unit, arguments)
    results, outputs = returned.tensors, returned.outputs()
    _record_outputs(recording, returned)
    left = leftovers(recording, unit, results, grads=refinement.grads)
    tell(outputs)
    whole = {axis: Placement("replicate") for axis in mesh.sizes}
    wanted: dict[str, Wanted] = {
        one.name: whole if one.is_number else "infer" for one in outputs if one.kind != "gradient"
    }
    wanted.update(promised_layouts(refinement.out_relations, list(outputs), mesh))
    if differentiates:
        _backward(
            recording,
            ((results[one.name], _arriving(leaves, one, results[one.name])) for one in outputs if one.differentiable),
        )
        for name, tensor in _differentiated(states, arguments):
            if gradient_in(tensor) is not None:
                recording.output(f"grad({name})", _storage(placed_as(gradient_in(tensor), tensor)))
    _record_buffers(recording, buffers, unit_of(refinement.spec).states)
    _record_inputs(recording, arguments)
    return Claims(
        leaves.found(),
        outputs,
        wanted,
        tuple(returned.values),
        told=returned.told,
        demanded=demanded_axes(refinement.out_relations, list(outputs), mesh),
        gradients=frozenset(returned.gradients),
        left=left,
    )


def record_rank(
    recording: Recording,
    refinement: Refinement,
    mesh: Mesh,
    device_mesh: Any,
    ask: Callable[[], tuple[OutputType, ...]],
    ask_original: Callable[[], Original] | None = None,
) -> Claims:
    """Record what this rank runs; ``ask`` gets the outputs of the specification, and ``ask_original`` the specification where it is this program on one rank."""
    leaves = Leaves(recording, unit_of(refinement.impl).device)
    inputs = declared_inputs(refinement.spec, refinement.inputs, refinement.in_relations, mesh)
    specification, implementation = unit_of(refinement.spec), unit_of(refinement.impl)
    specification = specification.without(computed(recording, specification))
    made = computed(recording, implementation)
    implementation = implementation.without(made)
    if ask_original is not None:
        specification = beside(recording, ask_original(), specification, inputs)
    states = bind_rank(recording, leaves, refinement, specification, implementation, mesh, device_mesh)
    buffers = _buffers(_named_states(refinement, specification))
    differentiates = _differentiates(refinement)
    if refinement.shard_inputs is None:
        arguments = inputs.given(lambda one: one.local(leaves.of_input(one), mesh), differentiates)
    else:
        whole = inputs.as_declared(lambda one: one.whole(leaves.of_input(one)))
        arguments = inputs.sharded(refinement.shard_inputs(whole, device_mesh), differentiates)
    for one, tensor in arguments.tensors:
        recording.label(tensor, one.name)
    named = replace(implementation, states=tuple(_named_states(refinement, specification))).without(made)
    returned = _forward(recording, named, arguments)
    outputs = {one.name: one for one in ask()}
    returned = returned.named_as(outputs)
    results = returned.tensors
    _record_outputs(recording, returned)
    left = leftovers(recording, named, results, grads=refinement.grads)
    promised = promised_layouts(refinement.out_relations, list(outputs.values()), mesh)
    wanted: dict[str, Wanted] = {}
    for name in returned.numbers:
        if name in outputs and name not in promised and not outputs[name].is_number:
            wanted[name] = {axis: Placement("replicate") for axis in mesh.sizes}  # a number is no part of one
    for name, value in results.items():
        layout = dtensor_layout(value, mesh) if name in outputs and name not in promised else None
        if layout is not None and packed_pieces(value) == 1:  # placements cannot say how packed pieces are cut
            promised[name] = wanted[name] = complete(layout, mesh)
    if differentiates:
        sharded = None if refinement.shard_inputs is not None else inputs.sharded_axes()
        _backward(recording, _cotangents(leaves, results, outputs, promised, mesh, sharded))
        wanted.update(_record_gradients(recording, states, arguments))
    wanted.update(_record_buffers(recording, buffers, _named_states(refinement, specification)))
    wanted.update(_record_inputs(recording, arguments))
    wanted.update((name, Like(of) if of else "infer") for name, of in returned.gradients.items())
    loaded = () if refinement.load is None else tuple(state.name for state in states)
    return Claims(
        leaves.found(),
        (),
        wanted,
        tuple(returned.values),
        loaded,
        told=returned.told,
        gradients=frozenset(returned.gradients),
        left=left,
        returns=returning(refinement.impl),
        made=_made(recording, named.states),
    )


def _differentiates(refinement: Refinement) -> bool:
    return refinement.grads and all(isinstance(one, torch.nn.Module) for one in (refinement.spec, refinement.impl))


@outermost
def _forward(recording: Recording, unit: Unit, arguments: Arguments) -> Returned:
    """Run the program; its results are as it returned them, still connected to their graph."""
    if unit.is_module:
        recording.root(unit.call)
    recording.phase = "forward"
    return Returned.of(unit.call(*arguments.args, **arguments.kwargs), unit.states)


def _record_outputs(recording: Recording, returned: Returned) -> None:
    """Record what the program returned as it is now: the backward pass may write over it."""
    for name, value in returned.tensors.items():
        recording.output(name, _storage(value))
    for name, number in returned.numbers.items():
        recording.number(name, number)
    for name, constant in returned.told.constants.items():
        if constant.is_number and name in returned.values:
            recording.output(name, torch.tensor(constant.value))


def _storage(value: Any) -> Any:
    """The rank's own tensor of a distributed or pending one."""
    if hasattr(value, "trigger_wait"):
        value = value.trigger_wait()
    return value.to_local() if hasattr(value, "to_local") else value


@outermost
def _backward(recording: Recording, pairs: Iterable[tuple[Any, Any]]) -> None:
    recording.phase = "backward"
    listed = list(pairs)
    if listed:
        torch.autograd.backward([value for value, _ in listed], [cotangent for _, cotangent in listed])


def _cotangents(
    leaves: Leaves,
    results: Mapping[str, Any],
    outputs: Mapping[str, OutputType],
    promised: Mapping[str, Layout],
    mesh: Mesh,
    sharded: frozenset[str] | None,
) -> Iterator[tuple[Any, Any]]:
    """Every output of this rank that is differentiated, and this rank's part of the gradient that arrives at it.

    ``sharded`` are the axes over which inputs are declared to be sharded; None where a function of the user's does it.
    """
    for name, value in results.items():
        output = outputs.get(name)
        if output is None or not output.differentiable or not has_gradient(value):
            continue
        local = tuple(local_tensor(value).shape)
        layout = cotangent_layout(output, local, promised.get(name), mesh, sharded)
        cotangent = local_part(leaves.of_cotangent(output, value.device), layout, mesh).to(value.dtype)
        yield value, _placed_like(cotangent.clone(memory_format=torch.contiguous_format), value)


def _arriving(leaves: Leaves, output: OutputType, value: Any) -> Any:
    """The gradient that arrives at an output of the specification."""
    return _placed_like(leaves.of_cotangent(output, value.device), value)


def _placed_like(cotangent: Any, value: Any) -> Any:
    """A plain tensor as a DTensor with the placements of ``value``, a partial one's gradient being whole."""
    if not is_distributed(value):
        return cotangent
    from torch.distributed.tensor import DTensor, Replicate

    placements = [Replicate() if placement.is_partial() else placement for placement in value.placements]
    return DTensor.from_local(
        cotangent, value.device_mesh, placements, run_check=False, shape=value.shape, stride=value.stride()
    )


def _record_gradients(recording: Recording, states: Iterable[State], arguments: Arguments) -> dict[str, Wanted]:
    """Record every gradient of this rank and the relation in which it must stand; none arrived means zero."""
    wanted: dict[str, Wanted] = {}
    for name, tensor in _differentiated(states, arguments):
        gradient = gradient_in(tensor)
        if gradient is None:
            gradient = torch.zeros_like(tensor.detach())
        recording.output(f"grad({name})", _storage(placed_as(gradient, tensor)))
        wanted[f"grad({name})"] = Like(name)
    for one, _ in arguments.tensors:
        if one.summands and f"grad({one.name})" in wanted:
            wanted[f"grad({one.name})"] = _whole_over_partial(one.layout)
    return wanted


def _named_states(refinement: Refinement, specification: Unit) -> Sequence[State]:
    """The parameters and buffers of the rank's program, under the names that they have in comparisons."""
    states = unit_of(refinement.impl).states
    return states if refinement.load is not None else tuple(named_alike(specification.states, states))


def _made(recording: Recording, states: Iterable[State]) -> dict[str, tuple[Frame, ...]]:
    """Where the parameters of modules were made, by name."""
    owned = (state for state in states if state.kind == "parameter" and state.owners)
    found = {state.name: recording.made(state.owners, state.name.rpartition(".")[2]) for state in owned}
    return {name: frames for name, frames in found.items() if frames}


def _buffers(states: Iterable[State]) -> frozenset[str]:
    return frozenset(state.name for state in states if state.kind == "buffer" and state.tensor.device.type != "meta")


def _record_buffers(recording: Recording, names: Collection[str], states: Iterable[State]) -> dict[str, Wanted]:
    """Record what the program leaves in the buffers of these names, and the relation in which it must stand."""
    wanted: dict[str, Wanted] = {}
    for state in states:
        if state.kind == "buffer" and state.name in names:
            recording.output(kept_in(state.name), _storage(state.tensor))
            wanted[kept_in(state.name)] = Like(state.name)
    return wanted


def _record_inputs(recording: Recording, arguments: Arguments) -> dict[str, Wanted]:
    """Record what the program leaves in its inputs, and the relation in which it must stand: that of the inputs."""
    wanted: dict[str, Wanted] = {}
    for one, tensor in arguments.tensors:
        if not one.summands:
            recording.output(kept_in(one.name), _storage(tensor))
            wanted[kept_in(one.name)] = Like(one.name)
    return wanted


def _whole_over_partial(layout: Layout) -> Layout:
    return {
        axis: Placement("replicate") if placement.kind == "partial" else placement for axis, placement in layout.items()
    }


def _differentiated(states: Iterable[State], arguments: Arguments) -> Iterator[tuple[str, Any]]:
    for state in states:
        yield state.name, state.tensor
    for one, tensor in arguments.tensors:
        if tensor.requires_grad and tensor.is_leaf:
            yield one.name, tensor
