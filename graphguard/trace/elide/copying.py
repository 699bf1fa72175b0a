"""What is done with copied layers, in the forward and in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as torch_module

from graphguard.trace.calls.segments import Copy
from graphguard.trace.calls.tape import Tape
from graphguard.trace.elide.likeness import Shown, kinds_of, leaves_of
from graphguard.trace.elide.templates import Layer
from graphguard.trace.pure.lookups import Doubt

_hooks = torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks  # noqa: SLF001
_backward_hooks = torch_module._global_backward_hooks, torch_module._global_backward_pre_hooks  # noqa: SLF001


class GaveUp(BaseException):
    """A copy would show: the program must be recorded without."""


class Copying:
    """The copies of one recording: how their memory is made, whether they may be, and that they are given up.

    ``is_busy``: what is called now is recorded, and copies nothing.  ``called`` is what modules are called by.
    """

    def __init__(self, recorder: Tape) -> None:
        self.recorder = recorder
        self.gave_up = ""
        self.is_busy = False
        self.is_asking = False
        self.called: Any = None

    def made(self, shown: Shown, copy: Copy) -> FakeTensor:
        """New memory in the place of what a segment made."""
        recorder = self.recorder
        made = recorder.kernels.laid_out(shown.sizes, shown.strides, shown.dtype, shown.device)
        recorder.storages.is_memory(copy.storage(shown.ref.storage), made)
        return made

    @contextmanager
    def asking(self) -> Iterator[None]:
        """What is differentiated inside is no business of the program's."""
        self.is_asking = True
        try:
            yield
        finally:
            self.is_asking = False

    def is_the_same(self, layer: Layer) -> bool:
        """Whether nobody looks after the gradients of what a copy read, and what is known of it is as it was."""
        template = layer.template
        try:
            if leaves_of(layer.tensors, layer.arguments, grad=True) != layer.leaves:
                return False
            is_known = any(kind[-1] is not None for kind in template.kinds)
            return not is_known or kinds_of(self.recorder, layer.tensors) == template.kinds
        except Doubt:
            return False

    def is_unwatched(self) -> bool:
        """Whether calls of modules are the recorder's business alone."""
        hooks = [len(each) for each in (*_hooks, *_backward_hooks)]
        return hooks == [1, 1, 0, 0] and nn.Module.__call__ is self.called

    def give_up(self, why: str) -> None:
        """The recording is of no use; raises ``GaveUp``."""
        self.gave_up = self.gave_up or why
        raise GaveUp(why)
