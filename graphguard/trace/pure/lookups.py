"""What code looks up outside of its own variables, and whether it finds the same on another module."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from operator import attrgetter
from types import CellType, FunctionType, MemberDescriptorType
from typing import Any, Final

import torch
from torch import nn

from graphguard.trace.pure.harmless import identity, own_call, own_method, static

_ABSENT: Final = object()
_builtins_of: Final[Callable[[Any], Any]] = attrgetter("__builtins__")
_PRIMITIVES = frozenset(
    (
        type(None),
        bool,
        int,
        float,
        str,
        bytes,
        type(Ellipsis),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
    )
)
_TENSORS = ("_parameters", "_buffers")
_LISTS = (nn.ModuleList, nn.Sequential)
_WALKED = ("__iter__", "__getitem__", "__len__")
_OWN_WALKS = {cls: [static(cls, name) for name in _WALKED] for cls in _LISTS}


class Doubt(Exception):  # noqa: N818 - no error: what is in doubt is done as always
    """It is not certain that code does the same again; says why."""


def is_primitive(value: Any) -> bool:
    """Whether a value is a plain constant, or a tuple of such."""
    kind = type(value)
    return kind in _PRIMITIVES or (kind in (tuple, torch.Size) and all(map(is_primitive, value)))


class Classes:
    """What classes hold, as far as it was asked; to be thrown away when code of the program's runs."""

    def __init__(self) -> None:
        self._own: dict[type, bool] = {}
        self._held: dict[tuple[type, str], Any] = {}

    def has_own_attributes(self, cls: type) -> bool:
        """Whether attributes are looked up as PyTorch, for modules, or Python does it."""
        known = self._own.get(cls)
        if known is None:
            if issubclass(cls, nn.Module):
                known = own_call(cls)
            else:
                known = static(cls, "__getattribute__") is object.__getattribute__
            self._own[cls] = known
        return known

    def held(self, cls: type, name: str) -> Any:
        """What a class or its bases hold under a name; None where none does."""
        known = self._held.get((cls, name), _ABSENT)
        if known is _ABSENT:
            known = self._held[cls, name] = static(cls, name)
        return known


class Pairs:
    """Modules and tensors of one call, and those in their place in another: one to one."""

    def __init__(self) -> None:
        self.modules: dict[int, tuple[nn.Module, nn.Module]] = {}
        self.tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._modules_back: dict[int, int] = {}
        self._tensors_back: dict[int, int] = {}
        self.classes = Classes()

    def counterpart(self, value: Any) -> Any:
        """What stands in the place of an object: another module, or the object itself; raises ``Doubt`` for a module that was not met."""
        if not isinstance(value, nn.Module):
            return value
        found = self.modules.get(identity(value))
        if found is None:
            raise Doubt("a module was not met before")
        return found[1]

    def same(self, one: Any, other: Any) -> bool:
        """Whether ``other`` may stand in the place of ``one``."""
        if isinstance(one, torch.Tensor):
            return isinstance(other, torch.Tensor) and _paired(self.tensors, self._tensors_back, one, other)
        if isinstance(one, nn.Module):
            return type(one) is type(other) and _paired(self.modules, self._modules_back, one, other)
        if type(one) is not type(other):
            return False
        if type(one) in (tuple, torch.Size):
            return len(one) == len(other) and all(map(self.same, one, other))
        if type(one) is float:
            return one.hex() == other.hex()
        if type(one) in _PRIMITIVES:
            return bool(one == other)
        return one is other


def _paired(pairs: dict[int, tuple[Any, Any]], back: dict[int, int], one: Any, other: Any) -> bool:
    known = pairs.setdefault(identity(one), (one, other))
    return known[1] is other and back.setdefault(identity(other), identity(one)) == identity(one)


class Lookups:
    """Look-ups in their order, each with what it found; ``hold`` says whether another module's find the same.

    Each is a question about what an earlier one found, so that a module is met before anything is asked of it.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[Callable[[Pairs, Any, Any, Any], bool], Any, Any, Any]] = {}

    def _note(self, check: Callable[[Pairs, Any, Any, Any], bool], owner: Any, key: Any, found: Any) -> Any:
        self._made.setdefault((check, identity(owner), key), (check, owner, key, found))
        return found

    # -- looking up ----------------------------------------------------------------------------------------------------
    def of_globals(self, names: dict[str, Any], name: str) -> Any:
        """A global variable, or what is built in."""
        found = _global(names, name)
        if found is _ABSENT:
            raise Doubt(f"'{name}' is not there")
        return self._note(_same_global, names, name, found)

    def cell(self, cell: CellType) -> Any:
        """A variable of a function around."""
        try:
            return self._note(_same_cell, cell, None, cell.cell_contents)
        except ValueError as error:
            raise Doubt("a variable is not there yet") from error

    def of_class(self, cls: type, name: str) -> Any:
        """What a class or its bases hold under a name."""
        return self._note(_same_in_class, cls, name, static(cls, name))

    def own_method(self, name: str) -> None:
        """A method of tensors, which must be PyTorch's own."""
        self._note(_own_method, None, name, None)
        if not own_method(name):
            raise Doubt(f"tensors have another '{name}'")

    def function(self, function: FunctionType) -> None:
        """A function that is followed."""
        if _builtins_of(function) is not vars(builtins):
            raise Doubt("a function has built-in names of its own")
        self._note(_same_function, function, None, _parts(function))

    def module(self, module: nn.Module) -> None:
        """A module that is called."""
        self._note(_still_bare, module, None, None)
        if not _is_bare(module):
            raise Doubt("a module has hooks")

    def attribute(self, value: Any, name: str) -> tuple[str, Any]:
        """An attribute of an object, and where it lies: ``class``, or a dict of the object's."""
        found: tuple[str, Any] = self._note(_same_attribute, value, name, fetched(value, name))
        return found

    def items(self, value: Any) -> Sequence[Any]:
        """The items of a tuple, a list, or a list of modules."""
        if type(value) in (tuple, torch.Size):
            return tuple(value)  # which were found when it was
        found: Sequence[Any] = self._note(_same_items, value, None, _items(value))
        return found

    # -- the same again ------------------------------------------------------------------------------------------------
    def hold(self, pairs: Pairs) -> bool:
        """Whether all look-ups find the same, with other modules in the place of those that were asked."""
        pairs.classes = Classes()
        try:
            return all(check(pairs, owner, key, found) for check, owner, key, found in self._made.values())
        except (Doubt, ValueError):  # ValueError: an empty cell
            return False


