"""Calls of modules that were recorded, and can be copied: templates."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from graphguard.trace.calls.events import refs_in
from graphguard.trace.calls.geometry import stride_of
from graphguard.trace.calls.segments import Copy, Segment, segment_of
from graphguard.trace.calls.tape import Tape
from graphguard.trace.elide.likeness import Shown, arguments_of, kinds_of, leaves_of, shown, state_of
from graphguard.trace.pure.harmless import identity
from graphguard.trace.pure.lookups import Doubt, Lookups, Pairs
from graphguard.trace.pure.purity import lookups_of
from graphguard.trace.source.provenance import RawStack

_next_sequence = torch.autograd._get_sequence_nr  # noqa: SLF001
#: The node that made a tensor; not by the property that is watched.
grad_fn_of = torch._C.TensorBase.grad_fn.__get__  # noqa: SLF001


@dataclass(slots=True, eq=False)
class Template:
    """A call that was recorded, and what a copy of it must have in common with it.

    ``nodes`` are those of its autograd graph, by number from ``node`` on, and ``marks`` says of each, from 0 on, where it was made.  ``itself``: the call, as if it were a copy.
    """

    lookups: Lookups
    later: Lookups
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    kinds: tuple[Any, ...]
    state: tuple[Any, ...]
    grad: bool
    phase: str
    segment: Segment
    result: Shown
    outer: RawStack
    stacks: tuple[int, ...]
    paths: dict[int, str]
    marks: dict[int, tuple[int, str]]
    nodes: int
    node: int
    backwards: list[Backward] = field(default_factory=list)
    itself: Layer | None = None


@dataclass(slots=True, eq=False)
class Layer:
    """A copied call; ``tensors`` are its arguments, by identity ``arguments``, and parameters, ``leaves`` the places of those that gradients go to.

    ``before``: the call whose result is its argument, and whose backward pass goes with its own.
    """

    template: Template
    copy: Copy
    pairs: Pairs
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: tuple[torch.Tensor, ...]
    arguments: frozenset[int]
    leaves: tuple[int, ...]
    here: str
    condition: tuple[Any, ...] = ()
    result: Any = None
    is_done: bool = False
    before: Layer | None = None

    def read(self) -> list[torch.Tensor]:
        """What gradients go to."""
        return [self.tensors[place] for place in self.leaves]


@dataclass(frozen=True, slots=True)
class Backward:
    """The backward pass of a layer that was run: ``kind`` and ``outer`` are of the gradient that arrived, and of where; ``grads`` are those that it gave."""

    layer: Layer
    segment: Segment
    grad: int
    kind: tuple[Any, ...]
    phase: str
    here: str
    outer: RawStack
    grads: tuple[Shown | None, ...]
    last: int | None


def condition_of(layer: Layer) -> tuple[Any, ...]:
    """How often what a layer read and made has been changed, where it lies, and what made the result."""
    tensors = (*layer.tensors, layer.result)
    lies = [
        (one._version, one.untyped_storage()._cdata, one.storage_offset(), one.shape, stride_of(one))  # noqa: SLF001
        for one in tensors
    ]
    return (*lies, grad_fn_of(layer.result))


class Pending:
    """A call before it is made, that may become a template; raises ``Doubt`` where it cannot."""

    def __init__(self, recorder: Tape, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._recorder = recorder
        self._given = (module, *args), kwargs
        self._lookups, self._later = lookups_of(module, args, kwargs)
        self._pairs = Pairs()
        same = self._pairs.same((module, *args), (module, *args)) and self._pairs.same(
            tuple(kwargs.values()), tuple(kwargs.values())
        )
        if not same or not self._looks_up():
            raise Doubt("what a module looks up is not the same twice")
        self._tensors = tuple(one for one, _ in self._pairs.tensors.values())
        self._kinds = kinds_of(recorder, self._tensors)
        self._arguments = arguments_of((args, kwargs))
        self._leaves = leaves_of(self._tensors, self._arguments)
        self._state = state_of()
        self._inputs = [recorder.ref(tensor).storage for tensor in self._tensors]
        self._outer = recorder.outer()
        self._sequence = _next_sequence()
        if self._sequence - 1 not in recorder.forward_of:
            raise Doubt("nothing was recorded before")
        self._start, self._first = len(recorder.events), recorder.storages.reserve(0)
        self._facts, self._calls = recorder.facts(), recorder.ledger.counts()

    def _looks_up(self) -> bool:
        return self._lookups.hold(self._pairs) and self._later.hold(self._pairs)

    def done(self, out: Any, stacks: tuple[int, ...]) -> Template:
        """The call was made, and returned this."""
        recorder = self._recorder
        if recorder.facts() != self._facts or self._state != state_of():
            raise Doubt("the call leaves more than tensors")
        segment = segment_of(
            recorder.events[self._start :],
            self._inputs,
            self._first,
            recorder.storages.reserve(0),
            recorder.ledger.counts() - self._calls,
        )
        result = shown(recorder, out)
        own = 0 <= result.ref.storage - segment.first < segment.made
        if not own or out._version or not _is_whole(out, result, segment):  # noqa: SLF001
            raise Doubt("the result is no memory of its own")
        segment.kept.add(result.ref.storage)
        self._differentiable(out)
        names = {key: recorder.modules.name(module) for key, (module, _) in self._pairs.modules.items()}
        paths = {key: name for key, name in names.items() if name is not None}
        if not {event.module for event in segment.events} <= set(paths.values()):
            raise Doubt("a module has no name")
        nodes = _next_sequence() - self._sequence
        called = ((number, recorder.forward_of.get(self._sequence + number)) for number in range(nodes))
        marks = {number: place for number, place in called if place is not None}
        if nodes and nodes - 1 not in marks:
            raise Doubt("the last node is of no call")
        args, kwargs = self._given
        grad, phase = torch.is_grad_enabled(), recorder.phase
        told = self._lookups, self._later, args, kwargs, self._kinds, self._state, grad, phase
        template = Template(*told, segment, result, self._outer, stacks, paths, marks, nodes, self._sequence)
        template.itself = self._itself(template, out)
        return template

    def _itself(self, template: Template, out: torch.Tensor) -> Layer:
        segment = template.segment
        copy = Copy(segment, {number: number for number in segment.inputs}, segment.first, {}, {}, {})
        (module, *args), kwargs = self._given
        here = self._recorder.modules.here
        read = self._tensors, self._arguments, self._leaves
        layer = Layer(template, copy, self._pairs, module, tuple(args), kwargs, *read, here)
        layer.result = out
        layer.condition = condition_of(layer)
        return layer

    def _differentiable(self, out: torch.Tensor) -> None:
        """Raise ``Doubt`` unless the graph of the result is of this call, and ends at the argument and the parameters that have gradients, at all of them."""
        leaves = [self._tensors[place] for place in self._leaves] if torch.is_grad_enabled() else []
        if out.requires_grad != bool(leaves):
            raise Doubt("the result has no gradient, or one from elsewhere")
        ends = {identity(tensor) for tensor in leaves}
        nodes = [grad_fn_of(tensor) for tensor in leaves]  # kept, so that nothing else gets their identities
        producers = {identity(node): tensor for node, tensor in zip(nodes, leaves, strict=True) if node is not None}
        reached: set[int] = set()
        for node in graph_of(grad_fn_of(out), producers):
            if identity(node) in producers:
                reached.add(identity(producers[identity(node)]))
            elif hasattr(node, "variable"):
                reached.add(identity(node.variable))
            elif node._sequence_nr() < self._sequence:  # noqa: SLF001
                raise Doubt("the graph is older than the call")
        if reached != ends:
            raise Doubt("gradients go elsewhere")


def _is_whole(out: torch.Tensor, result: Shown, segment: Segment) -> bool:
    """Whether a result is no view, or a view of something of another shape that nothing else can see, as a linear layer's is."""
    last = next((e for e in reversed(segment.events) if any(r.key == result.ref.key for r in refs_in(e.outs))), None)
    return not out._is_view() or (last is not None and last.op is torch.ops.aten.view.default)  # noqa: SLF001


def graph_of(start: Any, ends: Container[int]) -> list[Any]:
    """The nodes of an autograd graph, no further than some of them."""
    found, waiting = {identity(start): start} if start is not None else {}, [start] if start is not None else []
    while waiting:
        node = waiting.pop()
        if identity(node) in ends:
            continue
        for following, _ in node.next_functions:
            if following is not None and identity(following) not in found:
                found[identity(following)] = following
                waiting.append(following)
    return list(found.values())


def nodes_from(roots: Sequence[Any]) -> list[Any]:
    """The nodes of the graph of some tensors, or edges of it."""
    starts = (grad_fn_of(root) if isinstance(root, torch.Tensor) else root.node for root in roots)
    return list({identity(node): node for start in starts for node in graph_of(start, ())}.values())


def leaves_read(nodes: Sequence[Any]) -> set[int]:
    """The leaves, by identity, whose gradients some nodes give."""
    edges = [to for node in nodes for to, _ in node.next_functions if hasattr(to, "variable")]
    return {identity(to.variable) for to in edges}
