"""Numbers that know what they are on every rank, so that a recording of one rank tells which other ranks run the same program.

A rank that is *sounded* is given such numbers where it asks who it is.  Arithmetic on them gives others.  Whatever the program decides by one (a comparison, a truth, a look-up) is known
of all ranks at once: those whose answer is another are no longer ``alike``.  A number that goes where nobody follows it (text, a C function, a subscript) is there the number of this rank, and ranks
whose number is another are not alike from there on.  A number that is the same on all ranks that are alike is a plain one.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Values = dict[int, Any]
"""A number by rank."""

Where = tuple[str, int]
"""A file and a line."""

_PLAIN: Final = (int, float, bool)
# No text of a place is worth more than so many.
_MOST_PLACES: Final = 32


class Sounding:
    """One rank that is asked which others are ``alike``: run the same program up to literals.

    ``literals`` are the numbers that became arguments of operators.  ``split`` is where ranks were told apart, ``unfollowed`` where they had to be, because nobody knows what was made of a number.
    ``on_tensor(number, operation, tensor, reflected)`` is what an operation on a tensor gives; ``taken(number, frame)`` notes what a frame takes out of a list, where that can be followed.
    ``depth``: how deep inside PyTorch's own communication the program is, where ranks are plain.
    """

    def __init__(self, me: int, ranks: Iterable[int], on_tensor: Callable[..., Any] | None = None) -> None:
        self.me = me
        self.alike = tuple(ranks)
        self.literals: list[Values] = []
        self.split: dict[Where, int] = {}
        self.unfollowed: dict[Where, int] = {}
        self.on_tensor = on_tensor
        self.taken: Callable[[Any, Any], bool] | None = None
        self.depth = 0

    def number(self, values: Mapping[int, Any]) -> Any:
        """A number by rank; where it is the same on all that are alike, that."""
        mine = values[self.me]
        if all(_same(values[rank], mine) for rank in self.alike):
            return mine
        return Number(self, {rank: values[rank] for rank in self.alike})

    def keep(self, outcomes: Mapping[int, Any], where: dict[Where, int] | None = None) -> Any:
        """Ranks whose outcome is another than this rank's are not alike; gives this rank's.  Ranks without an outcome raise where this one does not."""
        mine = outcomes[self.me]
        kept = tuple(rank for rank in self.alike if rank in outcomes and _same(outcomes[rank], mine))
        if len(kept) < len(self.alike):
            places = self.split if where is None else where
            place = _place()
            if place in places or len(places) < _MOST_PLACES:
                places[place] = places.get(place, 0) + len(self.alike) - len(kept)
            self.alike = kept
        return mine

    def alone(self) -> None:
        """Something depends on this rank in a way that nobody can follow."""
        self.keep({rank: rank for rank in self.alike} | {self.me: self.me}, self.unfollowed)

    def literal(self, value: Any) -> Any:
        """A number as an argument of an operator: plain, and noted."""
        if type(value) is not Number:
            return value
        self.literals.append(value.values)
        return value.values[self.me]

    def plainly(self, value: Any) -> Any:
        """Arguments with every number in them as a literal."""
        kind = type(value)
        if kind is Number:
            return self.literal(value)
        if kind is tuple or kind is list:
            return kind(map(self.plainly, value)) if has_number(value) else value
        if kind is slice:
            return slice(*map(self.literal, (value.start, value.stop, value.step)))
        if kind is dict:
            return {key: self.plainly(one) for key, one in value.items()}
        return value

    def mapped(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """``function(*arguments)`` of plain numbers, worked out for every rank that is alike; a rank on which it raises is not alike."""
        outcomes: Values = {}
        for rank in self.alike:
            try:
                outcomes[rank] = function(*(on(one, rank) for one in arguments))
            except (ArithmeticError, ValueError):
                if rank == self.me:
                    raise
        self.keep(dict.fromkeys(outcomes, True))
        return self.number(outcomes)


def on(value: Any, rank: int) -> Any:
    """What a number, or one among others, is on a rank."""
    kind = type(value)
    if kind is Number:
        return value.values[rank]
    if kind is tuple or kind is list:
        return kind(on(one, rank) for one in value)
    return value


def has_number(value: Any) -> bool:
    """Whether there is such a number in nested lists, tuples, dicts and slices."""
    kind = type(value)
    if kind is Number:
        return True
    if kind is tuple or kind is list:
        return any(map(has_number, value))
    if kind is dict:
        return any(map(has_number, value.values()))
    return kind is slice and (type(value.start) is Number or type(value.stop) is Number or type(value.step) is Number)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _place() -> Where:
    """Who asks: the nearest frame that is not of this room."""
    frame = sys._getframe(1)  # noqa: SLF001 - who asks is what counts
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _is_tensor(value: Any) -> bool:
    return hasattr(type(value), "__torch_function__")


class Number:
    """An integer, or a float that was computed of some, which is another on other ranks.

    It says that it is an int, and is none: C takes its value by asking for it.
    """

    __slots__ = ("sounding", "values")

    def __init__(self, sounding: Sounding, values: Values) -> None:
        object.__setattr__(self, "sounding", sounding)
        object.__setattr__(self, "values", values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self.mine).__name__!r} object has no attribute {name!r}")

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.mine)

    @property
    def mine(self) -> Any:
        """What it is on this rank."""
        return self.values[self.sounding.me]

    def settled(self) -> Any:
        """This rank's number, to whoever cannot be followed."""
        return self.sounding.keep(self.values, self.sounding.unfollowed)

    # -- what cannot be followed ---------------------------------------------------------------------------------------
    def __index__(self) -> int:
        taken = self.sounding.taken
        if taken is not None and taken(self, sys._getframe(1)):  # noqa: SLF001 - what is asked for is seen there
            return operator.index(self.mine)
        return operator.index(self.settled())

    def __int__(self) -> int:
        return int(self.settled())

    def __float__(self) -> float:
        return float(self.settled())

    def __complex__(self) -> complex:
        return complex(self.settled())

    def __hash__(self) -> int:
        return hash(self.settled())

    def __repr__(self) -> str:
        return repr(self.settled())

    def __str__(self) -> str:
        return str(self.settled())

    def __format__(self, how: str) -> str:
        return format(self.settled(), how)

    def __reduce_ex__(self, _: Any) -> Any:
        mine = self.settled()
        return type(mine), (mine,)

    def __getattr__(self, name: str) -> Any:  # bit_length, real, to_bytes and the like
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.settled(), name)

    # -- what does not change it ---------------------------------------------------------------------------------------
    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, _: Any) -> Number:
        return self

    # -- what decides --------------------------------------------------------------------------------------------------
    def __bool__(self) -> bool:
        return bool(self.sounding.keep({rank: bool(value) for rank, value in self.values.items()}))

    # -- arithmetic ----------------------------------------------------------------------------------------------------
    def made(self, function: Callable[..., Any], *others: Any) -> Any:
        """A number worked out on every rank."""
        if any(type(one) is not Number and not isinstance(one, _PLAIN) for one in others):
            return NotImplemented
        return self.sounding.mapped(function, self, *others)


