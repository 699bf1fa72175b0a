"""Branches on checks for NaN and infinity, which a recording takes as where every number is finite.

Real arithmetic is assumed of every proof, and there a check for NaN or infinity finds nothing, unless the program puts infinities in itself, as masks do.  So a condition that
only such checks decide is known: it is followed through the calls recorded so far, storage by storage.  Whatever else it rests on leaves it unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from graphguard.ir.graph import Sym
from graphguard.trace.calls.events import Event, Ref, refs_in
from graphguard.trace.record.exchange import tensor_of

ASSUMED = "every number is finite: branches on checks for NaN and infinity are taken as where they find none"

_NOT_NEGATIVE = frozenset(
    ("abs", "exp", "relu", "sigmoid", "softmax", "_softmax", "sqrt", "square", "norm", "linalg_vector_norm", "_foreach_norm", "_foreach_abs")
)  # fmt: skip
_KEEP_SIGN = frozenset(
    (
        "_to_copy", "add", "amax", "amin", "cat", "clone", "copy", "div", "expand", "max", "mean", "min", "mul", "permute", "reshape", "select",
        "slice", "stack", "sum", "t", "transpose", "unsqueeze", "squeeze", "view", "detach", "alias",
    )
)  # fmt: skip
_KEEP_TRUTH = frozenset(
    (
        "_to_copy", "all", "any", "cat", "clone", "copy", "detach", "alias", "expand", "permute", "reshape", "select", "slice", "squeeze", "stack",
        "transpose", "unsqueeze", "view", "logical_or", "logical_and", "bitwise_or", "bitwise_and", "__or__", "__and__",
    )
)  # fmt: skip
_POLES = frozenset(("log", "log2", "log10", "log1p", "logit", "atanh", "reciprocal", "rsqrt"))
_WHOLE = ("bool", "int", "uint")
_EMPTY = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"))


@dataclass(frozen=True, slots=True)
class Fact:
    """What is so of all elements: none is infinite or NaN, none is negative, all are this truth value.

    ``exact``: they are constants, counts or truth values, which may be zero where a logarithm is taken.
    """

    finite: bool = True
    positive: bool = False
    truth: bool | None = None
    exact: bool = False

    def meet(self, other: Fact | None) -> Fact:
        """What is so of both; None is memory that nobody wrote."""
        if other is None:
            return self
        truth = self.truth if self.truth == other.truth else None
        return Fact(self.finite and other.finite, self.positive and other.positive, truth, self.exact or other.exact)


_Facts: TypeAlias = dict[int | str, Fact | None]
"""By storage, and by the name of a number that was read."""


def truth_where_finite(events: Iterable[Event], condition: Ref) -> bool | None:
    """The value of a condition where every number is finite; None where it rests on anything else."""
    facts: _Facts = {}
    for event in events:
        _step(event, facts)
    fact = facts.get(condition.storage)
    return None if fact is None else fact.truth


def _step(event: Event, facts: _Facts) -> None:
    outs = refs_in(event.outs)
    if isinstance(event.outs, Sym):
        facts[event.outs.expr] = Fact().meet(facts.get(next(iter(refs_in(event.args))).storage, Fact()))
    if isinstance(event.op, str):
        if event.op in ("leaf", "constant"):
            facts.update((out.storage, _declared(event)) for out in outs)
        return
    operands = refs_in((event.args, event.kwargs))
    name = "" if event.kind is None else event.kind.short_name
    written = {ref.storage for ref in event.written}
    new = _result(name.removesuffix("_") if written else name, event, operands, facts)
    if getattr(event.op, "namespace", "") in ("c10d", "_c10d_functional"):
        new = Fact(new is None or new.finite)  # what other ranks put in is finite, too, and else unknown
    viewed = {ref.storage for ref in operands} - written
    for storage in written | {out.storage for out in outs} - viewed:
        old = facts.get(storage)
        facts[storage] = old if new is None else new.meet(old)  # what nobody wrote takes nothing back of what is there


def _declared(event: Event) -> Fact:
    """A leaf is any number; a constant what it is."""
    if event.op == "leaf":
        return Fact()
    if event.args[0].data is None:
        return Fact(finite=False)
    with unset_fake_temporarily():
        value = tensor_of(event.args[0])
        if not value.numel() or value.is_complex():
            return Fact(finite=False)
        equal = bool((value == value.flatten()[0]).all())
        truth = bool(value.flatten()[0]) if equal and value.dtype == torch.bool else None
        return Fact(bool(torch.isfinite(value).all()), bool((value >= 0).all()), truth, True)


def _result(name: str, event: Event, operands: list[Ref], facts: _Facts) -> Fact | None:
    if name in _EMPTY:
        return None
    known = [fact for ref in operands if (fact := facts.get(ref.storage, Fact())) is not None]
    known += [fact for read in read_in(event.args) if (fact := facts.get(read, Fact())) is not None]
    chosen = _chosen(name, event, facts)
    if chosen is not None:
        return chosen
    numbers = [arg for arg in _numbers((event.args, event.kwargs)) if not isinstance(arg, bool)]
    exact = all(fact.exact for fact in known) or any(ref.dtype.startswith(_WHOLE) for ref in refs_in(event.outs))
    finite = all(fact.finite for fact in known) and all(math.isfinite(number) for number in numbers)
    pole = name in _POLES or (name == "pow" and min(numbers, default=-1) < 0)
    finite = finite and not (exact and pole) and not (name == "div" and 0 in numbers)
    test = _both if name == "mul" and all(fact.truth is not None for fact in known) else _TESTS.get(name)
    if test is not None:
        return Fact(truth=test(event.args, known, numbers), exact=True)
    positive = name in _NOT_NEGATIVE or _is_root(name, event) or (
        name in _KEEP_SIGN and all(fact.positive for fact in known) and all(number >= 0 for number in numbers)
    )  # fmt: skip
    empty = any(0 in ref.shape for ref in operands)  # where any is not all
    truths = {None if empty else fact.truth for fact in known}
    truth = next(iter(truths)) if len(truths) == 1 and name in _KEEP_TRUTH else None
    return Fact(finite, positive, truth, exact)


def read_in(value: Any) -> Iterable[str]:
    """Names of the numbers that were read from tensors, in arguments."""
    if isinstance(value, Sym):
        yield from re.findall(r"[A-Za-z_]\w*", value.expr)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from read_in(item)


def _chosen(name: str, event: Event, facts: _Facts) -> Fact | None:
    """What a choice is whose condition is known."""
    if name == "mul" and len(refs := refs_in(event.args)) == 2:
        return _product(*(facts.get(ref.storage, Fact()) for ref in refs))
    if name == "where" and len(event.args) == 3:
        condition, yes, no = event.args
        sides = (condition, yes, no)
    elif name == "masked_fill":
        kept, condition, filled = event.args
        sides = (condition, filled, kept)
    else:
        return None
    fact = facts.get(sides[0].storage) if isinstance(sides[0], Ref) else None
    if fact is None or fact.truth is None:
        return None
    side = sides[1] if fact.truth else sides[2]
    return facts.get(side.storage, Fact()) if isinstance(side, Ref) else None


def _product(one: Fact | None, other: Fact | None) -> Fact | None:
    """A product with truth values, which are zero or one."""
    for flag, value in ((one, other), (other, one)):
        if flag is None or value is None or flag.truth is None or value.truth is not None or not value.finite:
            continue
        return value if flag.truth else Fact(positive=True, exact=True)
    return None


def _is_root(name: str, event: Event) -> bool:
    """A power is not negative where its exponent is even or no integer: then it is of numbers that are not."""
    exponent = event.args[1] if name == "pow" and len(event.args) > 1 else None
    return isinstance(exponent, int | float) and (exponent % 2 == 0 or exponent != int(exponent))


def _none_found(_: Any, known: list[Fact], __: list[float]) -> bool | None:
    return False if all(fact.finite for fact in known) else None


def _equal(args: Any, known: list[Fact], numbers: list[float]) -> bool | None:
    """With itself, or with infinity."""
    if not all(fact.finite for fact in known):
        return None
    if len(args) > 1 and isinstance(args[0], Ref) and isinstance(args[1], Ref) and args[0].key == args[1].key:
        return True
    return False if any(math.isinf(number) for number in numbers) else None


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _less(_: Any, known: list[Fact], numbers: list[float]) -> bool | None:
    """Less than infinity, or than zero."""
    if (beside := _beside_infinity(_, known, numbers)) is not None:
        return beside
    return False if known and known[0].positive and known[0].finite and numbers == [0] else None


def _beside_infinity(_: Any, known: list[Fact], numbers: list[float]) -> bool | None:
    """Less than infinity."""
    beside = len(known) == 1 and known[0].finite and len(numbers) == 1 and math.isinf(numbers[0])
    return numbers[0] > 0 if beside else None


def _negated(_: Any, known: list[Fact], __: list[float]) -> bool | None:
    return _not(known[0].truth) if known else None


def _both(args: Any, known: list[Fact], numbers: list[float]) -> bool | None:  # noqa: ARG001 - as all tests
    """Conjunction; also the product of truth values."""
    truths = [fact.truth for fact in known]
    return False if False in truths else True if all(truths) else None


def _either(args: Any, known: list[Fact], numbers: list[float]) -> bool | None:  # noqa: ARG001 - as all tests
    truths = [fact.truth for fact in known]
    return True if True in truths else False if None not in truths else None


_TESTS: dict[str, Callable[[Any, list[Fact], list[float]], bool | None]] = {
    "isnan": _none_found,
    "isinf": _none_found,
    "isfinite": lambda *call: _not(_none_found(*call)),
    "eq": _equal,
    "ne": lambda *call: _not(_equal(*call)),
    "lt": _less,
    "le": _beside_infinity,
    "ge": lambda *call: _not(_less(*call)),
    "gt": lambda *call: _not(_beside_infinity(*call)),
    "logical_not": _negated,
    "bitwise_not": _negated,
    "logical_and": _both,
    "bitwise_and": _both,
    "__and__": _both,
    "logical_or": _either,
    "bitwise_or": _either,
    "__or__": _either,
}


def _numbers(value: Any) -> Iterable[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict):
        yield from _numbers(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
