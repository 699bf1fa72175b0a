"""Where modules got their parameters: what marks a parameter, places it or gives its module a group stands there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any
from weakref import ref

from torch import nn
from torch.nn.modules import module as torch_module

from graphguard.ir.spans import Frame
from graphguard.trace.source.provenance import RawStack, frames_of


class Makings:
    """The stack on which every module was given a parameter of a name first; ``here`` is the present one.

    Wrappers that put others in their places, as placements and moves to a device do, make nothing.
    """

    def __init__(self, here: Callable[[], RawStack]) -> None:
        self._here = here
        self._stacks: dict[tuple[int, str], tuple[Any, RawStack]] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Take notice while modules are built."""
        hook = torch_module.register_module_parameter_registration_hook(self._registered)
        try:
            yield
        finally:
            hook.remove()

    def _registered(self, module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is None:
            return
        known = self._stacks.get((id(module), name))
        if known is None or known[0]() is not module:
            self._stacks[id(module), name] = ref(module), self._here()

    def frames(self, owners: Sequence[nn.Module], name: str) -> tuple[Frame, ...]:
        """Where the first of these modules made its parameter, and where that module was made; ``owners`` are innermost first."""
        module, stack = self._stacks.get((id(owners[0]), name), (lambda: None, ()))
        return () if module() is not owners[0] else _told(tuple(frames_of(stack)), owners)


def _told(frames: Sequence[Frame], owners: Sequence[nn.Module]) -> tuple[Frame, ...]:
    """The innermost frame in the module's own code, and the first outside of it: that of a module around it, where one is on the stack, and not of what builds modules for any."""
    own = _frames_of(frames, owners[:1])
    outer = frames[frames.index(own[-1]) + 1 :] if own else frames
    around = _frames_of(outer, owners[1:])
    return (*own[:1], *(around or outer)[:1])


def _frames_of(frames: Sequence[Frame], modules: Sequence[nn.Module]) -> list[Frame]:
    """The frames in methods of these modules' classes."""
    classes = chain.from_iterable(type(module).__mro__ for module in modules)
    names = tuple({f"{one.__qualname__}." for one in classes})
    return [frame for frame in frames if frame.function.startswith(names)]