def _binary(name: str, function: Callable[[Any, Any], Any]) -> None:
    def forward(self: Number, other: Any) -> Any:
        if _is_tensor(other):
            return _with_tensor(self, function, other, reflected=False)
        return self.made(function, other)

    def reflected(self: Number, other: Any) -> Any:
        if _is_tensor(other):
            return _with_tensor(self, function, other, reflected=True)
        return self.made(lambda mine, theirs: function(theirs, mine), other)

    setattr(Number, f"__{name}__", forward)
    setattr(Number, f"__r{name}__", reflected)


def _with_tensor(number: Number, function: Callable[[Any, Any], Any], tensor: Any, *, reflected: bool) -> Any:
    sounding = number.sounding
    if sounding.on_tensor is None:
        return NotImplemented
    return sounding.on_tensor(number, function, tensor, reflected)


def _comparing(name: str, function: Callable[[Any, Any], Any]) -> None:
    def compare(self: Number, other: Any) -> Any:
        if _is_tensor(other):
            return _with_tensor(self, function, other, reflected=False)
        if type(other) is not Number and not isinstance(other, _PLAIN):
            return NotImplemented
        return self.sounding.keep(
            {
                rank: function(value, on(other, rank))
                for rank, value in self.values.items()
                if rank in self.sounding.alike
            }
        )

    setattr(Number, f"__{name}__", compare)


for _name, _function in (
    ("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("floordiv", operator.floordiv), ("truediv", operator.truediv),
    ("mod", operator.mod), ("pow", operator.pow), ("lshift", operator.lshift), ("rshift", operator.rshift),
    ("and", operator.and_), ("or", operator.or_), ("xor", operator.xor),
):  # fmt: skip
    _binary(_name, _function)
for _name, _function in (
    ("eq", operator.eq),
    ("ne", operator.ne),
    ("lt", operator.lt),
    ("le", operator.le),
    ("gt", operator.gt),
    ("ge", operator.ge),
):
    _comparing(_name, _function)


def _unary(name: str, function: Callable[[Any], Any]) -> None:
    setattr(Number, f"__{name}__", lambda self: self.made(function))


for _name, _one in (
    ("neg", operator.neg), ("pos", operator.pos), ("abs", abs), ("invert", operator.invert),
    ("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc),
):  # fmt: skip
    _unary(_name, _one)


def _rounded(self: Number, digits: Any = None) -> Any:
    return self.made(round) if digits is None else self.made(round, digits)


def _divided(self: Number, other: Any) -> Any:
    quotient = self // other
    return NotImplemented if quotient is NotImplemented else (quotient, self % other)


def _divides(self: Number, other: Any) -> Any:
    quotient = other // self
    return quotient, other % self


for _name, _method in (("__round__", _rounded), ("__divmod__", _divided), ("__rdivmod__", _divides)):
    setattr(Number, _name, _method)
