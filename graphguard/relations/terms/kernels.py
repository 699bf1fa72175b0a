"""Kernels: the closed expressions that normal forms are made of, each interned once.

A kernel is a function of its *axes* (extents ``shape``); one that reduces has *reduced* axes besides, over which a reference takes a
window.  Two kernels are equal as functions whenever they are the same object; the converse is what normalisation strives for.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from graphguard.ir.fuel import KERNEL, SECOND, Fuel, burn
from graphguard.relations.algebra import Kind, Unsupported
from graphguard.relations.interruption import INTERRUPTION
from graphguard.relations.rewrite.rule import NONE, Log, Rules

Number: TypeAlias = int | Fraction
Digit: TypeAlias = tuple[int, int, int]  # (axis, or -1 for a repeat; stride along it; extent)
Digits: TypeAlias = tuple[Digit, ...]  # mixed radix, outermost first; extents above 1
Window: TypeAlias = tuple[tuple[int, int], ...]  # half-open, one per reduced axis
Ref: TypeAlias = "tuple[Kernel, tuple[int, ...], tuple[Digits, ...], Window]"
Term: TypeAlias = tuple[Number, Ref]
Terms: TypeAlias = tuple[Term, ...]
Expression: TypeAlias = tuple[int, int, int]  # (axis, label, stride)
Factor: TypeAlias = "tuple[Kernel, Any, Window, tuple[int, ...], tuple[Expression, ...]]"

UNBOUNDED: Final = 1 << 48  # extent of an axis whose coordinate may be any integer
STEPS: Final = 60 * SECOND  # of one proof


def quotient(a: Number, b: Number) -> Number:
    """The exact quotient, an int where it is one."""
    if b == 1:
        return a
    if b == -1:
        return -a
    if a == b:
        return 1
    result = Fraction(a, b) if isinstance(a, int) and isinstance(b, int) else Fraction(a) / b
    return result.numerator if result.denominator == 1 else result


def times_number(a: Number, b: Number) -> Number:
    """The product, an int where it is one."""
    result = a * b
    return result.numerator if result.denominator == 1 else result


class Ratio(Fraction):
    """A fraction that knows its hash, which fractions work out anew each time they are looked up; :func:`ratio` makes them, each once."""

    __slots__ = ("_known",)
    _known: int

    def __new__(cls, numerator: int, denominator: int) -> Ratio:
        """The fraction in lowest terms."""
        made = super().__new__(cls, numerator, denominator)
        made._known = Fraction.__hash__(made)
        return made

    def __hash__(self) -> int:  # type: ignore[override]  # of which typeshed says that complex numbers have none
        return self._known

    def __reduce__(self) -> tuple[Any, ...]:
        return Fraction, (self.numerator, self.denominator)


_ratio = lru_cache(maxsize=4096)(Ratio)


def ratio(number: Any) -> Any:
    """The same number, a fraction as one that is fast to look up; anything else as it is."""
    return _ratio(number.numerator, number.denominator) if number.__class__ is Fraction else number


class Budget(Unsupported):
    """One value outgrew a limit; the operator is given up with a reason."""


class Exhausted(Exception):  # noqa: N818 - a state of the universe, raised through the rules
    """The budget of a whole proof is used up."""


@dataclass(slots=True)
class Alike:
    """Kernels of the specification that some factors may be windows onto: with all of their factors, and without equations that an implementation could solve."""

    whole: list[Kernel] = field(default_factory=list)
    solved: list[Kernel] = field(default_factory=list)


class Kernel:
    """One closed expression.

    ``kind`` is one of one, leaf, iota, number, product, sum, function, onehot, max, maximum, place, apply, opaque.  ``factors`` are its parts, each
    ``(kernel, payload, window, offsets, expressions)`` where the coordinate of axis a of the part is ``offsets[a] + sum of
    stride * label``; labels count the kernel's axes, then its reduced axes.  ``truth`` says that all values are 0 or 1, ``placed`` that a part
    of the kernel may have a simpler form, ``selects`` that it is 1 where an index equals something, else 0.
    """

    __slots__ = (
        "attributes",
        "axes",
        "core",
        "divisors",
        "factors",
        "family",
        "id",
        "infinite",
        "kind",
        "looks_up",
        "masks",
        "name",
        "placed",
        "range",
        "reduced",
        "selects",
        "shape",
        "specified",
        "truth",
        "type",
    )

    def __init__(
        self,
        number: int,
        kind: str,
        name: str,
        shape: tuple[int, ...],
        reduced: tuple[int, ...],
        factors: tuple[Factor, ...],
        attributes: tuple[Hashable, ...],
    ) -> None:
        self.id = number
        self.kind = kind
        self.name = name
        self.shape = shape
        self.reduced = reduced
        self.factors = factors
        self.attributes = attributes
        self.core: dict[int, Hashable] = {}
        self.axes: list[list[list[tuple[int, int]]]] | None = None
        self.masks: list[tuple[int, tuple[int, int]]] | None = None
        self.divisors: list[Factor] | None = None
        self.family: tuple[tuple[int, Any], ...] | None = None
        self.looks_up: bool | None = None
        self.infinite = kind == "infinity" or _may_be_infinite(kind, factors)
        self.placed = _is_placed(kind, name, factors)
        self.selects = kind == "onehot" or (kind == "function" and name == "eq0" and factors[0][0].kind == "iota")
        self.truth = False
        self.type: Kind = "float"
        self.range: tuple[int, int] | None = None
        self.specified = False

    def __repr__(self) -> str:
        return f"{self.kind}#{self.id}{self.name and ':' + self.name}{list(self.shape)}{list(self.reduced) or ''}"


def family(kernel: Kernel) -> tuple[tuple[int, Any], ...]:
    """The factors of a kernel without where they are read: what terms must share to be one term, cheaply."""
    known = kernel.family
    if known is None:
        if kernel.kind == "product":
            known = tuple(sorted([(factor[0].id, factor[1]) for factor in kernel.factors]))
        else:
            known = ((kernel.id, 1),)
        kernel.family = known
    return known


def order(term: Term) -> tuple[Any, ...]:
    """A sort key that depends on the term alone."""
    kernel, offsets, dims, window = term[1]
    return (kernel.id, offsets, dims, window)


def _is_placed(kind: str, name: str, factors: tuple[Factor, ...]) -> bool:
    """Whether where one looks decides something: a truth about positions, or the column of a one-hot."""
    if kind == "function":
        return name in ("eq0", "gt0") and factors[0][0].kind == "iota"
    return kind == "product" and True in [factor[0].placed or factor[0].kind == "onehot" for factor in factors]


def _may_be_infinite(kind: str, factors: tuple[Factor, ...]) -> bool:
    """Whether minus infinity reaches a kernel as a value: maxima and functions of masked sums keep it to themselves."""
    if kind in ("product", "sum", "opaque"):
        return True in [factor[0].infinite for factor in factors]
    return kind in ("function", "apply") and any(factor[0].infinite and factor[0].kind != "sum" for factor in factors)


class Universe:
    """The table of all kernels of one proof, and what may be spent on it.

    ``specifying`` is on while the specification is evaluated: only its kernels are what others are matched against.  ``relative``: a cast to a narrower float
    type rounds a multiple as it rounds the number itself, as it does but for where in a power of two the number lies.
    """

    def __init__(self, expand: int = 1, fuel: Fuel | None = None, relative: bool = False) -> None:
        self.relative = relative
        self.table: dict[Hashable, Kernel] = {}
        self.count = 0
        self.fuel = fuel or Fuel("the proof", STEPS)
        self.expand = expand
        self.specifying = True
        self.skeletons: dict[Hashable, Alike] = {}
        self.rules: Rules = NONE  # of rewriting; the algebra of normal forms brings them
        self.log: Log | None = None  # who wants to know of rewritings
        self.plans: dict[Hashable, list[Any]] = {}  # constructions by what they are built of: one, once it is there
        self.memo: dict[Hashable, Terms | tuple[Number, Ref] | None] = {}
        self.cases: dict[Hashable, Any] = {}  # terms taken apart by their masks; forgotten where a range is stated
        self.steps = 0
        self.assumed: set[str] = set()
        self.indices: set[int] = (
            set()
        )  # kernels of computed integers that are assumed to lie in the tables they look up
        self.tables: list[tuple[Kernel, np.ndarray]] = []
        self.declared: set[str] = set()
        self.needs: dict[Kernel, dict[Any, None]] = {}  # what look-ups of parts of a leaf need (see ``ranges``)
        self.unstated: frozenset[str] = frozenset()  # leaves of which they are known to state nothing
        self.late = False  # a fact was stated after its index had been used: what was made before does not know it
        self.facts: dict[str, tuple[int, int]] = {}
        self.places = False  # whether any value says where the largest of a line stands
        self.orders: dict[Kernel, None] = {}  # positions of sorted lines
        self.exponential = False  # whether sigmoids and hyperbolic functions are written out as exponentials
        self.one = self.intern(("one",), "one", "1", (), ())
        self.one.truth = True
        self.iota = self.intern(("iota",), "iota", "iota", (UNBOUNDED,), ())
        self.iota.type = "int"

    def intern(
        self,
        key: Hashable,
        kind: str,
        name: str,
        shape: tuple[int, ...],
        reduced: tuple[int, ...],
        factors: tuple[Factor, ...] = (),
        attributes: tuple[Hashable, ...] = (),
    ) -> Kernel:
        """The kernel of that key; made when it is new."""
        kernel = self.table.get(key)
        return kernel or self.add(key, kind, name, shape, reduced, factors, attributes)

    def add(
        self,
        key: Hashable,
        kind: str,
        name: str,
        shape: tuple[int, ...],
        reduced: tuple[int, ...],
        factors: tuple[Factor, ...] = (),
        attributes: tuple[Hashable, ...] = (),
    ) -> Kernel:
        """A kernel whose key is known to be new."""
        kernel = Kernel(self.count, kind, name, shape, reduced, factors, attributes)
        kernel.specified = self.specifying
        self.count += 1
        if self.count > 400_000:
            raise Exhausted("more than 400,000 distinct expressions")
        self.table[key] = kernel
        return kernel

    def alike(self, skeleton: Hashable) -> Alike:
        """The kernels with a skeleton, to which later ones are added."""
        return self.skeletons.setdefault(skeleton, Alike())

    def refuel(self, what: str, steps: float) -> None:
        """Begin another budget, in which looks count as they did."""
        self.fuel = Fuel(what, steps, self.fuel.looks)

    def step(self) -> None:
        """Count one construction; raises ``Exhausted`` when the fuel is spent or nobody waits any more."""
        self.steps += 1
        burn(KERNEL)
        if self.fuel.spent or INTERRUPTION.wanted:
            raise Exhausted(str(self.fuel))

    def leaf(self, name: str, shape: tuple[int, ...], kind: Kind) -> Kernel:
        """An unknown tensor."""
        kernel = self.intern(("leaf", name, shape, kind), "leaf", name, shape, ())
        kernel.type = kind
        kernel.truth = kind == "bool"
        return kernel

    def prime(self, value: int) -> Kernel:
        """A number that stands under fractional powers only."""
        return self.intern(("number", value), "number", str(value), (), (), (), (value,))

    def function(
        self, name: str, attributes: tuple[Hashable, ...], factor: Number, base: Kernel, window: Window
    ) -> Kernel:
        """An elementwise function of ``factor * base``, on the axes of the base."""
        key = ("function", name, attributes, factor, base.id, window)
        kernel = self.table.get(key)
        if kernel is not None:
            return kernel
        expressions = tuple((axis, axis, 1) for axis in range(len(base.shape)))
        parts: tuple[Factor, ...] = ((base, factor, window, (0,) * len(base.shape), expressions),)
        return self.add(key, "function", name, base.shape, (), parts, attributes)

    def one_hot(self, base: Kernel, window: Window) -> Kernel:
        """1 where the base equals the last coordinate, else 0."""
        key = ("onehot", base.id, window)
        kernel = self.table.get(key)
        if kernel is not None:
            return kernel
        expressions = tuple((axis, axis, 1) for axis in range(len(base.shape)))
        parts: tuple[Factor, ...] = ((base, 1, window, (0,) * len(base.shape), expressions),)
        kernel = self.add(key, "onehot", "", (*base.shape, UNBOUNDED), (), parts)
        kernel.truth = True
        return kernel
