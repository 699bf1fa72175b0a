"""The vocabulary in which every operator rule is written.

A rule says what an operator does to values by calling an :class:`Algebra`; it never looks inside a value.  The same rules
therefore run over several algebras: the *normal form* (``relations.prove.normal_form``), which proves; plain *numbers*
(``relations.numbers``), which tests every rule against PyTorch; and a pair of *finite fields*
(``confirm.fields.fields``), the second opinion.

A value has a shape and a kind, ``bool``, ``int`` or ``float``; the kinds never mix silently: arithmetic takes
numbers, ``number`` turns a bool into one.  Shapes are concrete.  Rules broadcast by ``expand`` before they call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

Kind = Literal["bool", "int", "float"]
Scalar = Fraction | float  # float only for what no fraction can say: an infinity, or an irrational literal


class Value(Protocol):
    """What rules may know of a value."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dims."""
        ...

    @property
    def kind(self) -> Kind:
        """What its elements are."""
        ...


V = TypeVar("V", bound=Value)


class Unsupported(Exception):  # noqa: N818 - a limit of ours, not an error of the program
    """An algebra, or a rule, cannot say what an operator does here; the message gives the reason in a user's words."""


class Algebra(Protocol[V]):
    """Operations on values; each states its mathematics, all raise :class:`Unsupported` where they cannot follow."""

    # -- where values come from
    def leaf(self, name: str, shape: tuple[int, ...], kind: Kind, low: int | None = None, high: int | None = None) -> V:
        """An unknown; integer ones may be bounded (half-open)."""
        ...

    def literal(self, elements: np.ndarray) -> V:
        """A known tensor, bool, int64 or float64."""
        ...

    def full(self, shape: tuple[int, ...], value: Scalar, kind: Kind) -> V:
        """One known number everywhere."""
        ...

    def iota(self, extent: int) -> V:
        """The integers 0, 1, ..., extent - 1."""
        ...

    def known(self, v: V) -> np.ndarray | None:
        """The elements (bool, int64 or float64) of a value that depends on no unknown and is small; None is always a right answer."""
        ...

    def repeats(self, v: V, dim: int) -> bool:
        """Whether all places of a dim are seen to hold the same elements; False is always a right answer."""
        ...

    def hold(self, v: V, dtype: str) -> None:
        """State that numbers are of a float type."""
        ...

    def holds(self, v: V, dtype: str) -> bool:
        """Whether all elements are seen to be numbers that were stated to be of a float type; False is always a right answer."""
        ...

    def random(
        self, draw: tuple[str, int], name: str, attributes: tuple[object, ...], shape: tuple[int, ...], kind: Kind
    ) -> V:
        """What call number ``draw[1]`` of generator ``draw[0]`` yields: the same draw, name, attributes and shape give the same value."""
        ...

    def once(self, key: tuple[object, ...], make: Callable[[], V]) -> V:
        """What ``make`` gives, a function of the key alone; values in a key are told apart as objects, so an algebra may remember it."""
        ...

    def noted(self, topic: str) -> list[Any]:
        """What rules noted of the values that they made, by topic: a list to be added to; an algebra that remembers nothing gives an empty one each time."""
        ...

    def assume(self, text: str) -> None:
        """What follows rests on this, which the verdict lists; an algebra that proves nothing has nothing to list."""
        ...

    def same(self, v: V, w: V) -> bool:
        """Whether two values are seen to be equal everywhere; False is always a right answer."""
        ...

    # -- layout: no element changes
    def reshape(self, v: V, shape: tuple[int, ...]) -> V:
        """The same elements in row-major order."""
        ...

    def permute(self, v: V, dims: Sequence[int]) -> V:
        """Dim i of the result is dim ``dims[i]`` of v."""
        ...

    def slice(self, v: V, dim: int, start: int, stop: int, step: int = 1) -> V:
        """Elements start, start + step, ... below stop; 0 <= start <= stop <= extent, step > 0."""
        ...

    def flip(self, v: V, dim: int) -> V:
        """Reverse order along a dim."""
        ...

    def concat(self, vs: Sequence[V], dim: int) -> V:
        """Joined along a dim; empty tensors count."""
        ...

    def expand(self, v: V, shape: tuple[int, ...]) -> V:
        """Broadcast to a shape, as PyTorch does: dims aligned at the end, extent 1 repeats."""
        ...

    # -- arithmetic on int and float values of equal shapes
    def add(self, vs: Sequence[V]) -> V:
        """The sum of at least one value."""
        ...

    def scale(self, v: V, factor: Scalar) -> V:
        """v times a known number; the kind is float if v or the factor's nature asks for it."""
        ...

    def multiply(self, a: V, b: V) -> V:
        """The elementwise product."""
        ...

    def power(self, v: V, exponent: Fraction) -> V:
        """v to a known rational exponent; -1 is the reciprocal, 1/2 the square root (of v >= 0)."""
        ...

    def exp(self, v: V) -> V:
        """e to the v; e to the -inf is 0."""
        ...

    def log(self, v: V) -> V:
        """The natural logarithm of v > 0."""
        ...

    def sum(self, v: V, dims: Sequence[int]) -> V:
        """Summed over dims, which are dropped."""
        ...

    def contract(self, operands: Sequence[tuple[V, str]], out: str) -> V:
        """An Einstein summation: every operand with one letter per dim, the result's letters in ``out``."""
        ...

    def maximum(self, a: V, b: V) -> V:
        """The elementwise larger one."""
        ...

    def max_over(self, v: V, dims: Sequence[int]) -> V:
        """The largest element over dims, which are dropped."""
        ...

    def place_of_largest(self, v: V, dim: int) -> V:
        """Where the largest element stands along a dim, which is dropped: an int; the first place of several."""
        ...

    # -- integers
    def floor_divide(self, v: V, divisor: int) -> V:
        """The floor of v / divisor, for an integer value and divisor > 0."""
        ...

    def remainder(self, v: V, divisor: int) -> V:
        """v - divisor * floor(v / divisor)."""
        ...

    def one_hot(self, index: V, extent: int, checked: bool | Literal["known"] = False) -> V:
        """A float of shape (\\*index.shape, extent): 1 where the last coordinate equals the index, else 0 (also for an index out of range).

        ``checked``: the index is a look-up position, so one outside the extent is an error of the program, as in :meth:`lookup`;
        then the sum over the last dim is 1.  ``"known"``: so it is, but an index of which nothing is known is let pass.
        """
        ...

    def lookup(self, table: V, index: V) -> V:
        """``table[index]`` along dim 0: shape (\\*index.shape, \\*table.shape[1:]).

        An index outside the table is an error of the program: the specification's look-ups state the range of their indices, the implementation's
        must follow from them.
        """
        ...

    # -- truth
    def compare(self, relation: Literal["lt", "le", "eq"], a: V, b: V) -> V:
        """A bool, elementwise."""
        ...

    def distinct(self, v: V, dim: int) -> bool:
        """Whether the integers of every line along a dim are seen to be all different; False is always a right answer."""
        ...

    def truths(self, v: V) -> bool:
        """Whether all numbers are seen to be 0 or 1; False is always a right answer."""
        ...

    def positive(self, v: V) -> bool:
        """Whether all numbers are seen to be larger than zero; False is always a right answer."""
        ...

    def sorts_by(self, v: V) -> int:
        """1 or -1 where elements of sorted lines are said by one order of v, or of its negative, however a program sorted them; 0 where by the program's own."""
        ...

    def may_count_back(self, v: V) -> bool:
        """Whether integers are seen to rest on a declared range of which some are below zero."""
        ...

    def most_counted(self, v: V, digits: int) -> float | None:
        """The most that whole numbers, or multiples of a power of two of at most so many binary digits behind the point, can be in units of it, where they rest on truths and whole numbers alone: infinity where no unit or no end is seen.

        None for what rests on a float; it is always a right answer.
        """
        ...

    def groups(self, ends: V, extent: int) -> V | None:
        """[ends[g - 1] <= t < ends[g]] for the places t of a line, as a float of shape (extent, groups); None is always a right answer."""
        ...

    def truth(self, v: V) -> V:
        """As a bool, a number that is 0 or 1 everywhere."""
        ...

    def logical_not(self, v: V) -> V:
        """Negation of a bool."""
        ...

    def logical_and(self, a: V, b: V) -> V:
        """Conjunction of bools."""
        ...

    def logical_or(self, a: V, b: V) -> V:
        """Disjunction of bools."""
        ...

    def number(self, v: V, kind: Literal["int", "float"]) -> V:
        """1 for true, 0 for false; an int as the float of the same value; a float as an int by truncation."""
        ...

    def where(self, condition: V, a: V, b: V) -> V:
        """a where the bool holds, else b."""
        ...

    # -- what stays closed
    def apply(self, name: str, attributes: tuple[object, ...], vs: Sequence[V], kind: Kind) -> V:
        """An elementwise function known by its name only: equal name, attributes and operands give equal results."""
        ...

    def opaque(
        self,
        name: str,
        attributes: tuple[object, ...],
        operands: Sequence[tuple[V, str]],
        out: str,
        out_shape: tuple[int, ...],
        kind: Kind,
    ) -> V:
        """A function known by its name only, batched over the letters that operands share with ``out``.

        Letters in upper case are *core* dims: the function sees them whole and in order, so they are never split.  Letters in lower case are batch dims:
        the function acts on each position along them alone.  An ``out`` letter that no operand has is a new core dim.
        """
        ...
