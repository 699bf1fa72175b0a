"""Which code does the same on another module: proved by reading it, before anything of it is relied upon.

A function is followed through its source with what is known in place of values: objects that were there before the call, by themselves, and whatever the
call makes out of tensors (*born* values: tensors, numbers, shapes, types, and lists of them).  Only a small language is understood, in which nothing can be changed
but tensors, and tensors are seen by the recorder.  Everything that the code looks up outside of its own variables is noted as a *look-up*, with what it found.

What this shows: on a module where all look-ups find the same, with tensors of the same kinds, the code makes the same calls in the same order.  Branches on born values
are followed both ways.  Anything else raises :class:`Doubt`.
"""

from __future__ import annotations

import ast
import builtins
from abc import ABCMeta
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from graphguard.trace.followed import (
    BORN,
    NONE,
    Applied,
    Born,
    Bound,
    Context,
    Known,
    Method,
    Once,
    Saver,
    Several,
    Value,
    all_plain,
    is_born,
    is_number,
    is_text,
    joined,
    told,
)
from graphguard.trace.harmless import FUNCTIONS, METHODS, PROPERTIES, is_own, own_apply, own_call
from graphguard.trace.lookups import Doubt, Lookups, is_primitive
from graphguard.trace.operations import OF_NUMBERS, binary, compared, computed, truth, unary
from graphguard.trace.rewriting import NAME
from graphguard.trace.texts import source_of

_MOST_STEPS = 20_000
_DEEPEST = 30
_LONGEST = 64


_METACLASSES = (type, ABCMeta, type(torch.autograd.Function))
_SAVERS = frozenset(("save_for_backward", "set_materialize_grads", "mark_non_differentiable"))


def lookups_of(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Lookups, Lookups]:
    """All that a call of a module looks up, and of that what the backward pass through it does; raises ``Doubt`` where that is not certain."""
    reader = _Reader()
    given = [reader.given(arg) for arg in args]
    named = {name: reader.given(arg) for name, arg in kwargs.items()}
    result = reader.called(Known(module), given, named)
    if result != BORN:
        raise Doubt("the module does not return one tensor that it made")
    return reader.lookups, reader.later


