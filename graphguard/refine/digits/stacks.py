"""Tensors of all ranks of a program: normal forms with the digits as leading dims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graphguard.relations.algebra import Kind
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue


class Stack:
    """A tensor of every rank: ``value`` has the digits before the dims that the program knows."""

    __slots__ = ("_plain", "kind", "shape", "value")

    def __init__(self, value: NormalValue, digits: int, plain: NormalValue | None = None) -> None:
        self.value = value
        self.shape = value.shape[digits:]
        self.kind: Kind = value.kind
        self._plain: NormalValue | bool | None = False if plain is None else plain

    def plain(self, make: Callable[[], NormalValue | None]) -> NormalValue | None:
        """The tensor where all ranks have the same one; it is found once."""
        if isinstance(self._plain, bool):
            self._plain = make()
        return self._plain


class Stacking:
    """Makes tensors of all ranks, for digits of these sizes.

    ``own`` gives the one object for equal values.
    """

    def __init__(self, normal: NormalForm, sizes: Sequence[int], own: Callable[[NormalValue], NormalValue]) -> None:
        self.normal = normal
        self.sizes = tuple(sizes)
        self.own = own
        self._count = len(self.sizes)

    # -- to and from normal forms

    def of(self, value: NormalValue) -> Stack:
        """A value with the digits in front."""
        assert value.shape[: self._count] == self.sizes
        return Stack(value, self._count)

    def lift(self, value: NormalValue) -> Stack:
        """The same tensor on all ranks."""
        value = self.own(value)
        return Stack(self.spread(value, value.shape).value, self._count, value)

    def spread(self, value: NormalValue, shape: Sequence[int], along: Iterable[int] | None = None) -> Stack:
        """A value that has the digits in front but for those ``along`` which it is the same: all of them unless they are named."""
        alike = range(self._count) if along is None else tuple(along)
        lead = tuple(1 if digit in alike else size for digit, size in enumerate(self.sizes))
        whole = self.normal.reshape(value, (*lead, *shape))
        return self.of(self.normal.expand(whole, (*self.sizes, *shape)))

    def without(self, value: NormalValue, digits: Iterable[int]) -> NormalValue:
        """A value at the first place of some digits, which stay as dims of one."""
        for digit in digits:
            value = self.normal.slice(value, digit, 0, 1)
        return value

    def alike(self, v: Stack) -> list[int]:
        """The digits along which all ranks are seen to have the same tensor."""
        return [digit for digit in range(self._count) if self.normal.repeats(v.value, digit)]

    def plain(self, v: Stack) -> NormalValue | None:
        """The tensor where all ranks are seen to have the same one."""
        return v.plain(lambda: self._plain(v))

    def _plain(self, v: Stack) -> NormalValue | None:
        if len(self.alike(v)) < self._count:
            return None
        return self.own(self.normal.reshape(self.without(v.value, range(self._count)), v.shape))

    def written_down(self, v: Stack) -> Stack:
        """The same tensor, in the form that known ones have."""
        plain = self.plain(v)
        if plain is None:
            return v
        written = self.own(self.normal.written_down(plain))
        return v if written is plain else self.lift(written)

    def of_kind(self, v: Stack, kind: Kind) -> Stack:
        """The same numbers, each of which is of a kind."""
        value = v.value
        return v if v.kind == kind else self.of(NormalValue(value.shape, kind, value.pieces, value.grid))
