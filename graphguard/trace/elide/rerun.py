"""The backward pass of a copied layer: a copy of that of the layer that was recorded.

The engine comes to that layer last, so it is asked beforehand what its backward pass is, and the graph is kept.  Where it cannot be asked, a layer that is a copy runs after all, as
a checkpoint does, and others copy what that gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from graphguard.trace.calls.events import Event, refs_in
from graphguard.trace.calls.segments import Copy, matched, segment_of
from graphguard.trace.elide.copying import Copying
from graphguard.trace.elide.likeness import kind_of_tensor, shown
from graphguard.trace.elide.templates import Backward, Layer, condition_of, grad_fn_of, graph_of
from graphguard.trace.pure.harmless import identity
from graphguard.trace.pure.lookups import Doubt

Grads: TypeAlias = tuple[Sequence[torch.Tensor | None], tuple[int, str] | None]
"""Gradients of what a layer read, and the place of the node that gave the argument's, if it was the last and the only one."""


def backward(repeats: Copying, layer: Layer, grad: torch.Tensor) -> Grads:
    """The gradients of what a copied layer read, from that of its result."""
    recorder = repeats.recorder
    outer = recorder.outer()
    kind = _kind(repeats, layer, grad)
    for known in layer.template.backwards:
        there = known.kind, known.phase, known.here, known.outer
        if kind is not None and there == (kind, recorder.phase, recorder.modules.here, outer):
            return _copied(repeats, known, layer, grad)
    found = None if kind is None else _of_the_first(repeats, layer, grad, kind)
    if found is None:
        return _run(repeats, layer, grad, kind)
    layer.template.backwards.append(found)
    return _copied(repeats, found, layer, grad)


def _kind(repeats: Copying, layer: Layer, grad: torch.Tensor) -> tuple[Any, ...] | None:
    """What of an arriving gradient decides what is done with it; None where that cannot be said."""
    recorder = repeats.recorder
    try:
        if type(grad) is not type(layer.result) or recorder.constants.knowledge([grad]) != "unknown":
            return None
        storage = recorder.ref(grad).storage
        copy = layer.copy
        inside = copy.first <= storage < copy.first + copy.segment.made or storage in copy.storages.values()
        return None if inside else (*kind_of_tensor(grad), grad.untyped_storage().nbytes())
    except Doubt:
        return None


def _copied(repeats: Copying, known: Backward, layer: Layer, grad: torch.Tensor) -> Grads:
    recorder = repeats.recorder
    old, new = known.layer.copy, layer.copy
    storages = {known.grad: recorder.ref(grad).storage}
    for number in old.segment.inputs:
        storages[old.storage(number)] = new.storage(number)
    for number in range(old.first, old.first + old.segment.made):
        storages[number] = new.first + number - old.first
    forwards = {old.stacks.get(index, index): new.stacks.get(index, index) for index in layer.template.stacks}
    modules = {old.module(path): new.module(path) for path in layer.template.paths.values()}
    segment = known.segment
    copy = Copy(segment, storages, recorder.storages.reserve(segment.made), {}, forwards, modules)
    recorder.copied(copy)
    grads = [None if one is None else repeats.made(one, copy) for one in known.grads]
    return grads, _place(layer, known.last)


def _place(layer: Layer, node: int | None) -> tuple[int, str] | None:
    """Where the call of a layer is whose node has that number among its nodes."""
    mark = None if node is None else layer.template.marks.get(node)
    return None if mark is None else (layer.copy.stacks.get(mark[0], mark[0]), layer.copy.module(mark[1]))


def _readers(run: _Run) -> list[int]:
    """The nodes that give gradients of arguments, each as often as it gives one, by their numbers of all."""
    given = {identity(tensor) for tensor in run.arguments}
    makers = {identity(node) for node in map(grad_fn_of, run.arguments) if node is not None}
    graph = graph_of(grad_fn_of(run.out), makers)
    ends = [(node, to) for node in graph for to, _ in node.next_functions if to is not None]
    found = [node for node, to in ends if identity(to) in makers or identity(getattr(to, "variable", None)) in given]
    return [node._sequence_nr() for node in found]  # noqa: SLF001


def _of_the_first(repeats: Copying, layer: Layer, grad: torch.Tensor, kind: tuple[Any, ...]) -> Backward | None:
    """The backward pass of the layer that was recorded, for a gradient of that kind; None where it cannot be asked for, or copied.

    Its graph is kept for when the engine comes to it; what is recorded here is for copies alone.
    """
    recorder, first = repeats.recorder, layer.template.itself
    if first is None or not _is_untouched(repeats, first):
        return None
    with recorder.pause(), torch.no_grad():
        given = recorder.kernels.laid_out(tuple(grad.shape), grad.stride(), grad.dtype, grad.device)
    if _kind(repeats, first, given) != kind:
        return None
    arguments = [tensor for tensor in first.read() if identity(tensor) in first.arguments]
    start, calls = len(recorder.events), recorder.ledger.counts()
    try:
        run = _Run(first.result, first.read(), arguments, layer.template.node)
        return _differentiated(repeats, first, run, given, kind, keep=True).known
    finally:
        del recorder.events[start:]
        recorder.ledger.restore(calls)


def _is_untouched(repeats: Copying, first: Layer) -> bool:
    """Whether nothing has been done to the layer that was recorded, and nobody looks after its gradients."""
    template = first.template
    watched = (*first.tensors, first.result)
    if condition_of(first) != first.condition or not repeats.is_the_same(first):
        return False
    if any(tensor._backward_hooks or tensor.retains_grad for tensor in watched):  # noqa: SLF001
        return False
    nodes = range(template.node, template.node + template.nodes)
    return not any(event.sequence in nodes for event in repeats.recorder.events if event.sequence is not None)


