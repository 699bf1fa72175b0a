"""Layers that are alike: the first is recorded, the others are copies of it.

A call of a module is copied where it is proved that recording it would give the same calls under other names: its code does nothing but what
:mod:`~graphguard.trace.pure.purity` understands, everything that the code looks up is the same as for the layer that was recorded (:mod:`~graphguard.trace.pure.lookups`), and so are its
tensors' kinds and PyTorch's state; and what was recorded is a closed :class:`~graphguard.trace.calls.segments.Segment`.  Where any of this is in doubt the call is recorded as always.

A copy is one node of the autograd graph, and its backward pass is a copy of that of the layer that was recorded (:mod:`~graphguard.trace.elide.rerun`).  The engine runs the backward pass of such a layer without anything in between, because nodes go in the reverse order of their making, and one result and one differentiable
argument are the only ways in and out.  What could tell a copy from the layer itself makes the recording *give up*: then the whole program is recorded again without copies.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn

from graphguard.trace.calls.events import refs_in
from graphguard.trace.calls.segments import Copy
from graphguard.trace.calls.tape import Tape
from graphguard.trace.elide.copying import Copying
from graphguard.trace.elide.likeness import arguments_of, kinds_of, leaves_of, lies_alike, nobody_else, state_of
from graphguard.trace.elide.rerun import backward
from graphguard.trace.elide.templates import Layer, Pending, Template, condition_of, leaves_read, nodes_from
from graphguard.trace.pure.harmless import identity
from graphguard.trace.pure.lookups import Doubt, Pairs

#: From so many layers of a class on, the proof costs less than recording them.
FEWEST: Final = 4
_MOST_TEMPLATES = 4
_MOST_DOUBTS = 3
_NOT_PLAIN = "the backward pass through a copied layer is no plain one"
_LOOKED_AFTER = "the gradients of a copied layer are looked after"
_ADDED = "the gradients of a copied layer are added to others"
_current_node = torch._C._current_autograd_node  # noqa: SLF001
_graph_task = torch._C._current_graph_task_id  # noqa: SLF001
_next_sequence = torch.autograd._get_sequence_nr  # noqa: SLF001


class Repeats(Copying):
    """The copies of one recording."""

    def __init__(self, recorder: Tape) -> None:
        super().__init__(recorder)
        self.copied: list[str] = []
        self._given: tuple[Any, int | None, tuple[int, str] | None] = None, None, None
        self._doubts: Counter[type] = Counter()
        self.is_plain_backward = False
        self._elsewhere: set[int] = set()
        self._joined: list[Layer] = []
        self._templates: dict[type, list[Template] | None] = {}
        self._off = ""
        self._home = (threading.get_ident(), sys.gettrace(), sys.getprofile())

    # -- calls of modules ----------------------------------------------------------------------------------------------
    def call(self, usual: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a module, or copy a call of one like it."""
        if self.is_busy or self._off or not module._modules or not self._is_quiet():  # noqa: SLF001
            return usual(module, *args, **kwargs)
        cls = type(module)
        if cls not in self._templates:
            self._templates[cls] = [] if self.recorder.modules.counts[cls] >= FEWEST else None
        templates = self._templates[cls]
        if templates is None:
            return usual(module, *args, **kwargs)
        for template in templates:
            layer = self._like(template, module, args, kwargs)
            if layer is not None:
                return self._copied(layer)
        if len(templates) >= _MOST_TEMPLATES or self._doubts[cls] >= _MOST_DOUBTS:
            return usual(module, *args, **kwargs)
        return self._recorded(usual, module, args, kwargs)

    def _recorded(
        self, usual: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a module; where nothing is in doubt, it is a template from now on."""
        recorder = self.recorder
        try:
            pending = Pending(self.recorder, module, args, kwargs)
        except Doubt:
            self._doubt(type(module))
            return usual(module, *args, **kwargs)
        self.is_busy, recorder.stacks.noted = True, {}
        try:
            out = usual(module, *args, **kwargs)
        finally:
            self.is_busy, noted, recorder.stacks.noted = False, recorder.stacks.noted, None
        try:
            self._templates[type(module)] = [
                *(self._templates[type(module)] or ()),
                pending.done(out, tuple(noted or ())),
            ]
        except Doubt:
            self._doubt(type(module))
        return out

    def _doubt(self, cls: type) -> None:
        """A call of a module of some class may not be copied: of a class of which none may, no other is tried, and its parts may still be copied."""
        self._doubts[cls] += 1
        self._templates[cls] = self._templates[cls] or None

    def _like(
        self, template: Template, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Layer | None:
        """A call as a copy of a template; None where it may not be the same."""
        pairs = Pairs()
        if (template.grad, template.phase) != (torch.is_grad_enabled(), self.recorder.phase):
            return None
        if template.state != state_of():
            return None
        if list(kwargs) != list(template.kwargs):
            return None
        if not pairs.same((template.args[0], *template.args[1:]), (module, *args)):
            return None
        if not pairs.same(tuple(template.kwargs.values()), tuple(kwargs.values())) or not template.lookups.hold(pairs):
            return None
        if not template.later.hold(pairs):
            return None
        tensors = tuple(other for _, other in pairs.tensors.values())
        try:
            kinds = kinds_of(self.recorder, tensors)
            arguments = arguments_of((args, kwargs))
            leaves = leaves_of(tensors, arguments)
        except Doubt:
            return None
        if kinds != template.kinds or any(
            one is other and other.requires_grad and other.is_leaf for one, other in pairs.tensors.values()
        ):
            return None
        names = self._stacks(template), self._modules(template, pairs)
        if names[0] is None or names[1] is None or _next_sequence() - 1 not in self.recorder.forward_of:
            return None
        recorder = self.recorder
        segment = template.segment
        given = tuple(recorder.storages.number(tensor.untyped_storage()) for tensor in tensors)
        storages = dict(zip(segment.inputs, dict.fromkeys(given), strict=True))
        copy = Copy(segment, storages, recorder.storages.reserve(segment.made), names[0], {}, names[1])
        here = recorder.modules.here
        return Layer(template, copy, pairs, module, args, kwargs, tensors, arguments, leaves, here)

    def _stacks(self, template: Template) -> dict[int, int] | None:
        """The stacks of a copy that is called here; None where they do not end where the template's do."""
        stacks = self.recorder.stacks
        outer = self.recorder.outer()
        if outer == template.outer:
            return {}
        ends = len(template.outer)
        raw = {index: stacks.raw(index) for index in template.stacks}
        if any(one[len(one) - ends :] != template.outer for one in raw.values()):
            return None
        return {index: stacks.intern(one[: len(one) - ends] + outer) for index, one in raw.items()}

    def _modules(self, template: Template, pairs: Pairs) -> dict[str, str] | None:
        paths = self.recorder.modules
        paths.enter(pairs.counterpart(template.args[0]))
        paths.leave()
        found = {}
        for key, path in template.paths.items():
            name = paths.name(pairs.modules[key][1])
            if name is None:
                return None
            found[path] = name
        return found

    # -- copies --------------------------------------------------------------------------------------------------------
    def _copied(self, layer: Layer) -> Any:
        recorder = self.recorder
        template, copy = layer.template, layer.copy
        self.copied.append(recorder.modules.name(layer.module) or "")
        layer.result = self.made(template.result, copy)
        recorder.copied(copy)
        out = layer.result
        if torch.is_grad_enabled() and layer.leaves:
            layer.before = self._before(layer)
            sequence = _next_sequence()
            out = layer.result = super(torch.autograd.Function, _Copied).apply(self, layer, *_inputs(layer))  # type: ignore[misc]
            stack, path = template.marks[template.nodes - 1]
            recorder.forward_of.setdefault(sequence, (copy.stacks.get(stack, stack), copy.module(path)))
        layer.condition = condition_of(layer)
        return out

    def _before(self, layer: Layer) -> Layer | None:
        """The layer that was recorded, where a copy reads what that gives: their backward passes go together, so that the engine need not run that one's graph."""
        first = layer.template.itself
        if (
            first is None
            or any(first is one for one in self._joined)
            or not first.leaves
            or condition_of(first) != first.condition
        ):
            return None
        if not any(tensor is first.result for tensor in layer.read()):
            return None
        self._joined.append(first)
        return first

    # -- the backward pass ---------------------------------------------------------------------------------------------
    @contextmanager
    def differentiating(self, roots: Sequence[Any], inputs: Sequence[Any], *, plain: bool) -> Iterator[None]:
        """The engine runs inside, from these tensors on, to all leaves or to ``inputs``; ``plain``: it goes once through everything, and into the parameters' gradients."""
        if inputs and self.copied and not self.is_asking:
            self.give_up(_NOT_PLAIN)
        before = self.is_plain_backward, self._elsewhere
        self.is_plain_backward = plain and _graph_task() == -1 and _current_node() is None
        if self.copied and _graph_task() == -1:
            self._look_around(roots)
        try:
            yield
        finally:
            self.is_plain_backward, self._elsewhere = before

    def arrived(self, node: Any, layer: Layer, grad: torch.Tensor | None) -> Sequence[torch.Tensor | None]:
        """The gradient of a copy's result has arrived at its node: the gradients of what it read."""
        self._given = None, None, None
        found, last = self._backward(layer, grad)
        first = layer.before
        if first is not None:
            if first.result._backward_hooks or first.result.retains_grad:  # noqa: SLF001
                self.give_up(_LOOKED_AFTER)
            further, last = self._backward(first, found.pop(identity(first.result))[1])
            found.update(further)
        leaves = _inputs(layer)
        grads = [found.pop(identity(leaf))[1] for leaf in leaves]
        for tensor, one in found.values():
            self._put(tensor, one)
        memory = None if grads[0] is None else self.recorder.storages.number(grads[0].untyped_storage())
        is_argument = identity(leaves[0]) in (first or layer).arguments
        self._given = node, memory if is_argument else None, last
        return grads

    def _backward(
        self, layer: Layer, grad: torch.Tensor | None
    ) -> tuple[dict[int, tuple[torch.Tensor, torch.Tensor | None]], Any]:
        """What one layer read, by identity, with its gradient, and the place of the node that gave the argument's."""
        self._check(layer, grad)
        layer.is_done = True
        assert grad is not None
        grads, last = backward(self, layer, grad)
        return {identity(leaf): (leaf, one) for leaf, one in zip(layer.read(), grads, strict=True)}, last

    def _put(self, parameter: torch.Tensor, grad: torch.Tensor | None) -> None:
        """The gradient of a parameter goes where the engine would put it, which takes it much longer; it would copy one that lies otherwise."""
        if identity(parameter) in self._elsewhere:
            self.give_up(_ADDED)
        if grad is not None and not lies_alike(parameter, grad):
            grad = self.recorder.laid_out_like(parameter, grad)
        parameter.grad = grad

    def _look_around(self, roots: Sequence[Any]) -> None:
        """See which leaves a graph reads outside of copies, and that it reads what a recorded layer gives nowhere but in the copy that this goes with."""
        nodes = nodes_from(roots)
        self._elsewhere = leaves_read(nodes)
        inner = {identity(layer.condition[-1]) for layer in self._joined}
        if not inner.isdisjoint(map(identity, nodes)):
            self.give_up(_ADDED)

    def _check(self, layer: Layer, grad: torch.Tensor | None) -> None:
        """Give up unless the backward pass through a copy is now what it was when the copy was made."""
        if layer.is_done or not self.is_plain_backward or grad is None or torch.is_grad_enabled():
            self.give_up(_NOT_PLAIN)
        if condition_of(layer) != layer.condition:
            self.give_up("what a copied layer read has been changed")
        template = layer.template
        if template.state != state_of() or not nobody_else() or not template.later.hold(layer.pairs):
            self.give_up("what a copied layer looks up is another thing now")
        if not self.is_the_same(layer):
            self.give_up(_LOOKED_AFTER)

    def added(self, node: Any, args: Any) -> tuple[int, str]:
        """The engine adds what a copy gave to other gradients: where that belongs, if it is where it would be without copies.

        It is for the argument, where that is read once in the layer, and the node that reads it is the last of the backward pass.
        """
        if self.is_busy:
            return -1, ""  # a call that is known, and is not recorded
        giver, argument, last = self._given
        storages = {ref.storage for ref in refs_in(args)}
        if node is not giver or argument not in storages or last is None:
            self.give_up(_ADDED)
        assert last is not None
        return last

    # -- giving up -----------------------------------------------------------------------------------------------------
    def shows(self, why: str) -> None:
        """The program looks at what tells a copy from what it is a copy of: nothing may have been copied, and nothing will be."""
        self._off = why
        if self.copied:
            self.give_up(why)

    def needs_calls(self) -> None:
        """What was recorded is looked through, call by call, or to be changed in a way in which copies cannot be."""
        if self.copied:
            self.give_up("the calls of copied layers are asked for")

    def _is_quiet(self) -> bool:
        """Whether nobody but the recorder watches, and nothing but the program runs."""
        recorder = self.recorder
        return (
            recorder.paused == 0
            and recorder.inside == 0
            and recorder.phase != "prelude"
            and _current_node() is None
            and _graph_task() == -1
            and self.is_unwatched()
            and not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))
            and not torch.is_inference_mode_enabled()
            and nobody_else()
            and (threading.get_ident(), sys.gettrace(), sys.getprofile()) == self._home
        )


def _inputs(layer: Layer) -> list[torch.Tensor]:
    """What the node of a copy is given: the argument that has a gradient, or, where none has, any parameter."""
    outermost = layer.before or layer
    leaves = outermost.read()
    return [leaf for leaf in leaves if identity(leaf) in outermost.arguments] or leaves[:1]


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, repeats: Repeats, layer: Layer, *_: torch.Tensor) -> Any:
        ctx.repeats, ctx.layer = repeats, layer
        ctx.set_materialize_grads(False)
        return layer.result

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return (None, None, *ctx.repeats.arrived(ctx, ctx.layer, grad))


#: The type of a copy's node in the autograd graph.
COPIED: Final = _Copied._backward_cls  # noqa: SLF001