def _same_global(pairs: Pairs, names: dict[str, Any], name: str, found: Any) -> bool:
    return _identical(pairs, found, _global(names, name))


def _same_cell(pairs: Pairs, cell: CellType, _: Any, found: Any) -> bool:
    return _identical(pairs, found, cell.cell_contents)


def _same_in_class(pairs: Pairs, cls: type, name: str, found: Any) -> bool:
    return _identical(pairs, found, static(cls, name))


def _own_method(_: Pairs, __: Any, name: str, ___: Any) -> bool:
    return own_method(name)


def _same_function(_: Pairs, function: FunctionType, __: Any, parts: tuple[Any, ...]) -> bool:
    now = _parts(function)
    return len(now) == len(parts) and all(one is other for one, other in zip(parts, now, strict=True))


def _same_attribute(pairs: Pairs, value: Any, name: str, found: tuple[str, Any]) -> bool:
    place, other = fetched(pairs.counterpart(value), name, pairs.classes)
    if place != found[0]:
        return False
    return _identical(pairs, found[1], other) if place == "class" else pairs.same(found[1], other)


def _same_items(pairs: Pairs, value: Any, _: Any, found: Sequence[Any]) -> bool:
    now = _items(pairs.counterpart(value))
    return len(now) == len(found) and all(map(pairs.same, found, now))


def _still_bare(pairs: Pairs, module: nn.Module, _: Any, __: Any) -> bool:
    return _is_bare(pairs.counterpart(module))


def _identical(pairs: Pairs, one: Any, other: Any) -> bool:
    """Whether it is the same object: what is found in one place by all."""
    return one is other and (not isinstance(one, (torch.Tensor, nn.Module, tuple)) or pairs.same(one, other))


def _global(names: dict[str, Any], name: str) -> Any:
    found = names.get(name, _ABSENT)
    return getattr(builtins, name, _ABSENT) if found is _ABSENT else found


def _parts(function: FunctionType) -> tuple[Any, ...]:
    """What makes a function what it is; defaults must be plain constants, or the same objects."""
    keywords = function.__kwdefaults__ or {}
    return (function.__code__, *(function.__defaults__ or ()), *keywords, *keywords.values())


def _items(value: Any) -> tuple[Any, ...]:
    if type(value) in (tuple, list, torch.Size):
        return tuple(value)
    if isinstance(value, _LISTS):
        cls = next(one for one in _LISTS if isinstance(value, one))
        if [static(type(value), name) for name in _WALKED] == _OWN_WALKS[cls] and own_call(type(value)):
            return tuple(value._modules.values())  # noqa: SLF001 - what its iterator walks
    raise Doubt(f"the items of a {type(value).__name__}")


def fetched(value: Any, name: str, classes: Classes | None = None) -> tuple[str, Any]:
    """What ``value.name`` is before it is bound, and where it lies; raises ``Doubt`` where a class decides that in a way of its own."""
    cls, classes = type(value), classes or Classes()
    if not classes.has_own_attributes(cls):
        raise Doubt(f"{cls.__name__} has attributes of its own kind")
    held = classes.held(cls, name)
    if held is not None:
        if isinstance(held, property):
            return "class", held
        if isinstance(held, MemberDescriptorType):
            return "slot", held.__get__(value)
    own = getattr(value, "__dict__", None)
    if own is None or (held is not None and hasattr(type(held), "__set__")):
        raise Doubt(f"the attribute '{name}' of a {cls.__name__}")
    if name in own:
        return "own", own[name]
    if held is not None:
        return "class", held
    if isinstance(value, nn.Module):
        for place in (*_TENSORS, "_modules"):
            if name in own[place]:
                return place, own[place][name]
    raise Doubt(f"a {cls.__name__} has no '{name}'")


def _is_bare(module: nn.Module) -> bool:
    """Whether nothing is hooked to a module."""
    own = vars(module)
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return False
    return own.get("_is_full_backward_hook") is None
