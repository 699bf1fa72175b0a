"""One program, run once and written down: what the tracing worker composes its captures from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.ir.capture import Trouble
from graphguard.ir.collection import without_collection
from graphguard.ir.graph import Constant, Graph, Size
from graphguard.ir.left import gradient_of
from graphguard.ir.spans import Frame, Span
from graphguard.trace.calls import state
from graphguard.trace.calls.communicators import Formed
from graphguard.trace.calls.constants import LARGEST, constant_of
from graphguard.trace.calls.events import Event, Geometry, refs_in
from graphguard.trace.calls.geometry import size_of
from graphguard.trace.calls.lockstep import Answers, Ask, Ledger, NeedsAnswers, Offer
from graphguard.trace.elide.copying import GaveUp
from graphguard.trace.elide.watching import watching
from graphguard.trace.gpu import cuda
from graphguard.trace.graph.functional import functionalise
from graphguard.trace.graph.layouts import COPIES, Backend
from graphguard.trace.graph.meetings import Stop, without_stops
from graphguard.trace.graph.races import IN_ORDER, Races
from graphguard.trace.record.branches import Decision
from graphguard.trace.record.exchange import tensor_of
from graphguard.trace.record.makings import Makings
from graphguard.trace.record.operators import Notes, new_fake_mode
from graphguard.trace.record.origins import Origins
from graphguard.trace.record.randomness import own_random_state, restart_unseeded
from graphguard.trace.record.recorder import Recorder
from graphguard.trace.record.values import EMPTY
from graphguard.trace.source.errors import (
    DATA_DEPENDENT,
    TracingError,
    first_raised,
    forgotten,
    is_data_dependence,
)
from graphguard.trace.source.provenance import frame_at, is_shown
from graphguard.trace.worlds.works import forget_works
from graphguard.trace.worlds.world import World

__all__ = ["NeedsAnswers", "RankTrace", "Recording"]

CAUGHT = "the program catches what is raised here and goes on, as it does only where it is recorded"


@dataclass(frozen=True, slots=True)
class RankTrace:
    """What came of recording one rank: plain data.

    ``wants_cuda``: the program hardcodes CUDA: record all of it again in worlds whose device is ``cuda``, in fresh children.
    ``declared`` are the operators that stay closed because a comment says what they are, ``opened`` those whose own code was recorded.
    ``gave_up``: layers were copied, and what came of it may differ from the program: record all of it again without; says why.  ``copied`` are the layers that were.
    ``reads_draws``: it reads what it draws from a seed: record all of it again with these numbers.
    ``groups``: the calls of ``new_group`` that all ranks must make.  ``stops``: where the rank stands until others come, as nodes, each with the number of the graph's nodes before it.
    ``reads``: the variables that say which machine the rank is on, where the program reads them.
    ``waiting``: the program needs a value that other ranks contribute to (see :mod:`graphguard.trace.calls.lockstep`); then ``graph`` is None.
    """

    graph: Graph | None
    troubles: tuple[Trouble, ...] = ()
    assumed: tuple[str, ...] = ()
    published: tuple[Offer, ...] = ()
    waiting: bool = False
    wants_cuda: bool = False
    reads_draws: bool = False
    declared: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    gave_up: str = ""
    copied: tuple[str, ...] = ()
    groups: tuple[Formed, ...] = ()
    stops: tuple[Stop, ...] = ()
    reads: tuple[tuple[str, Span], ...] = ()


class Recording:
    """A context in which everything that PyTorch runs is recorded, on fake tensors; ``finish`` gives the graph.

    ``phase`` is ``prelude`` at the start; the caller moves it on.  Leaves, outputs and labels are declared as they come up.  ``closed`` are operators that nobody is to look into.
    ``copies``: layers that are alike are recorded once; what then cannot be said to be as it would be without has ``gave_up`` in its trace.
    ``draws``: what is drawn from a seed and read is drawn in earnest; a program that would need it says so in ``reads_draws``.
    ``ask``: the rank stands at calls that others decide too, until they come.
    """

    def __init__(
        self,
        world: World,
        answers: Answers | None = None,
        closed: frozenset[str] = frozenset(),
        *,
        copies: bool = False,
        draws: bool = False,
        ask: Ask | None = None,
    ) -> None:
        self.world = world
        self.ledger = Ledger(world.rank, answers, ask)
        self._mode = new_fake_mode()
        self._notes = Notes()
        caller = sys._getframe(1)  # noqa: SLF001  # frames beyond are the caller's
        self._recorder = Recorder(self._mode, self.ledger, caller, copies=copies, draws=draws, note=self._notes.take)
        self._recorder.declared.update(closed)
        self._makings = Makings(self._recorder.outer)
        self._stack = ExitStack()
        self._troubles: list[Trouble] = []
        self._waiting = False
        self._wants_cuda = False

    def __enter__(self) -> Recording:
        recorder = self._recorder
        forgotten()
        enter = self._stack.enter_context
        enter(without_collection())
        enter(own_random_state())
        enter(_default_dtype())
        enter(_portable_kernels())
        enter(recorder.modules.watch())
        enter(self._makings.watch())
        enter(_steps(recorder))
        enter(watching(recorder.repeats))
        state.push_recorder(recorder)
        self._stack.callback(state.pop_recorder)
        enter(self._mode)
        enter(recorder)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> bool:
        self._stack.close()
        forget_works()
        if self.gave_up or self.reads_draws:
            return True  # whatever the program made of that
        if isinstance(error, NeedsAnswers):
            self._waiting = True
            return True
        if error is not None and cuda.wants_cuda(error):
            self._wants_cuda = True
            return True
        return False

    # -- declarations --------------------------------------------------------------------------------------------------
    @property
    def phase(self) -> str:
        """``prelude``, ``forward``, ``backward`` or ``step``."""
        return self._recorder.phase

    @phase.setter
    def phase(self, phase: str) -> None:
        if self._recorder.phase == "prelude" and phase == "forward":
            restart_unseeded()
            self._recorder.constants.largest = LARGEST
        self._recorder.phase = phase

    @property
    def knows_draws(self) -> bool:
        """Whether what the program draws from a seed and reads is drawn in earnest."""
        return self._recorder.draws.known

    def runs_a_script(self) -> None:
        """What runs is a script: what it asks of numbers is answered, so that it goes on, and noted once it trains."""
        self._recorder.decisions = []

    def trains_on(self, tensor: torch.Tensor) -> None:
        """A tensor is of a sample that the script trains on."""
        self._recorder.samples.add(self._recorder.ref(self._recorder.faked(tensor)).storage)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The branches on numbers that the script was recorded one way of, once it trains."""
        return tuple(self._recorder.decisions or ())

    @property
    def unseen(self) -> tuple[str, ...]:
        """The operator calls whose result no earlier recording of this process or its ancestors had worked out."""
        return tuple(self._notes.calls)

    @property
    def gave_up(self) -> bool:
        """Whether the program must be recorded without copies of its layers."""
        repeats = self._recorder.repeats
        return repeats is not None and bool(repeats.gave_up)

    @property
    def reads_draws(self) -> bool:
        """Whether the program must be recorded with the numbers that it draws."""
        return self._recorder.draws.are_read

    def leaf(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        value: torch.Tensor | None = None,
        requires_grad: bool = False,
        device: torch.device | str | None = None,
    ) -> torch.Tensor:
        """A fake tensor that is the graph's input ``name``; ``value`` makes its elements known.

        It lies where the program expects it, by default on the world's device: that of a module's parameters, that of an output for its cotangent.
        """
        with self._recorder.pause(), self._mode:
            fake = self._recorder.kernels.new(shape, dtype, torch.device(device or self.world.device))
        self._recorder.note("leaf", name, fake)
        if value is not None:
            with self.on_real_tensors():
                self._recorder.constants.set(fake, value)
        return fake.requires_grad_(requires_grad)

    def stand_in(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: str, value: Constant | None, *, requires_grad: bool
    ) -> torch.Tensor:
        """A fake tensor for one that another process has, on a device of that type: no operator makes it, and none should read it."""
        with self._recorder.pause(), self._mode:
            fake = self._recorder.kernels.new(shape, dtype, torch.device(device))
        if value is not None:
            with self.on_real_tensors():
                self._recorder.constants.set(fake, tensor_of(value))
        return fake.requires_grad_(requires_grad)

    def bind(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """``tensor`` (a parameter, a buffer, a DTensor) now holds ``value``, which is this rank's part."""
        local = getattr(tensor, "_local_tensor", tensor)
        with torch.no_grad(), self._recorder.memory.given():
            local.copy_(value)

    def bind_before_reads(self, values: Iterable[tuple[torch.Tensor, Callable[[], torch.Tensor]]]) -> None:
        """These tensors held these values before anything read their memory; from now on, where nothing has."""
        recorder = self._recorder
        recorder.write_before_reads((recorder.faked(memory), value, None) for memory, value in values)

    def written_among(self, tensors: Sequence[torch.Tensor]) -> list[bool]:
        """For each of these tensors whether the program, once it ran, wrote into its memory."""
        later = (event for event in self._recorder.events if event.phase != "prelude" and event.kind is not None)
        written = {ref.storage for event in later for ref in event.written}
        return [self.memory_of(tensor)[0] in written for tensor in tensors]

    def memory_of(self, tensor: torch.Tensor) -> tuple[int, Geometry]:
        """The storage that a tensor, or a rank's own part of it, lies in, and where."""
        return self._recorder.ref(self._recorder.faked(_whole(tensor))).key

    def origins(self, tensors: Sequence[torch.Tensor]) -> Origins:
        """What was made so far of some tensors."""
        self._recorder.need_all()
        return Origins(self._recorder, tensors)

    def read_since_birth(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """The memory that a parameter was made with, if its elements have gone elsewhere since: into flat buffers, partitions, copies."""
        return self._recorder.read_since_birth(parameter)

    def shape_at_birth(self, parameter: torch.Tensor) -> tuple[int, ...] | None:
        """The shape that a parameter was made with; None for one that was made before the recording."""
        return self._recorder.births.shape(parameter)

    def same_memory(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        """Whether two tensors show the same elements of the same memory."""
        return self._recorder.ref(one).key == self._recorder.ref(other).key

    def output(self, name: str, tensor: torch.Tensor) -> None:
        """The value of ``tensor`` as it is now is the graph's output ``name``."""
        self._recorder.note("output", name, _whole(tensor))

    def number(self, name: str, number: Any) -> None:
        """What a number that was read from tensors is made of is the graph's output ``name``, where its operators say that."""
        self._recorder.note_number(name, number)

    def gradient(self, name: str, gradient: torch.Tensor) -> None:
        """The gradient that lies in the parameter of that name at the end."""
        self._recorder.note("output", gradient_of(name), _whole(gradient))

    def assume(self, text: str) -> None:
        """Something that every verdict on this program rests on."""
        self._recorder.assumed.add(text)

    def label(self, tensor: torch.Tensor, name: str) -> None:
        """A name for what ``tensor`` holds now."""
        self._recorder.named[id(tensor)] = name
        self._recorder.note("label", name, _whole(tensor))

    def made(self, owners: Sequence[nn.Module], name: str) -> tuple[Frame, ...]:
        """Where the first of these modules made its parameter of that name, and where that module was made."""
        return self._makings.frames(owners, name)

    def root(self, module: nn.Module) -> None:
        """Module paths are relative to this module."""
        self._recorder.modules.root(module)

    def known(self, tensor: torch.Tensor, largest: int = LARGEST) -> torch.Tensor | None:
        """The elements of a tensor that is a known constant of at most ``largest`` elements, or came from outside."""
        if isinstance(tensor, FakeTensor) and tensor.numel() > largest:
            return None
        constants = self._recorder.constants
        with self.on_real_tensors():
            return constants.real(tensor).clone() if constants.is_known(tensor) else None

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Whether the program has given a tensor's memory any elements, and not just made it."""
        number = self._recorder.number_of(tensor)
        return number is None or any(number in _filled(event) for event in self._recorder.events)

    def is_computed(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's elements were computed of other memory, and not just made or drawn."""
        number = self._recorder.number_of(tensor)
        return any(
            event.read - {number} and number in {ref.storage for ref in (*event.written, *refs_in(event.outs))}
            for event in self._recorder.events
            if not isinstance(event.op, str)
        )

    def bind_if_equal(self, tensor: torch.Tensor, outside: torch.Tensor) -> None:
        """Where ``tensor`` is known to hold the very bits of one that was made before the recording, it is that literal."""
        local = getattr(tensor, "_local_tensor", tensor)
        constants = self._recorder.constants
        same = (local.shape, local.dtype) == (outside.shape, outside.dtype)
        if not same or not isinstance(local, FakeTensor) or not constants.is_known(local):
            return
        if any(step == 0 and size > 1 for step, size in zip(local.stride(), local.shape, strict=True)):
            return  # expanded: elements that share memory cannot be written one by one
        with self.on_real_tensors():
            equal = constant_of(constants.real(local)).digest == constant_of(outside).digest
        if equal:
            self.bind(local, outside)

    @contextmanager
    def on_real_tensors(self) -> Iterator[None]:
        """What runs inside computes, on real tensors, as if nothing were recorded."""
        with _disable_current_modes():
            yield

    # -- the result ----------------------------------------------------------------------------------------------------
    def trouble(self, error: BaseException, rule: str = "trace-error") -> Trouble:
        """An exception out of the program as a diagnostic at the program's own line; it also becomes part of the trace."""
        trouble = trouble_of(error, self.world.rank, rule)
        self._troubles.append(trouble)
        return trouble

    def finish(self) -> RankTrace:
        """The graph of what was recorded."""
        recorder = self._recorder
        published = tuple(self.ledger.offers)
        assumed = tuple(sorted(recorder.assumed))
        reads = tuple(self.world.reads.items())
        groups = tuple(
            Formed(event.args[2].ranks, tuple(recorder.stacks.frames(event.stack))) for event in recorder.groups
        )
        races = Races(recorder.stacks, in_order=not self.world.chose_gloo)
        backend = Backend(self.world.backend == "nccl")
        repeats = recorder.repeats
        self._note_what_was_caught()
        try:
            recorder.memory.finish()
        except GaveUp:
            pass  # which is noted
        except TracingError as error:
            self.trouble(error)
        if repeats is not None and repeats.gave_up:
            return RankTrace(None, assumed=assumed, gave_up=repeats.gave_up)
        if self._waiting:
            return RankTrace(None, tuple(self._troubles), assumed, published, waiting=True, groups=groups)
        if self._wants_cuda:
            return RankTrace(None, tuple(self._troubles), assumed, published, wants_cuda=True)
        if self.reads_draws:
            return RankTrace(None, tuple(self._troubles), assumed, published, reads_draws=True)
        try:
            with without_collection():
                whole = functionalise(recorder.events, recorder.stacks, self.world.rank, races, backend)
                graph, stops = without_stops(whole)
        except TracingError as error:
            self.trouble(error, error.rule)
            graph, stops = None, ()
        if races.relies_on_order:
            assumed = tuple(sorted((*assumed, IN_ORDER)))
        if backend.copied_views and not self.world.chose_gloo:
            assumed = tuple(sorted((*assumed, COPIES)))
        declared, opened = (tuple(sorted(names)) for names in (recorder.declared, recorder.opened))
        copied = () if repeats is None else tuple(repeats.copied)
        troubles = tuple(self._troubles)
        told = RankTrace(graph, troubles, assumed, published, groups=groups, stops=stops, reads=reads)
        return replace(told, declared=declared, opened=opened, copied=copied)

    def _note_what_was_caught(self) -> None:
        """The program went on although it was to end: it has a handler for what only a recording raises."""
        error = None if self._troubles else first_raised()
        if isinstance(error, NeedsAnswers):
            self._waiting = True
        elif error is not None and cuda.wants_cuda(error):
            self._wants_cuda = True
        elif error is not None:
            trouble = trouble_of(error, self.world.rank)
            self._troubles.append(replace(trouble, message=f"{trouble.message}\n{CAUGHT}"))


def trouble_of(error: BaseException, rank: int | None, rule: str = "trace-error") -> Trouble:
    """An exception as a diagnostic at the innermost line that is the program's own."""
    stack = tuple(reversed(list(_user_frames(error))))
    if isinstance(error, TracingError):
        span = error.span or (stack[0].span if stack else None)
        return Trouble(error.rule, error.message, span, rank, stack, error.related, error.mendings)
    message = DATA_DEPENDENT if is_data_dependence(error) else f"{type(error).__name__}: {error}".strip()
    return Trouble(rule, message, stack[0].span if stack else None, rank, stack)


def _user_frames(error: BaseException) -> Iterator[Frame]:
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_shown(code):
            yield frame_at(code, traceback.tb_lasti)
        traceback = traceback.tb_next


def _filled(event: Event) -> set[int]:
    """The memory that a call gives elements, new memory among it."""
    made = (
        set() if event.kind is not None and event.kind.name in EMPTY else {ref.storage for ref in refs_in(event.outs)}
    )
    return made.difference(ref.storage for ref in refs_in(event.args)) | {ref.storage for ref in event.written}


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a rank holds of a wrapper such as DTensor."""
    local = getattr(tensor, "_local_tensor", tensor)
    if not isinstance(local, FakeTensor) and hasattr(local, "elem"):
        return local.trigger_wait()  # an AsyncCollectiveTensor waits whenever it is used
    return local


@contextmanager
def _default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _portable_kernels() -> Iterator[None]:
    """No oneDNN: its fused kernels belong to this CPU, not to the program."""
    before = torch._C._get_mkldnn_enabled()  # noqa: SLF001  # torch.backends.mkldnn.flags warns about other devices
    torch._C._set_mkldnn_enabled(False)  # noqa: SLF001
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)  # noqa: SLF001


@contextmanager
def _steps(recorder: Recorder) -> Iterator[None]:
    """Operators of an optimizer's step are of phase ``step``."""
    phases: list[str] = []

    def before(*_: Any) -> None:
        phases.append(recorder.phase)
        if recorder.phase != "prelude":
            recorder.phase = "step"

    def after(*_: Any) -> None:
        recorder.phase = phases.pop()

    hooks = (register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def sizes(tensor: torch.Tensor) -> tuple[Size, ...]:
    """Extents of a tensor, symbolic ones included."""
    return tuple(size_of(size) for size in tensor.shape)