def _run(repeats: Copying, layer: Layer, grad: torch.Tensor, kind: tuple[Any, ...] | None) -> Grads:
    """Run the layer, whose calls are known, and record its backward pass."""
    if not repeats.is_unwatched() or not layer.template.lookups.hold(layer.pairs):
        repeats.give_up("what a copied layer looks up is another thing now")
    with _at(repeats, layer):
        run = _again(repeats, layer)
    found = _differentiated(repeats, layer, run, grad, kind, keep=False)
    if found.known is not None:
        layer.template.backwards.append(found.known)
    return found.grads, _place(layer, found.last)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the backward pass of a layer gave; ``known`` is for copies, if it can be copied."""

    grads: Sequence[torch.Tensor | None]
    last: int | None
    known: Backward | None


def _differentiated(
    repeats: Copying, layer: Layer, run: _Run, grad: torch.Tensor, kind: tuple[Any, ...] | None, *, keep: bool
) -> _Found:
    """Record the backward pass of a layer; ``keep``: its graph is there for another."""
    recorder = repeats.recorder
    readers = _readers(run)
    start, first, facts = len(recorder.events), recorder.storages.reserve(0), recorder.facts()
    calls = recorder.ledger.counts()
    with repeats.asking():
        grads = torch.autograd.grad(run.out, run.leaves, grad, allow_unused=True, retain_graph=keep)
    events = recorder.events[start:]
    is_last = len(readers) == 1 and bool(events) and events[-1].sequence == readers[0]
    last = readers[0] - run.first if is_last else None
    inputs = _inputs(repeats, layer, grad, events)
    if kind is None or facts != recorder.facts():
        return _Found(grads, last, None)
    try:
        segment = segment_of(events, inputs, first, recorder.storages.reserve(0), recorder.ledger.counts() - calls)
        made = tuple(None if one is None else shown(recorder, one) for one in grads)
        storages = [one.ref.storage for one in made if one is not None]
        _doubt_unless(len(set(storages)) == len(storages) and all(0 <= n - first < segment.made for n in storages))
    except Doubt:
        return _Found(grads, last, None)
    segment.kept.update(storages)
    here, number = recorder.modules.here, recorder.ref(grad).storage
    return _Found(
        grads, last, Backward(layer, segment, number, kind, recorder.phase, here, recorder.outer(), made, last)
    )


def _doubt_unless(certain: bool) -> None:
    if not certain:
        raise Doubt("a backward pass that cannot be copied")


def _inputs(repeats: Copying, layer: Layer, grad: torch.Tensor, events: Sequence[Event]) -> list[int]:
    """The storages that a backward pass reads, of what was there before: the gradient, and what the forward pass read and made, which is kept for it."""
    copy = layer.copy
    own = range(copy.first, copy.first + copy.segment.made)
    there = {repeats.recorder.ref(grad).storage, *(copy.storage(number) for number in copy.segment.inputs), *own}
    read = dict.fromkeys(ref.storage for event in events for ref in refs_in((event.args, event.kwargs)))
    copy.segment.kept.update(copy.segment.first + number - copy.first for number in read if number in own)
    return [number for number in read if number in there]


@contextmanager
def _at(repeats: Copying, layer: Layer) -> Iterator[None]:
    """Inside, the program stands where it called the layer."""
    modules, stacks = repeats.recorder.modules, repeats.recorder.stacks
    here, modules.here = modules.here, layer.here
    repeats.is_busy = stacks.muted = True
    ledger = repeats.recorder.ledger
    calls = ledger.counts()
    try:
        yield
    finally:
        modules.here = here
        ledger.restore(calls)
        repeats.is_busy = stacks.muted = False


@dataclass(frozen=True, slots=True)
class _Run:
    """A layer that was run: its result, what has gradients, the ``arguments`` among that; nodes are numbered from ``first`` on."""

    out: torch.Tensor
    leaves: list[torch.Tensor]
    arguments: list[torch.Tensor]
    first: int


def _again(repeats: Copying, layer: Layer) -> _Run:
    """A layer that is run once more, on the memory of the copy."""
    recorder = repeats.recorder
    start, sequence = len(recorder.events), torch.autograd._get_sequence_nr()  # noqa: SLF001
    fresh = {}
    leaves = []
    for tensor in (layer.tensors[place] for place in layer.leaves):
        if identity(tensor) in layer.arguments:
            with recorder.pause():
                fresh[identity(tensor)] = tensor.detach().requires_grad_()
        leaves.append(fresh.get(identity(tensor), tensor))

    def put(value: Any) -> Any:
        return fresh.get(identity(value), value)

    args, kwargs = torch.utils._pytree.tree_map(put, (layer.args, layer.kwargs))  # noqa: SLF001
    with torch.enable_grad():
        out = layer.module(*args, **kwargs)
    events = recorder.events[start:]
    del recorder.events[start:]
    try:
        recorder.storages.are_memories(matched(layer.copy, events))
    except Doubt as doubt:
        repeats.give_up(f"a layer is not what it was taken for: {doubt}")
    if torch.autograd._get_sequence_nr() - sequence != layer.template.nodes:  # noqa: SLF001
        repeats.give_up("a layer has another graph than it was taken for")
    for offset, (stack, path) in layer.template.marks.items():
        recorder.forward_of[sequence + offset] = layer.copy.stacks.get(stack, stack), layer.copy.module(path)
    return _Run(out, leaves, list(fresh.values()), sequence)
