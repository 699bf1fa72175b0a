"""What a recording shows to those who take part in it: replacements of PyTorch's functions, memory that arrays show, copies of layers.

They import this, and the recorder (:mod:`~graphguard.trace.record.recorder`), which is all of it, imports them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from graphguard.ir.graph import Sym
from graphguard.trace.calls.constants import Constants
from graphguard.trace.calls.events import Event, Members, Ref
from graphguard.trace.calls.kernels import Kernels
from graphguard.trace.calls.lockstep import Ledger
from graphguard.trace.calls.modules import ModulePaths
from graphguard.trace.calls.segments import Copy
from graphguard.trace.calls.storages import Storages
from graphguard.trace.source.provenance import RawStack, Stacks


class ArrayMemory(Protocol):
    """The memory that arrays show as well."""

    def made(self, real: torch.Tensor, source: Any) -> torch.Tensor:
        """What stands for a real tensor that was made over the memory of an array or a buffer."""
        ...

    def array(self, tensor: FakeTensor, make: Callable[[torch.Tensor], Any]) -> Any:
        """The array, or what else ``make`` gives of a real tensor, that shows the memory of a tensor whose elements are known."""
        ...


class Copies(Protocol):
    """The copied layers, to those who see what would tell them from what they are copies of."""

    def shows(self, why: str) -> None:
        """The program looks at what tells a copy from what it is a copy of."""
        ...


class Tape(Protocol):
    """A recording that is under way."""

    fake_mode: FakeTensorMode
    events: list[Event]
    kernels: Kernels
    ledger: Ledger
    storages: Storages
    constants: Constants
    stacks: Stacks
    modules: ModulePaths
    phase: str
    paused: int
    inside: int
    assumed: set[str]
    declared: set[str]
    opened: set[str]
    shared: set[int]
    pinned: set[int]
    forward_of: dict[int, tuple[int, str]]

    @property
    def memory(self) -> ArrayMemory:
        """The memory that arrays show as well."""
        ...

    @property
    def repeats(self) -> Copies | None:
        """The copied layers, where layers are copied."""
        ...

    def __enter__(self) -> Any:
        """Calls of operators are recorded from here."""
        ...

    def __exit__(self, *exception: Any) -> Any:
        """They no longer are."""
        ...

    def pause(self) -> AbstractContextManager[None]:
        """Nothing is recorded inside."""
        ...

    # -- tensors -------------------------------------------------------------------------------------------------------
    def ref(self, tensor: torch.Tensor) -> Ref:
        """What memory a fake tensor shows."""
        ...

    def faked(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor as the graph knows it."""
        ...

    def twin(self, real: torch.Tensor) -> FakeTensor:
        """The fake tensor that stands for a real one from outside."""
        ...

    def twin_of(self, real: torch.Tensor) -> FakeTensor | None:
        """The fake tensor that stands for a real one, if an operator has met it."""
        ...

    def stand_in(self, real: torch.Tensor, fake: FakeTensor) -> torch.Tensor:
        """From now on a real tensor shows the memory of ``fake``."""
        ...

    def literal(self, real: torch.Tensor, kept: Any = None) -> FakeTensor:
        """The fake tensor of a real one that the program has made."""
        ...

    def written(self, tensor: FakeTensor, value: torch.Tensor) -> None:
        """The program has given a tensor these elements without an operator."""
        ...

    def laid_out_like(self, tensor: torch.Tensor, value: torch.Tensor) -> FakeTensor:
        """A copy of a value that lies as a tensor of its shape does."""
        ...

    def born(self, parameter: Any) -> None:
        """A parameter has been made."""
        ...

    def resized(self, storage: torch.UntypedStorage, before: int) -> None:
        """A storage had ``before`` bytes."""
        ...

    # -- values --------------------------------------------------------------------------------------------------------
    def decides_by_data(self, tensor: FakeTensor) -> bool:
        """Whether only the data decides what a tensor of known shape holds."""
        ...

    def need_elements(self, tensor: FakeTensor) -> None:
        """The program cannot go on without what a tensor holds."""
        ...

    def elements(self, tensor: FakeTensor) -> torch.Tensor:
        """What a tensor holds, where that is known."""
        ...

    def truth_where_finite(self, condition: torch.Tensor) -> bool | None:
        """A condition that is known if every number is finite, which then is assumed."""
        ...

    def assume(self, what: Ref | Sym, *, truth: bool, text: str) -> None:
        """From here on a condition is this, or a size is not zero; ``text`` says so to the user."""
        ...

    # -- what happens --------------------------------------------------------------------------------------------------
    def formed(self, made: Members, among: str) -> None:
        """The program makes a group."""
        ...

    def met(self, call: str, group: Members, among: str = "") -> Event:
        """The program calls what makes groups."""
        ...

    def synchronized(self, *events: Event) -> None:
        """The program waits for these collectives; for all of them, where none is named."""
        ...

    def note_gradient(self, tensor: torch.Tensor, gradient: torch.Tensor) -> None:
        """Write down what is worked out as a gradient of a tensor that has a name."""
        ...

    def entering_function(self) -> None:
        """A custom autograd function is about to be applied."""
        ...

    def places(self) -> tuple[int, int]:
        """The stack that an operator is called on now, and, inside the backward pass, the one of what it is the gradient of."""
        ...

    # -- copies --------------------------------------------------------------------------------------------------------
    def outer(self) -> RawStack:
        """The program's own frames, as they are where this is asked."""
        ...

    def facts(self) -> tuple[int, ...]:
        """How much there is that is neither a call nor a tensor."""
        ...

    def copied(self, copy: Copy) -> None:
        """A segment of the recording is here once more."""
        ...
