"""Writes down every operator that a program runs, forward and backward, with eager semantics.

A ``TorchDispatchMode`` over a ``FakeTensorMode``: nothing is computed but shapes, and what is seen is what eager PyTorch would run, the
autograd engine's calls included.  Collectives are written down and never run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch
from torch._library import simple_registry
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed import _functional_collectives
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from graphguard.ir.graph import Sym
from graphguard.ir.left import gradient_of
from graphguard.trace.calls import state
from graphguard.trace.calls.collectives import AS_MANY
from graphguard.trace.calls.constants import Constants, constant_of, dtype_name, storage_of, tensors_in, whole_memory
from graphguard.trace.calls.events import Event, Members, Ref
from graphguard.trace.calls.geometry import stride_of
from graphguard.trace.calls.kernels import Kernels
from graphguard.trace.calls.kinds import Kind, kind_of
from graphguard.trace.calls.lockstep import Ledger
from graphguard.trace.calls.modules import ModulePaths
from graphguard.trace.calls.segments import Copy
from graphguard.trace.calls.storages import Storages
from graphguard.trace.elide.repeats import COPIED, Repeats
from graphguard.trace.gpu.cuda import refuse_cuda
from graphguard.trace.record.births import Births, forget_copies
from graphguard.trace.record.branches import Decision, asked, before_training, decided
from graphguard.trace.record.finiteness import ASSUMED, truth_where_finite
from graphguard.trace.record.flags import truth_in_general
from graphguard.trace.record.one_memory import OneMemory
from graphguard.trace.record.opening import apart, autocast_as_called, cannot_be_recorded, opened
from graphguard.trace.record.randomness import Draws
from graphguard.trace.record.seeded import follows_from_seeds, is_read_as_drawn, seed_of
from graphguard.trace.record.values import Values, grouped
from graphguard.trace.record.versions import count_writes
from graphguard.trace.replace.arguments import plain
from graphguard.trace.replace.freed import Freed
from graphguard.trace.replace.pinned import without_pinning
from graphguard.trace.source.errors import DATA_DEPENDENT, TracingError, raised
from graphguard.trace.source.probes import wrote
from graphguard.trace.source.provenance import RawStack, Stacks, walk
from graphguard.trace.source.sources import is_ours
from graphguard.trace.worlds.works import finished_work

_aten = torch.ops.aten
_DEVICE_OF = torch.ops.prim.device.default
_ITEM = _aten._local_scalar_dense.default  # noqa: SLF001
_CLONE = _aten.clone.default
_COPY = _aten.copy_.default
_LIFT = _aten.lift_fresh.default
_WAIT_TENSOR = torch.ops._c10d_functional.wait_tensor.default  # noqa: SLF001
_WRAPS = _functional_collectives._maybe_wrap_tensor.__code__  # noqa: SLF001
_NEAR = 12  # frames between that function and the recorder
_MESSAGES = frozenset(("c10d::send", "c10d::recv_", "c10d::recv_any_source_"))
_PLAIN = frozenset((type(None), bool, int, float, str))
# Frames of ours below whoever calls an operator: ``_event``, what called it, ``_dispatch`` and ``__torch_dispatch__``.
_DISPATCHED = 4
# Types that are asked for at every call: as tuples, because a union is built anew each time that it is written out.
_FACTS = (torch.dtype, torch.device, bool)
_HOLDERS = (torch.Tensor, list, tuple)
_PASSES_ON = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001 - what types without a dispatch of their own have, such as Parameter
_current_node = torch._C._current_autograd_node  # noqa: SLF001  # the engine's running node has no public accessor
_next_sequence = torch.autograd._get_sequence_nr  # noqa: SLF001


class Recorder(TorchDispatchMode):
    """Records into ``events``; everything it has seen stays alive, so identities stay valid."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: nothing is compiled while a program is recorded, and the guard against it costs more than many a call."""
        return False

    def __init__(
        self,
        fake_mode: FakeTensorMode,
        ledger: Ledger,
        stop: FrameType | None = None,
        *,
        copies: bool = False,
        draws: bool = False,
        note: Callable[[Any, Any, Any, Any], None] | None = None,
    ) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.kernels = Kernels(fake_mode, note)
        self.ledger = ledger
        self.events: list[Event] = []
        self.groups: list[Event] = []
        self.stacks = Stacks()
        self.storages = Storages()
        self.ref = self.storages.ref  # asked for every tensor of every call
        self.constants = Constants()
        self.memory = self.constants.shown = OneMemory(self)
        self.draws = Draws(known=draws)
        self.modules = ModulePaths()
        self.phase = "prelude"
        self.decisions: list[Decision] | None = None
        self.samples: set[int] = set()
        self.assumed: set[str] = set()
        self.named: dict[int, str] = {}
        self._gradients = 0
        self.declared: set[str] = set()
        self.opened: set[str] = set()
        self.paused = 0
        self.inside = 0
        self.repeats = Repeats(self) if copies else None
        self.births = Births(self.events, self.kernels)
        self._values = Values(fake_mode, self.constants, ledger, self.pause)
        self.shared: set[int] = set()
        self.pinned: set[int] = set()
        self.freed = Freed()
        self._stop = stop
        self.forward_of: dict[int, tuple[int, str]] = {}
        self._alive: list[Any] = []
        self._twins: dict[int, FakeTensor] = {}

    # -- identities ----------------------------------------------------------------------------------------------------
    def number_of(self, tensor: torch.Tensor) -> int | None:
        """The number of the storage that a tensor shows, if an operator has met it."""
        fake = tensor if isinstance(tensor, FakeTensor) else self.twin_of(tensor)
        return None if fake is None else self.storages.known(fake)

    def twin(self, real: torch.Tensor) -> FakeTensor:
        """The fake tensor that stands for a real one from outside, the same each time; its value is known."""
        fake = self._twins.get(id(real))
        if fake is None:
            fake = self.memory.twin(real)
            is_met = fake is not None
            with self.pause():
                if fake is None:
                    fake = self.fake_mode.from_tensor(real.detach(), static_shapes=True)
                if real.requires_grad and real.is_leaf:
                    fake.requires_grad_(requires_grad=True)
            self._twins[id(real)] = fake
            self._alive.append(real)
            if not is_met:
                self._literal(fake, real)
                self.memory.met(real, fake)
        return fake

    def twin_of(self, real: torch.Tensor) -> FakeTensor | None:
        """The fake tensor that stands for a real one, if an operator has met it."""
        return self._twins.get(id(real))

    def adopt(self, real: torch.Tensor, fake: FakeTensor) -> None:
        """From now on ``fake`` stands for ``real`` wherever an operator meets it."""
        self._twins[id(real)] = fake
        self._alive.append(real)
        self.memory.adopted(real, fake)

    def stand_in(self, real: torch.Tensor, fake: FakeTensor) -> torch.Tensor:
        """From now on a real tensor shows the memory of ``fake``; returns memory of that shape and type, unwritten, for it to be made of."""
        with self.pause(), self.fake_mode:
            self.adopt(real, self.kernels.shown_by(fake).requires_grad_(real.requires_grad))
        with _disable_current_modes():
            return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=real.device)

    def born(self, parameter: Any) -> None:
        """A parameter has been made."""
        if isinstance(parameter, FakeTensor) and parameter.fake_mode is self.fake_mode and self.phase == "prelude":
            self.births.note(parameter)

    def read_since_birth(self, parameter: Any) -> FakeTensor | None:
        """The memory that a parameter was made with, if its elements have gone elsewhere since."""
        self.need_all()
        storage = self.births.storage(parameter)
        if storage is None or self.births.first_read(self.storages.number(storage)) is None:
            return None
        with self.pause(), self.fake_mode:
            return self.births.shown(parameter)

    def write_before_reads(self, writes: Iterable[tuple[FakeTensor, Callable[[], torch.Tensor], int | None]]) -> None:
        """Each memory held its value before the call of that number, by default the first that reads it; where nothing has, it holds it now."""
        self.need_all()
        groups: dict[int, list[Event]] = {}
        storages: set[int] = set()
        with torch.no_grad(), self.memory.given(), self.freed.earlier():
            for memory, value, before in writes:
                index = self.births.first_read(self.ref(memory).storage) if before is None else before
                start = len(self.events)
                memory.copy_(value())
                if index is not None:
                    groups.setdefault(index, []).extend(self.births.cut(start))
                    storages.add(self.ref(memory).storage)
        if groups:
            self.births.insert(groups)
            forget_copies(self.events[min(groups) :], storages, self.storages.numbers, self.constants)

    def showing(self, number: int, like: torch.Tensor) -> FakeTensor:
        """A tensor that shows a storage as another tensor shows its own."""
        memory = self.storages.met(number)
        if memory is None:
            self.need_all()
        with self.pause(), self.fake_mode, torch.no_grad():
            shown = torch.empty(0, dtype=like.dtype, device=like.device)
            return shown.set_(memory, like.storage_offset(), like.shape, like.stride())

    def decides_by_data(self, tensor: FakeTensor) -> bool:
        """Whether only the data decides what a tensor of known shape holds."""
        shaped = not any(isinstance(extent, torch.SymInt) for extent in tensor.shape)
        return shaped and not self.constants.is_known(tensor) and self.constants.knowledge([tensor]) != "pending"

    def elements(self, tensor: FakeTensor) -> torch.Tensor:
        """What a tensor holds, where that is known; a program that needs it otherwise cannot be recorded."""
        self.need_elements(tensor)
        with _disable_current_modes():
            return self.constants.real(tensor).clone()

    def resized(self, storage: torch.UntypedStorage, before: int) -> None:
        """A storage had ``before`` bytes."""
        if not self.paused:
            self.freed.resized(self.storages.number(storage), before, storage.nbytes())

    def need_elements(self, tensor: FakeTensor) -> None:
        """The program cannot go on without what a tensor holds."""
        if not self.constants.is_known(tensor):
            if self.constants.knowledge([tensor]) == "pending":
                self.ledger.need()
            self._reads(tensor)
            raise TracingError("trace-error", DATA_DEPENDENT)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Nothing is recorded inside."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    # -- dispatch ------------------------------------------------------------------------------------------------------
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE_OF and type(args[0]) is FakeTensor:
            return args[0]._fake_device  # noqa: SLF001  # most calls are this one, by the autograd engine
        for kind in types:
            if kind is not FakeTensor and kind is not torch.Tensor and _takes_itself_apart(kind):
                return NotImplemented  # wrapper subclasses (DTensor, AsyncCollectiveTensor) take themselves apart first
        if func is _DEVICE_OF and isinstance(args[0], FakeTensor):
            return args[0]._fake_device  # noqa: SLF001
        kwargs = kwargs or {}
        if "device" in kwargs:
            refuse_cuda(kwargs["device"])
        if self.paused:
            return func(*args, **kwargs)
        pins = kwargs.get("pin_memory")
        if pins:
            kwargs = without_pinning(kwargs)
        if type(func) is not OpOverload and isinstance(func, HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        kind = kind_of(func)
        operands = tensors_in(args)
        for tensor in operands:
            if not isinstance(tensor, FakeTensor):
                return self._with_outsiders(kind, args, kwargs, operands)
            if tensor.fake_mode is not self.fake_mode:
                return func(*args, **kwargs)  # such as DTensor's sharding propagation
        out = self._dispatch(kind, args, kwargs, operands)
        if pins:
            self.pinned.add(self.ref(out).storage)
        return out

    def _with_outsiders(self, kind: Kind, args: Any, kwargs: Any, operands: list[torch.Tensor]) -> Any:
        """A call with real tensors among its operands."""
        if any(isinstance(tensor, FakeTensor) and tensor.fake_mode is not self.fake_mode for tensor in operands):
            return kind.operator(*args, **kwargs)
        if kind.operator is _LIFT:
            return self._lift(args[0])
        args = self._faked(args)
        return self._dispatch(kind, args, kwargs, tensors_in(args))

    def _dispatch(self, kind: Kind, args: Any, kwargs: Any, operands: list[torch.Tensor]) -> Any:
        try:
            if kwargs:
                kwargs = self._faked(kwargs)
                operands.extend(tensors_in(kwargs))
            if self.memory.followed:
                self.memory.refresh(operands)
            if self.freed.memory:
                self.freed.used(kind, args, kwargs, self.storages.known)
            if kind.is_c10d:
                return self._communicate(kind, args, kwargs)
            if kind.is_foreign and (out := self._opened(kind, args, kwargs)) is not NotImplemented:
                return out
            if kind.unfused is not None and not (kind.needs_values and self.constants.knowledge(operands) == "known"):
                with autocast_as_called() if kind.is_composite else nullcontext(), self, torch.no_grad():
                    out = kind.unfused(*args, **kwargs)
                if out is not NotImplemented:
                    return out
            if kind.takes_masks:
                args = self._values.by_positions(args, self._lift, self._recorded)
                operands = tensors_in((args, kwargs))
            return self._operate(kind, args, kwargs, operands)
        except Exception as error:
            if cannot_be_recorded(error):
                raised(error)
            raise

    def _recorded(self, call: Callable[[], Any]) -> Any:
        with self, torch.no_grad():  # inside a dispatch nothing is recorded by itself
            return call()

    def _opened(self, kind: Kind, args: Any, kwargs: Any) -> Any:
        self.inside += 1
        try:
            return opened(self, kind, args, kwargs)
        finally:
            self.inside -= 1

    def _operate(self, kind: Kind, args: Any, kwargs: Any, operands: list[torch.Tensor]) -> Any:
        func, random = kind.operator, kind.is_random
        if kind.changes_views and self.repeats is not None:
            self.repeats.needs_calls()  # to which a view is not what a copy's result is
        if random and self.draws.known:
            return self._drawn(kind, args, kwargs, operands)
        knowledge = "unknown" if random else self._values.known_of(kind, args, operands)
        if knowledge == "unknown" and kind.needs_values and operands:
            self._reads(operands[0])
        if knowledge == "known" and kind.needs_values:
            out = self._values.result(func, args, kwargs)
            if not isinstance(out, (FakeTensor, list, tuple)):
                return out
        elif func is _ITEM and knowledge == "pending":
            self.ledger.need()
        elif func is _ITEM and args[0].dtype == torch.bool and (truth := self._truth(args[0])) is not None:
            return truth
        else:
            before = [storage_of(tensor) for tensor in tensors_in(args)] if knowledge != "unknown" else []
            out = self.kernels.run(kind, args, kwargs)
            if kind.is_foreign:
                out = apart(kind, out, operands)
            self._values.learn(kind, args, kwargs, out, knowledge, before)
        if isinstance(out, _FACTS) or (out is None and not kind.is_mutable):
            return out
        if not operands and not tensors_in(out):
            return out
        if kind.calls_collective:
            args = grouped(func, args)
        event = self._event(func, args, kwargs, out)
        event.draw = self.draws.of_call(func, args, kwargs, out) if random else None
        if kind.is_mutable:
            count_writes(kind, args)
        return out

    def _drawn(self, kind: Kind, args: Any, kwargs: Any, operands: list[torch.Tensor]) -> Any:
        """A draw in a check whose programs read what they draw: numbers that are read are what PyTorch draws."""
        out = self.kernels.run(kind, args, kwargs)
        draw = self._values.drawing(kind, args, kwargs, operands, out)
        drawn = None if draw is None else self.draws.in_earnest(args, kwargs, draw, out)
        if drawn is not None and is_read_as_drawn(self.ref(out)):
            value, (stream, _) = drawn
            self.assumed.add(f"numbers drawn with seed {seed_of(stream)} are those that PyTorch draws on a CPU")
            literal = self._lift(value)
            return self._recorded(lambda: _COPY(args[0], literal)) if kind.is_mutable else literal
        named = self.draws.of_call(kind.operator, args, kwargs, out) if drawn is None else drawn[1]
        self._values.learn(kind, args, kwargs, out, "unknown", [])
        self._event(kind.operator, args, kwargs, out, _DISPATCHED + 1).draw = named
        return out

    def _reads(self, tensor: torch.Tensor) -> None:
        """The program reads a number: where it drew that of a seed, all programs must be recorded with what is drawn."""
        draws, copied = self.draws, self.repeats is not None and self.repeats.copied
        if (
            draws.any_made and not draws.are_read and not draws.known and not copied
        ):  # a sampler is read before layers are copied
            draws.are_read = follows_from_seeds(self.events, self.ref(tensor))

    def _event(self, func: Any, args: Any, kwargs: Any, out: Any, depth: int = _DISPATCHED) -> Event:
        node = _current_node()
        stack = self.stacks.here(depth, self._stop)
        sequence, forward, module, phase = None, -1, self.modules.here, self.phase
        if node is not None:
            sequence = node._sequence_nr()  # noqa: SLF001
            if type(node) is COPIED:
                assert self.repeats is not None
                forward, module = self.repeats.added(node, self.convert(args))
            else:
                forward, module = self.forward_of.get(sequence, (-1, module))
            phase = "backward" if phase == "forward" else phase
        if node is None or torch.is_grad_enabled():  # what a backward pass computes anew is differentiated as well
            self.forward_of.setdefault(_next_sequence() - 1, (stack, module))
        event = Event(func, self.convert(args), self.convert(kwargs), self.convert(out), stack, sequence, module, phase)
        event.forward = forward
        if func is _WAIT_TENSOR:
            event.waited = not _is_put_off()
        self.events.append(event)
        return event

    def places(self) -> tuple[int, int]:
        """The stack that an operator is called on now, and, inside the backward pass, the one of what it is the gradient of."""
        node = _current_node()
        forward = (-1, "") if node is None else self.forward_of.get(node._sequence_nr(), (-1, ""))  # noqa: SLF001
        return self.stacks.here(2, self._stop), forward[0]

    def need_all(self) -> None:
        """The calls that were recorded are asked for: one by one, which copies are not."""
        if self.repeats is not None:
            self.repeats.needs_calls()

    # -- copies --------------------------------------------------------------------------------------------------------
    def outer(self) -> RawStack:
        """The program's own frames, as they are where this is asked."""
        return walk(sys._getframe(1), self._stop)  # noqa: SLF001

    def laid_out_like(self, tensor: torch.Tensor, value: torch.Tensor) -> FakeTensor:
        """A copy of a value, of which nothing else is known, that lies as a tensor of its shape does."""
        like = tuple(tensor.shape), stride_of(tensor), tensor.dtype, tensor.device
        made: FakeTensor = self.kernels.laid_out(*like)
        self.events.append(Event(_CLONE, (self.ref(value),), {}, self.ref(made), -1, None, "", self.phase))
        return made

    def facts(self) -> tuple[int, ...]:
        """How much there is that is neither a call nor a tensor."""
        return tuple(len(facts) for facts in (self.assumed, self.declared, self.opened, self.ledger.offers))

    def copied(self, copy: Copy) -> None:
        """A segment of the recording is here once more."""
        self.ledger.count(copy.segment.calls)
        self.events.append(Event("copy", (copy,), {}, None, -1, None, "", self.phase))

    def note(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        """Write down a leaf, an output or a label."""
        fake = self.faked(tensor)
        self.memory.refresh((fake,))
        self.events.append(Event(kind, (name,), {}, self.ref(fake), -1, None, "", self.phase))

    def note_number(self, name: str, number: Any) -> None:
        """Write down an output that is a number."""
        value = Sym(str(number.node.expr))
        self.events.append(Event("number", (name,), {}, value, -1, None, "", self.phase))

    def note_gradient(self, tensor: torch.Tensor, gradient: torch.Tensor) -> None:
        """Write down what is worked out as a gradient of a tensor that has a name."""
        name = self.named.get(id(tensor))
        if name is not None:
            self._gradients += 1
            self.note("output", gradient_of(name, self._gradients), gradient)

    def entering_function(self) -> None:
        """A custom autograd function is about to be applied: its backward belongs to this line."""
        if not self.paused:
            self.forward_of.setdefault(_next_sequence(), (self.stacks.here(2, self._stop), self.modules.here))

    # -- arguments -----------------------------------------------------------------------------------------------------
    def faked(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor as the graph knows it."""
        return tensor if isinstance(tensor, FakeTensor) else self.twin(tensor)

    def _faked(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if isinstance(value, FakeTensor) else self.twin(value)
        if isinstance(value, (list, tuple)) and any(isinstance(item, _HOLDERS) for item in value):
            return type(value)(self._faked(item) for item in value)
        if isinstance(value, dict) and value:
            return {key: self._faked(item) for key, item in value.items()}
        return value

    def convert(self, value: Any) -> Any:
        """An argument as an event holds it."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is FakeTensor or isinstance(value, torch.Tensor):
            return self.ref(value)
        if isinstance(value, (list, tuple)):
            return tuple([item if type(item) in _PLAIN else self.convert(item) for item in value])
        if isinstance(value, dict):
            return {key: self.convert(item) for key, item in value.items()} if value else {}
        return plain(value)

    # -- collectives ---------------------------------------------------------------------------------------------------
    def _communicate(self, kind: Kind, args: Any, kwargs: Any) -> Any:
        func = kind.operator
        returns = len(func._schema.returns)  # noqa: SLF001
        if func._schema.name == "c10d::check_for_nan":  # noqa: SLF001
            return None
        world = state.current_world()
        gloo = world is not None and world.chose_gloo
        if self._values.refuse(func, args, gloo=gloo):
            self.assumed.add(AS_MANY)
        event = self._event(func, args, kwargs, None)
        count_writes(kind, args, gloo=gloo)
        wrote((args, kwargs))
        work = finished_work(args[0], lambda: self._waited(event))
        out = (args[0], work) if returns == 2 else work if returns == 1 else None
        self._values.follow(func, args, None)
        return out

    def _waited(self, event: Event) -> None:
        """The program waits for a call; at once, if nothing has happened since."""
        if self.events[-1] is not event:
            self.synchronized(event)
            return
        event.waited = True
        if event.op._schema.name in _MESSAGES:  # noqa: SLF001
            event.kwargs["blocking"] = True

    def formed(self, made: Members, among: str) -> None:
        """The program makes a group; where only its members do, they find each other as members of as many others."""
        event = self.met("new_group", made, among)
        if not among:
            self.groups.append(event)

    def met(self, call: str, group: Members, among: str = "") -> Event:
        """The program calls what makes groups: the members of ``group`` wait for each other."""
        stack = self.stacks.here(2, self._stop)
        event = Event("group", (call, among, group), {}, None, stack, None, self.modules.here, self.phase)
        self.events.append(event)
        return event

    def synchronized(self, *events: Event) -> None:
        """The program waits for these collectives; for all of them, where none is named."""
        self.events.append(Event("wait", events, {}, None, -1, None, "", self.phase))

    # -- values --------------------------------------------------------------------------------------------------------
    def literal(self, real: torch.Tensor, kept: Any = None) -> FakeTensor:
        """The fake tensor of a real one that the program has made, as long as which ``kept`` stays alive."""
        self._alive.append(kept)
        return self._lift(real)

    def written(self, tensor: FakeTensor, value: torch.Tensor) -> None:
        """The program has given a tensor these elements without an operator."""
        literal = self.literal(value)
        with self.pause(), torch.no_grad():
            out = self.kernels.run(kind_of(_COPY), (tensor, literal), {})
        self._event(_COPY, (tensor, literal), {}, out)

    def _lift(self, real: torch.Tensor) -> FakeTensor:
        with self.pause():
            fake = self.fake_mode.from_tensor(real, static_shapes=True)
        self._literal(fake, real)
        return fake

    def _literal(self, fake: FakeTensor, real: torch.Tensor) -> None:
        stack = self.stacks.here(3, self._stop)
        self._alive.append(real)
        value = whole_memory(real)
        ref = self.ref(fake)
        if value is not real:
            ref = Ref(ref.storage, (0, (value.numel(),), (1,), dtype_name(value.dtype)))
        event = Event("constant", (constant_of(value),), {}, ref, stack, None, self.modules.here, self.phase)
        self.events.append(event)
        self.constants.set(fake, real)

    def _truth(self, condition: torch.Tensor) -> bool | None:
        """A condition that only checks for NaN and infinity decide, without which the program raises, or that has one truth in general."""
        truth = self.truth_where_finite(condition)
        if truth is not None:
            return truth
        ref, question = self.ref(condition), asked()
        if self.phase == "prelude":
            return before_training(self, question, {ref.storage})
        if question is None:
            return None
        general = None if question.needs is not None else truth_in_general(self.events, ref)
        truth, why = (question.needs, None) if general is None else general
        if truth is None:
            return decided(self, question, condition)
        self.assume(ref, truth=truth, text=question.told(truth, why))
        return truth

    def truth_where_finite(self, condition: torch.Tensor) -> bool | None:
        """A condition that is known if every number is finite, which then is assumed."""
        self.need_all()
        with self.pause():  # looking at constants is no call of the program
            truth = truth_where_finite(self.events, self.ref(condition))
        if truth is not None:
            self.assumed.add(ASSUMED)
        return truth

    def assume(self, what: Ref | Sym, *, truth: bool, text: str) -> None:
        """From here on a condition is this, or a size is not zero; ``text`` says so to the user."""
        stack = self.stacks.here(2, self._stop)
        self.assumed.add(text)
        self.events.append(Event("assume", (what, truth), {}, None, stack, None, self.modules.here, self.phase))

    def _higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self.pause():
            out = func(*args, **kwargs)
        self._event(func, args, kwargs, out, _DISPATCHED - 1)
        return out


def _is_put_off() -> bool:
    """Whether PyTorch calls ``wait_tensor`` where an eager program gets a tensor that waits when it is read: it does so where tensors are fake."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - who asks is what counts
    left = _NEAR
    while frame is not None and left:
        if frame.f_code is _WRAPS:
            return True
        left -= not is_ours(frame.f_code.co_filename)  # who looks on, as when a rank is sounded
        frame = frame.f_back
    return False


def _find_rule(usual: Callable[[Any, type], Any]) -> Callable[[Any, type], Any]:
    """PyTorch looks up for every call whether an operator has a rule for the mode that sees it; for a recorder none has."""

    def find_torch_dispatch_rule(op: Any, mode: type) -> Any:
        return None if mode is Recorder else usual(op, mode)

    return find_torch_dispatch_rule


simple_registry.find_torch_dispatch_rule = _find_rule(simple_registry.find_torch_dispatch_rule)


def _takes_itself_apart(kind: Any) -> bool:
    return not issubclass(kind, FakeTensor) and kind.__torch_dispatch__ is not _PASSES_ON