class _Reader:
    """Follows code; ``lookups`` is what it looked up so far, ``later`` what of that the backward pass does."""

    def __init__(self) -> None:
        self.lookups = Lookups()
        self.later = Lookups()
        self._steps = 0
        self._depth = 0

    def given(self, value: Any) -> Value:
        """An argument."""
        if isinstance(value, torch.Tensor):
            return BORN
        if type(value) in (tuple, list):
            return Several(tuple(self.given(item) for item in value))
        return Known(value)

    # -- calls ---------------------------------------------------------------------------------------------------------
    def called(self, function: Value, args: Sequence[Value], named: dict[str, Value]) -> Value:
        """What a call returns."""
        match function:
            case Known(value) if isinstance(value, nn.Module):
                return self._module(value, args, named)
            case Known(value) if is_own(FUNCTIONS, value):
                return self._plain_call(args, named)
            case Known(value) if value is getattr(builtins, NAME, self) and args and isinstance(args[0], Known):
                return self.called(args[0], args[1:], named)
            case Known(value) if isinstance(value, FunctionType):
                return self._function(value, args, named)
            case Known(value) if isinstance(value, (BuiltinFunctionType, type)):
                return self._builtin(value, args, named)
            case Bound(method, receiver):
                return self._function(method, (receiver, *args), named)
            case Method():
                return self._plain_call(args, named)
            case Applied(cls):
                return self._applied(cls, args, named)
            case Saver():
                all_plain((*args, *named.values()))
                return NONE
        raise Doubt(f"{told(function)} is called")

    def _plain_call(self, args: Sequence[Value], named: dict[str, Value]) -> Value:
        all_plain((*args, *named.values()))
        return BORN

    def _module(self, module: nn.Module, args: Sequence[Value], named: dict[str, Value]) -> Value:
        if not own_call(type(module)):
            raise Doubt(f"{type(module).__name__} has a way of its own to be called")
        self.lookups.module(module)
        forward = self._attribute(Known(module), "forward")
        if not isinstance(forward, Bound):
            raise Doubt(f"the forward of {type(module).__name__} is no method")
        return self.called(forward, args, named)

    def _applied(self, cls: type, args: Sequence[Value], named: dict[str, Value]) -> Value:
        if named:
            raise Doubt("an autograd function is given keywords")
        context = Context()
        forward, backward = (self._static(cls, name) for name in ("forward", "backward"))
        result = self._function(forward, (context, *args), {})
        all_plain((result,))
        code = backward.__code__
        if code.co_flags & 0x0C:
            raise Doubt("a backward takes any number of gradients")
        before, self.lookups = self.lookups, self.later
        self._static(cls, "backward")  # which is looked up again then
        gradients = self._function(backward, (context, *[BORN] * (code.co_argcount - 1)), {})
        self.lookups = before
        all_plain((gradients,))
        return result

    def _static(self, cls: type, name: str) -> FunctionType:
        found = self.lookups.of_class(cls, name)
        if not isinstance(found, staticmethod) or not isinstance(found.__func__, FunctionType):
            raise Doubt(f"{cls.__name__}.{name} is no plain static method")
        return found.__func__

    def _builtin(self, value: Any, args: Sequence[Value], named: dict[str, Value]) -> Value:
        if value is zip and named == {"strict": Known(False)}:
            named = {}
        if named:
            raise Doubt("a built-in function is given keywords")
        if value is len and len(args) == 1:
            items = self._items(args[0]) if not is_born(args[0]) else None
            return BORN if items is None else Known(len(items))
        if value is isinstance and len(args) == 2:
            return self._is_instance(*args)
        if value is getattr and len(args) == 2 and is_text(args[1]):
            return self._attribute(args[0], args[1].value)  # type: ignore[union-attr]
        if (value is tuple or value is list) and len(args) == 1:
            return args[0] if is_born(args[0]) else Several(self._items(args[0]))
        if value is range and all(is_number(arg) for arg in args):
            found = range(*(arg.value for arg in args))  # type: ignore[union-attr]
            return Several(tuple(map(Known, _short(found))))
        if value is zip:
            return Once(tuple(map(Several, zip(*map(self._items, args), strict=False))))
        if value is enumerate and len(args) == 1:
            return Once(tuple(Several((Known(i), item)) for i, item in enumerate(self._items(args[0]))))
        if value is reversed and len(args) == 1:
            return Once(tuple(reversed(self._items(args[0]))))
        if any(value is one for one in OF_NUMBERS):
            all_plain(args)
            return computed(value, *(arg.value for arg in args)) if all(map(is_number, args)) else BORN  # type: ignore[union-attr]
        raise Doubt(f"{getattr(value, '__name__', value)} is called")

    def _is_instance(self, value: Value, kinds: Value) -> Value:
        classes = kinds.value if isinstance(kinds, Known) else None
        listed: tuple[Any, ...] = classes if type(classes) is tuple else (classes,)
        if not all(isinstance(one, type) and type(one).__instancecheck__ is type.__instancecheck__ for one in listed):
            if any(one is not torch.Tensor for one in listed):
                raise Doubt("a class says itself what is an instance of it")
            return BORN if is_born(value) else Known(False)
        if isinstance(value, Known):
            return Known(isinstance(value.value, tuple(listed)))
        if is_born(value):
            return BORN
        raise Doubt("isinstance of what the call makes")

    def _function(self, function: FunctionType, args: Sequence[Value], named: dict[str, Value]) -> Value:
        self.lookups.function(function)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Doubt("calls are too deep")
        body, arguments = source_of(function.__code__)
        for value in (*args, *named.values()):
            _lasting(value)
        scope = _Scope(function, self._bound(function, arguments, args, named))
        ended = self._block(body, scope)
        self._depth -= 1
        results = scope.returned if ended else [*scope.returned, NONE]
        if not results:
            raise Doubt("a function does nothing but raise")
        return reduce(joined, results)

    def _bound(
        self, function: FunctionType, arguments: ast.arguments, args: Sequence[Value], named: dict[str, Value]
    ) -> dict[str, Value]:
        if arguments.kwarg is not None:
            raise Doubt("a function takes any keywords")
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        bound: dict[str, Value] = dict(zip(names, args, strict=False))
        if len(args) > len(names) and arguments.vararg is None:
            raise Doubt("too many arguments")
        if arguments.vararg is not None:
            bound[arguments.vararg.arg] = Several(tuple(args[len(names) :]))
        for name, value in named.items():
            if name in bound:
                raise Doubt("an argument is given twice")
            bound[name] = value
        defaults = function.__defaults__ or ()
        for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            bound.setdefault(name, Known(value))
        for name, value in (function.__kwdefaults__ or {}).items():
            bound.setdefault(name, Known(value))
        wanted = {*names, *(one.arg for one in arguments.kwonlyargs)}
        if arguments.vararg is not None:
            wanted.add(arguments.vararg.arg)
        if set(bound) != wanted:
            raise Doubt("arguments do not fit")
        return bound

    # -- statements ----------------------------------------------------------------------------------------------------
    def _block(self, statements: Sequence[ast.stmt], scope: _Scope) -> bool:
        """Follow statements; whether every way through them returns or raises."""
        return any(self._statement(statement, scope) for statement in statements)

    def _statement(self, statement: ast.stmt, scope: _Scope) -> bool:
        self._step()
        match statement:
            case ast.Return(value=value):
                scope.returned.append(NONE if value is None else _lasting(self._value(value, scope)))
                return True
            case ast.Raise():
                return True
            case ast.Pass():
                return False
            case ast.Expr(value=value):
                self._value(value, scope)
                return False
            case ast.Assert(test=test):
                return truth(self._value(test, scope)) is False
            case ast.Assign(targets=targets, value=value):
                found = self._value(value, scope)
                for target in targets:
                    self._assign(target, found, scope)
                return False
            case ast.AnnAssign(target=ast.Name() as target, value=value):
                if value is not None:
                    self._assign(target, self._value(value, scope), scope)
                return False
            case ast.AugAssign(target=target, op=op, value=value):
                self._augment(target, op, self._value(value, scope), scope)
                return False
            case ast.If(test=test, body=body, orelse=orelse):
                return self._branch(truth(self._value(test, scope)), body, orelse, scope)
            case ast.For(target=target, iter=iterated, body=body, orelse=[]):
                return self._loop(target, self._items(self._value(iterated, scope)), body, scope)
        raise Doubt(f"a statement ({type(statement).__name__})")

    def _branch(self, holds: bool | None, body: list[ast.stmt], orelse: list[ast.stmt], scope: _Scope) -> bool:
        if holds is not None:
            return self._block(body if holds else orelse, scope)
        other = _Scope(scope.function, dict(scope.locals), scope.returned)
        ended, other_ended = self._block(body, scope), self._block(orelse, other)
        if ended:
            scope.locals = other.locals
        elif not other_ended:
            both = scope.locals.keys() & other.locals.keys()
            scope.locals = {name: joined(scope.locals[name], other.locals[name]) for name in both}
        return ended and other_ended

    def _loop(self, target: ast.expr, items: Sequence[Value], body: list[ast.stmt], scope: _Scope) -> bool:
        if any(isinstance(node, (ast.Break, ast.Continue)) for each in body for node in ast.walk(each)):
            raise Doubt("a loop is left early")
        for item in items:
            self._assign(target, item, scope)
            if self._block(body, scope):
                return True
        return False

    def _assign(self, target: ast.expr, value: Value, scope: _Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.set(name, _lasting(value))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = [BORN] * len(parts) if is_born(value) else self._items(value)
                if len(items) != len(parts) or any(isinstance(part, ast.Starred) for part in parts):
                    raise Doubt("an unpacking that does not fit")
                for part, item in zip(parts, items, strict=True):
                    self._assign(part, item, scope)
            case ast.Attribute(value=owner, attr=name):
                context = self._value(owner, scope)
                if not isinstance(context, Context) or hasattr(torch.autograd.Function, name):
                    raise Doubt(f"the attribute '{name}' is set")
                before = context.kept.get(name)
                context.kept[name] = _lasting(value) if before is None else joined(before, value)
            case ast.Subscript(value=owner, slice=index):
                if not is_born(self._value(owner, scope)):
                    raise Doubt("an item of what was there before is set")
                all_plain((value, self._value(index, scope)))
                self.lookups.own_method("__setitem__")
            case _:
                raise Doubt("an assignment")

    def _augment(self, target: ast.expr, op: ast.operator, value: Value, scope: _Scope) -> None:
        all_plain((value,))
        match target:
            case ast.Name(id=name):
                before = self._name(name, scope)
                if not is_born(before) and not is_number(before):
                    raise Doubt("a list is changed")
                self._assign(target, binary(self.lookups, op, before, value), scope)
            case ast.Subscript(value=owner, slice=index):
                if not is_born(self._value(owner, scope)):
                    raise Doubt("an item of what was there before is changed")
                all_plain((self._value(index, scope),))
                self.lookups.own_method("__getitem__")
                self.lookups.own_method("__setitem__")
                binary(self.lookups, op, BORN, value)
            case _:
                raise Doubt("an attribute is changed")

    # -- expressions ---------------------------------------------------------------------------------------------------
    def _value(self, node: ast.expr, scope: _Scope) -> Value:
        self._step()
        match node:
            case ast.Constant(value=value):
                return Known(value)
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self._value(owner, scope), name)
            case ast.Call(func=function, args=args, keywords=keywords):
                called = self._value(function, scope)
                given = tuple(self._each(args, scope))
                if any(keyword.arg is None for keyword in keywords):
                    raise Doubt("a call with keywords that are collected elsewhere")
                return self.called(called, given, {str(k.arg): self._value(k.value, scope) for k in keywords})
            case ast.BinOp(left=left, op=op, right=right):
                return binary(self.lookups, op, self._value(left, scope), self._value(right, scope))
            case ast.UnaryOp(op=op, operand=operand):
                return unary(self.lookups, op, self._value(operand, scope))
            case ast.BoolOp(op=op, values=values):
                return self._either(isinstance(op, ast.Or), values, scope)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return compared(self.lookups, op, self._value(left, scope), self._value(right, scope))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                holds = truth(self._value(test, scope))
                if holds is not None:
                    return self._value(body if holds else orelse, scope)
                return joined(self._value(body, scope), self._value(orelse, scope))
        return self._made_of(node, scope)

    def _made_of(self, node: ast.expr, scope: _Scope) -> Value:
        """An expression of several parts, or of one."""
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return Several(tuple(map(_lasting, self._each(parts, scope))))
            case ast.Slice(lower=lower, upper=upper, step=step):
                bounds = [self._value(bound, scope) for bound in (lower, upper, step) if bound is not None]
                all_plain(bounds)
                return BORN
            case ast.Subscript(value=owner, slice=index):
                return self._item(self._value(owner, scope), self._value(index, scope))
            case ast.GeneratorExp(elt=element, generators=[loop]):
                return Once(self._collected(element, loop, scope))
            case ast.ListComp(elt=element, generators=[loop]):
                return Several(self._collected(element, loop, scope))
        raise Doubt(f"an expression ({type(node).__name__})")

    def _each(self, nodes: Sequence[ast.expr], scope: _Scope) -> Iterator[Value]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self._items(self._value(node.value, scope))
            else:
                yield self._value(node, scope)

    def _name(self, name: str, scope: _Scope) -> Value:
        _unmangled(name)
        code = scope.function.__code__
        if name in scope.locals:
            return scope.locals[name]
        if name in code.co_varnames or name in code.co_cellvars:
            raise Doubt(f"'{name}' may not be there")
        if name in code.co_freevars:
            cell: CellType = (scope.function.__closure__ or ())[code.co_freevars.index(name)]
            return self._known(self.lookups.cell(cell))
        return self._known(self.lookups.of_globals(scope.function.__globals__, name))

    def _attribute(self, owner: Value, name: str) -> Value:
        _unmangled(name)
        match owner:
            case Born():
                if name in PROPERTIES or name in METHODS:
                    self.lookups.own_method(name)
                    return BORN if name in PROPERTIES else Method(name)
            case Context(kept):
                if name in ("saved_tensors", "needs_input_grad"):
                    return BORN
                if name in _SAVERS:
                    return Saver(name)
                if name in kept:
                    return kept[name]
            case Known(value) if isinstance(value, ModuleType):
                return self._known(self.lookups.of_globals(vars(value), name))
            case Known(value) if isinstance(value, type):
                return self._of_class(value, name)
            case Known(value) if not is_primitive(value):
                return self._of_object(value, name)
        raise Doubt(f"the attribute '{name}' of {told(owner)}")

    def _of_class(self, cls: type, name: str) -> Value:
        if cls is torch.distributed.ReduceOp:
            return Known(getattr(cls, name))
        if type(cls) not in _METACLASSES:
            raise Doubt("a class has attributes of its own kind")
        found = self.lookups.of_class(cls, name)
        if issubclass(cls, torch.autograd.Function):
            if name == "apply" and own_apply(cls):
                self.lookups.of_class(cls, "setup_context")
                return Applied(cls)
            raise Doubt("an attribute of an autograd function")
        if isinstance(found, staticmethod):
            return Known(found.__func__)
        if isinstance(found, FunctionType) or is_primitive(found):
            return Known(found)
        raise Doubt(f"the attribute '{name}' of a class")

    def _of_object(self, value: Any, name: str) -> Value:
        place, raw = self.lookups.attribute(value, name)
        if place != "class":
            return BORN if isinstance(raw, torch.Tensor) else self._known(raw)
        if isinstance(raw, FunctionType):
            return Bound(raw, Known(value))
        if isinstance(raw, staticmethod) and isinstance(raw.__func__, FunctionType):
            return Known(raw.__func__)
        if type(raw) is property and isinstance(raw.fget, FunctionType):
            return self._function(raw.fget, (Known(value),), {})
        if is_primitive(raw):
            return Known(raw)
        raise Doubt(f"the attribute '{name}' of {type(value).__name__}")

    def _known(self, value: Any) -> Value:
        if isinstance(value, torch.Tensor):
            raise Doubt("a tensor that is no parameter or buffer")
        return Known(value)

    def _items(self, value: Value) -> tuple[Value, ...]:
        if isinstance(value, (Several, Once)):
            return value.items
        if isinstance(value, Known):
            return tuple(map(self._known, _short(self.lookups.items(value.value))))
        raise Doubt(f"the items of {told(value)}")

    def _item(self, owner: Value, index: Value) -> Value:
        if is_born(owner):
            all_plain((index,))
            self.lookups.own_method("__getitem__")
            return BORN
        if isinstance(index, Known) and type(index.value) is int:
            items = self._items(owner)
            if -len(items) <= index.value < len(items):
                return items[index.value]
        raise Doubt(f"an item of {told(owner)}")

    def _collected(self, element: ast.expr, loop: ast.comprehension, scope: _Scope) -> tuple[Value, ...]:
        if loop.is_async or loop.ifs:
            raise Doubt("a comprehension with conditions")
        found = []
        inner = _Scope(scope.function, dict(scope.locals), scope.returned)
        for item in self._items(self._value(loop.iter, scope)):
            self._assign(loop.target, item, inner)
            found.append(self._value(element, inner))
        return tuple(found)

    def _either(self, any_of: bool, values: Sequence[ast.expr], scope: _Scope) -> Value:
        candidates: list[Value] = []
        for node in values:
            value = self._value(node, scope)
            holds = truth(value)
            if holds is None or holds is any_of or node is values[-1]:
                candidates.append(value)
            if holds is any_of:
                break
        return reduce(joined, candidates)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise Doubt("too much code")


@dataclass(slots=True)
class _Scope:
    """The variables of one call, and what it returned so far."""

    function: FunctionType
    locals: dict[str, Value]
    returned: list[Value] = field(default_factory=list)

    def set(self, name: str, value: Value) -> None:
        """Give a variable of the call's own a value."""
        code = self.function.__code__
        own = name not in code.co_freevars and (name in code.co_varnames or name in code.co_cellvars)
        if not own and name not in _loop_variables(code):
            raise Doubt(f"'{name}' is no variable of its function")
        self.locals[name] = value


def _unmangled(name: str) -> None:
    """Raise ``Doubt`` for a name that is another one inside a class."""
    if name.startswith("__") and not name.endswith("__"):
        raise Doubt(f"the private name '{name}'")


def _lasting(value: Value) -> Value:
    """A value that may be looked at again; raises ``Doubt`` for one that is used up by that."""
    if isinstance(value, Once):
        raise Doubt("an iterator is kept")
    return value


def _short(items: Sequence[Any]) -> Sequence[Any]:
    if len(items) > _LONGEST:
        raise Doubt("too many items")
    return items


def _loop_variables(code: CodeType) -> frozenset[str]:
    """Variables of the comprehensions of a function."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(name for one in inner for name in one.co_varnames)
