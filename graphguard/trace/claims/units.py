"""What is compared: a module or a function, and the parameters it depends on, those of modules it closes over included."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from graphguard.trace.calls.constants import in_memory
from graphguard.trace.claims.parameters import State, plain_name, states_of, tables_of
from graphguard.trace.graph.views import overlaps


@dataclass(frozen=True, slots=True)
class Unit:
    """A callable, and its parameters and buffers by name.

    A function's come from the modules and tensors in its closure, bound arguments, and the globals it names: without a prefix where
    there is one module, else after the variable.
    """

    call: Callable[..., Any]
    states: tuple[State, ...]
    is_module: bool

    def without(self, tensors: Collection[int]) -> Unit:
        """The unit without the parameters that are some tensors, by identity."""
        if not tensors:
            return self
        return replace(self, states=tuple(state for state in self.states if id(state.tensor) not in tensors))

    @property
    def device(self) -> torch.device | None:
        """Where the program has its parameters, and so expects its inputs; None where it has none."""
        devices = [state.tensor.device for state in self.states if state.tensor.device.type != "meta"]
        return devices[0] if devices else None


def unit_of(value: Any) -> Unit:
    """The unit of a ``spec`` or ``impl``; raises ``TypeError`` where it cannot be called."""
    if isinstance(value, torch.nn.Module):
        return Unit(value, tuple(states_of(value)), True)
    if not callable(value):
        raise TypeError(f"a program is a module or a function; found {type(value).__name__}")
    return Unit(value, tuple(_closed_over(value)), False)


def _closed_over(function: Callable[..., Any]) -> Iterator[State]:
    held = list(_held(function))
    modules = _modules_in(function)
    seen: set[int] = set()
    for name, module in modules:
        for state in states_of(module):
            if id(state.tensor) not in seen:
                seen.add(id(state.tensor))
                yield state if len(modules) == 1 else _prefixed(state, name)
    for name, value in held:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and id(value) not in seen:
            seen.add(id(value))
            if not _is_shared(in_memory(value)):
                yield State(name, "parameter", in_memory(value), ())


def _is_shared(tensor: torch.Tensor) -> bool:
    """Whether elements share memory, as windows of ``unfold`` do: such a tensor is no unknown, and keeps its numbers."""
    plain = tensor.layout is torch.strided
    return plain and overlaps((tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), ""))


def tables(value: Any) -> dict[str, torch.Tensor]:
    """The tensors that the modules of a ``spec`` or ``impl`` made for themselves, by name without wrappers."""
    modules = [("", value)] if isinstance(value, torch.nn.Module) else _modules_in(value)
    many = len(modules) > 1
    return {
        plain_name(f"{name}.{inner}" if many else inner): tensor
        for name, module in modules
        for inner, tensor in tables_of(module)
    }


def _modules_in(function: Callable[..., Any]) -> list[tuple[str, torch.nn.Module]]:
    return _outermost([(name, value) for name, value in _held(function) if isinstance(value, torch.nn.Module)])


def _outermost(modules: list[tuple[str, torch.nn.Module]]) -> list[tuple[str, torch.nn.Module]]:
    """Without the modules that are parts of others among them."""
    parts = {id(part) for _, module in modules for part in module.modules() if part is not module}
    return [(name, module) for name, module in modules if id(module) not in parts]


def _prefixed(state: State, name: str) -> State:
    aliases = tuple(f"{name}.{alias}" for alias in state.aliases)
    return replace(state, name=f"{name}.{state.name}", aliases=aliases, bare=(state.name, *state.aliases))


def _held(function: Any) -> Iterator[tuple[str, Any]]:
    """Modules and tensors that a callable holds, by variable, each once; functions it calls and objects it uses are followed a few levels."""
    seen: set[int] = set()
    for name, value in _variables(function):
        yield from _reached(name, value, seen, 0)


def _reached(name: str, value: Any, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module | torch.Tensor):
        yield name, value
    elif depth < _DEEPEST and isinstance(value, tuple | list | dict):
        for place, (key, item) in enumerate(value.items() if isinstance(value, dict) else enumerate(value)):
            # a tensor as a key (an optimizer's states) is not to be written out
            inner = repr(key) if isinstance(key, str | int) else place
            yield from _reached(f"{name}[{inner}]", item, seen, depth + 1)
    elif depth < _DEEPEST and (
        inspect.isfunction(value) or inspect.ismethod(value) or isinstance(value, functools.partial)
    ):
        for inner, item in _variables(value):
            yield from _reached(inner, item, seen, depth + 1)
    elif depth < _DEEPEST and _is_plain_object(value):
        # only modules: a tensor that an object keeps is the program's own affair
        for inner, item in vars(value).items():
            if not isinstance(item, torch.Tensor):
                found = _reached(f"{name}.{inner}", item, seen, depth + 1)
                yield from ((path, part) for path, part in found if isinstance(part, torch.nn.Module))


_DEEPEST = 3


def _is_plain_object(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType | torch.dtype)


def _variables(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, functools.partial):
        yield from _variables(function.func)
        yield from ((f"argument[{index}]", value) for index, value in enumerate(function.args))
        yield from function.keywords.items()
    elif inspect.ismethod(function):
        yield from _variables(function.__func__)
        yield "self", function.__self__
    elif inspect.isfunction(function):
        yield from inspect.getclosurevars(function).nonlocals.items()
        # only what it names: a module-level model is as good as a closed-over one
        yield from inspect.getclosurevars(function).globals.items()
    elif not isinstance(function, type):
        yield from vars(function).items() if hasattr(function, "__dict__") else ()
