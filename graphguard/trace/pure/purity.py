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
from collections.abc import Iterator, Sequence
from functools import reduce
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

from graphguard.trace.pure.built_in import built_in
from graphguard.trace.pure.followed import (
    BORN,
    NONE,
    Applied,
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
from graphguard.trace.pure.found import Read, attribute_of, item_at, items_of, value_of
from graphguard.trace.pure.harmless import FUNCTIONS, is_own, own_call
from graphguard.trace.pure.lookups import Doubt, Lookups
from graphguard.trace.pure.operations import binary, compared, truth, unary
from graphguard.trace.pure.scopes import Scope, bound, lasting
from graphguard.trace.pure.texts import source_of
from graphguard.trace.source.rewriting import CLASS, IN_ORDER, NAME

_MOST_STEPS = 20_000
_DEEPEST = 30


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
                return args[1] if args[0].value is CLASS else self.called(args[0], args[1:], named)
            case Known(value) if value is getattr(builtins, IN_ORDER, self) and len(args) == 1:
                if not is_born(args[0]):
                    items_of(self.lookups, args[0])  # of no set, then
                return args[0]
            case Known(value) if isinstance(value, FunctionType):
                return self._function(value, args, named)
            case Known(value) if isinstance(value, (BuiltinFunctionType, type)):
                if value is getattr and len(args) == 2 and not named and is_text(args[1]):
                    return self._attribute(args[0], args[1].value)  # type: ignore[union-attr]
                return built_in(self.lookups, value, args, named)
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

    def _function(self, function: FunctionType, args: Sequence[Value], named: dict[str, Value]) -> Value:
        self.lookups.function(function)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Doubt("calls are too deep")
        body, arguments = source_of(function.__code__)
        for value in (*args, *named.values()):
            lasting(value)
        scope = Scope(function, bound(function, arguments, args, named))
        ended = self._block(body, scope)
        self._depth -= 1
        results = scope.returned if ended else [*scope.returned, NONE]
        if not results:
            raise Doubt("a function does nothing but raise")
        return reduce(joined, results)

    # -- statements ----------------------------------------------------------------------------------------------------
    def _block(self, statements: Sequence[ast.stmt], scope: Scope) -> bool:
        """Follow statements; whether every way through them returns or raises."""
        return any(self._statement(statement, scope) for statement in statements)

    def _statement(self, statement: ast.stmt, scope: Scope) -> bool:
        self._step()
        match statement:
            case ast.Return(value=value):
                scope.returned.append(NONE if value is None else lasting(self._value(value, scope)))
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
                return self._loop(target, items_of(self.lookups, self._value(iterated, scope)), body, scope)
        raise Doubt(f"a statement ({type(statement).__name__})")

    def _branch(self, holds: bool | None, body: list[ast.stmt], orelse: list[ast.stmt], scope: Scope) -> bool:
        if holds is not None:
            return self._block(body if holds else orelse, scope)
        other = Scope(scope.function, dict(scope.locals), scope.returned)
        ended, other_ended = self._block(body, scope), self._block(orelse, other)
        if ended:
            scope.locals = other.locals
        elif not other_ended:
            both = scope.locals.keys() & other.locals.keys()
            scope.locals = {name: joined(scope.locals[name], other.locals[name]) for name in both}
        return ended and other_ended

    def _loop(self, target: ast.expr, items: Sequence[Value], body: list[ast.stmt], scope: Scope) -> bool:
        if any(isinstance(node, (ast.Break, ast.Continue)) for each in body for node in ast.walk(each)):
            raise Doubt("a loop is left early")
        for item in items:
            self._assign(target, item, scope)
            if self._block(body, scope):
                return True
        return False

    def _assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.set(name, lasting(value))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = [BORN] * len(parts) if is_born(value) else items_of(self.lookups, value)
                if len(items) != len(parts) or any(isinstance(part, ast.Starred) for part in parts):
                    raise Doubt("an unpacking that does not fit")
                for part, item in zip(parts, items, strict=True):
                    self._assign(part, item, scope)
            case ast.Attribute(value=owner, attr=name):
                context = self._value(owner, scope)
                if not isinstance(context, Context) or hasattr(torch.autograd.Function, name):
                    raise Doubt(f"the attribute '{name}' is set")
                before = context.kept.get(name)
                context.kept[name] = lasting(value) if before is None else joined(before, value)
            case ast.Subscript(value=owner, slice=index):
                if not is_born(self._value(owner, scope)):
                    raise Doubt("an item of what was there before is set")
                all_plain((value, self._value(index, scope)))
                self.lookups.own_method("__setitem__")
            case _:
                raise Doubt("an assignment")

    def _augment(self, target: ast.expr, op: ast.operator, value: Value, scope: Scope) -> None:
        all_plain((value,))
        match target:
            case ast.Name(id=name):
                before = value_of(self.lookups, name, scope)
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
    def _value(self, node: ast.expr, scope: Scope) -> Value:
        self._step()
        match node:
            case ast.Constant(value=value):
                return Known(value)
            case ast.Name(id=name):
                return value_of(self.lookups, name, scope)
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

    def _made_of(self, node: ast.expr, scope: Scope) -> Value:
        """An expression of several parts, or of one."""
        match node:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return Several(tuple(map(lasting, self._each(parts, scope))))
            case ast.Slice(lower=lower, upper=upper, step=step):
                bounds = [self._value(bound, scope) for bound in (lower, upper, step) if bound is not None]
                all_plain(bounds)
                return BORN
            case ast.Subscript(value=owner, slice=index):
                return item_at(self.lookups, self._value(owner, scope), self._value(index, scope))
            case ast.GeneratorExp(elt=element, generators=[loop]):
                return Once(self._collected(element, loop, scope))
            case ast.ListComp(elt=element, generators=[loop]):
                return Several(self._collected(element, loop, scope))
        raise Doubt(f"an expression ({type(node).__name__})")

    def _each(self, nodes: Sequence[ast.expr], scope: Scope) -> Iterator[Value]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from items_of(self.lookups, self._value(node.value, scope))
            else:
                yield self._value(node, scope)

    def _attribute(self, owner: Value, name: str) -> Value:
        found = attribute_of(self.lookups, owner, name)
        return self._function(found.function, (found.receiver,), {}) if isinstance(found, Read) else found

    def _collected(self, element: ast.expr, loop: ast.comprehension, scope: Scope) -> tuple[Value, ...]:
        if loop.is_async or loop.ifs:
            raise Doubt("a comprehension with conditions")
        found = []
        inner = Scope(scope.function, dict(scope.locals), scope.returned)
        for item in items_of(self.lookups, self._value(loop.iter, scope)):
            self._assign(loop.target, item, inner)
            found.append(self._value(element, inner))
        return tuple(found)

    def _either(self, any_of: bool, values: Sequence[ast.expr], scope: Scope) -> Value:
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
