"""Random programs over the algebra: what every normal form denotes against plain numbers.

A program has two phases, as a proof has: kernels of the first are the specification's, and the second's are unified with them.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.trust.steps import NAMES, OPERATORS
from graphguard.ir.fuel import SECOND, Fuel
from graphguard.relations.algebra import Unsupported
from graphguard.relations.audit.log import StepLog, audited
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.numbers import CASTS, FUNCTIONS, Numbers
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.prove.points import equal_at_points
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Exhausted, Universe
from graphguard.rules.basis.registry import FLOAT_BITS

SHAPES = [(4, 6), (2, 4, 6), (6, 4), (2, 6, 4), (4,), (6,), (2, 2, 6), (3, 4), (4, 4), (1, 6)]
_MINUTE = 60.0
_AUDITED = 100  # of so many programs one is audited, which takes ten times as long
_SAMPLED = 0.2  # of the pairs that differ, and of those that are told element by element: each side was compared with numbers before
_CONSTANTS = ("full", "iota", "literal", "leaf")
_NUDGED = 1e-12  # relative
_DUST = 1e-15  # of the largest element, or of one: what is left of a sum of zero, or of the logarithm of one
_NUDGES = 16
_MOST_LOOKS = 100_000
_LOST = 1e-14  # of the sum of all terms: what rounding may leave of an element


@dataclass(slots=True)
class Result:
    """What a run found."""

    programs: int = 0
    nodes: int = 0
    unsupported: int = 0
    equal_pairs: int = 0
    matched_pairs: int = 0
    wrong: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Noted:
    """An algebra that notes what its operators return, by their names; constants are left out."""

    def __init__(self, algebra: Any) -> None:
        self._algebra = algebra
        self.results: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        operator = getattr(self._algebra, name)
        if name in _CONSTANTS:
            return operator

        def noted(*arguments: Any, **options: Any) -> Any:
            result = operator(*arguments, **options)
            self.results.append((name, result))
            return result

        return noted


class Bounded(Denotation):
    """What a normal form denotes, if its kernels need not be looked at too often: those of gradients within gradients are, each in all its places."""

    _looks = 0

    def value(self, value: Any) -> np.ndarray:
        """The elements; raises ``Unsupported`` where it would take for ever."""
        self._looks = 0
        return super().value(value)

    def magnitude(self, value: Any) -> np.ndarray:
        """The sum of the terms' sizes."""
        self._looks = 0
        return super().magnitude(value)

    def at(self, kernel: Any, window: Any, index: Any) -> np.ndarray:
        """The elements of a kernel at some indices."""
        self._looks += 1
        if self._looks > _MOST_LOOKS:
            raise Unsupported("kernels within kernels within kernels")
        return super().at(kernel, window, index)


class Rounded(Bounded):
    """What a normal form denotes where every sum, product and function is off by the last digit, each on its own, as rounding leaves them (Monte Carlo arithmetic).

    Where a sum is divided by one of its terms and that is taken off again, what is left may be rounding alone, however little the leaves move.
    """

    def __init__(self, leaves: Any, tables: Any, noise: np.random.Generator) -> None:
        super().__init__(leaves, closed, tables)
        self._noise = noise

    def _function(self, kernel: Any, arguments: Any) -> np.ndarray:
        exact = np.asarray(super()._function(kernel, arguments))
        # the exponential of 1e-21 is no whole number, though floats hold it as one, and it may be raised to the 1e21st power
        return self._moved(exact) if kernel.name == "exp" and np.any(arguments[0]) else self._off(exact)

    def _combined(self, kernel: Any, window: Any, index: Any) -> np.ndarray:
        exact = np.asarray(super()._combined(kernel, window, index))
        return self._off(exact) if kernel.kind in ("sum", "product") else exact

    def _off(self, exact: np.ndarray) -> np.ndarray:
        whole = exact.dtype.kind != "f" or (exact == np.rint(exact)).all()
        return exact if whole else self._moved(exact)

    def _moved(self, exact: np.ndarray) -> np.ndarray:
        off = np.finfo(float).eps * self._noise.uniform(-1, 1, exact.shape)
        return np.asarray(exact * (1 + off))


class Program:
    """One random program, run over numbers and over normal forms side by side."""

    def __init__(self, seed: int, result: Result) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.result = result
        self.arrays = np.random.default_rng(seed)
        self.numbers = Numbers(opaque={"argsort": order_of})
        self.forms = NormalForm(Universe(self.rng.choice((1, 1, 1, 12)), Fuel("a random program", 20 * SECOND)))
        self.forms.universe.exponential = self.forms.universe.expand > 1 and seed % 2 == 0
        self.log = self.forms.universe.log = StepLog() if seed % _AUDITED == 0 else None
        self.leaves: dict[str, np.ndarray] = {}
        self.denotation = Bounded(self.leaves, closed, {})
        self.pairs: list[tuple[Any, Any]] = []
        self.noise: dict[int, float] = {}  # how far a number lies from what its normal form denotes, by identity
        self.trace: list[str] = []
        self.call: Callable[..., Any] = lambda *_: None
        self.operands: list[int] = []

    def run(self) -> None:
        for _ in range(self.rng.randint(2, 4)):
            self.leaf()
        for length, specifying in ((self.rng.randint(4, 12), True), (self.rng.randint(4, 12), False)):
            self.forms.universe.specifying = specifying
            for _ in range(length):
                self.step()
        self.compare_pairs()
        if self.log is not None:
            self.audit(self.log)

    def audit(self, log: StepLog) -> None:
        """Read every step of rewriting again."""
        self.forms.universe.log = None
        for name, reason in audited(self.forms.universe, log).wrong:
            self.wrong(f"a step of '{name}' does not hold: {reason}")

    def leaf(self) -> None:
        shape = self.rng.choice(SHAPES)
        name = f"x{len(self.leaves)}"
        if self.rng.random() < 0.25:
            shape = self.rng.choice([(4,), (2, 3), (6,)])
            high = self.rng.choice((4, 6, 8))
            data = self.arrays.integers(0, high, shape)
            ranged = self.rng.random() < 0.6
            self.leaves[name] = data
            bounds = (0, high) if ranged else (None, None)
            self.pairs.append((self.numbers.literal(data), self.forms.leaf(name, shape, "int", *bounds)))
            return
        data = self.arrays.uniform(0.6, 1.4, shape)
        self.leaves[name] = data
        self.pairs.append((self.numbers.literal(data), self.forms.leaf(name, shape, "float")))

    def step(self) -> None:
        """Apply one random operator to both sides and compare."""
        name = self.rng.choice(NAMES)
        try:
            made = OPERATORS[name](self)
        except (IndexError, ValueError, ZeroDivisionError):
            return
        if made is None:
            return
        call, operands = made
        numbers, forms = Noted(self.numbers), Noted(self.forms)
        with np.errstate(all="ignore", over="raise"):
            try:
                number = call(numbers, *(self.pairs[i][0] for i in operands))
            except (Unsupported, FloatingPointError):  # what rests on an overflow is no number to compare with
                return
        if not _moderate(number):
            return
        self.trace.append(f"{name}{operands}")
        try:
            form = call(forms, *(self.pairs[i][1] for i in operands))
        except Unsupported as reason:
            self.result.unsupported += 1
            self.result.reasons[str(reason)] += 1
            return
        self.denotation.tables = {kernel.id: data for kernel, data in self.forms.universe.tables}
        # What an operator is made of, as a softmax is, is compared too: what one part gets wrong the next may hide.
        self.call, self.operands = call, operands
        for place, (inner, made) in enumerate(_side_by_side(numbers, forms)):
            if inner is not number and _moderate(inner) and not self.agrees(inner, made, place):
                return
        if self.agrees(number, form, None):
            self.pairs.append((number, form))

    def agrees(self, number: Any, form: Any, place: int | None) -> bool:
        """Whether a normal form denotes the numbers that an operator gave, at the last or, by its place, at one of the steps before."""
        if number.shape != form.shape or number.kind != form.kind:
            self.wrong(f"shape or kind: {number.shape} {number.kind}, {form.shape} {form.kind}")
            return False
        with np.errstate(all="ignore", over="raise", under="raise"):
            try:
                found = self.denotation.value(form)
            except FloatingPointError:  # exponentials of single terms do not fit floats, though those of their sum do
                self.result.reasons["not denoted: an overflow"] += 1
                return True
            except Unsupported as reason:
                self.result.reasons[f"not denoted: {reason}"] += 1
                return True
        if np.isinf(found).any() or (np.isnan(found).any() and self._undefined(form)):
            return False
        self.result.nodes += 1
        wanted = number.array.astype(float)
        if not _near(found, wanted, 1e-6, 1e-7):
            apart = np.abs(found - wanted)
            if not (
                self._rounding(form, apart) or self._unstable(wanted, apart, place) or self._noisy(form, found, apart)
            ):
                self.wrong(f"elements differ by {np.nanmax(np.abs(found - wanted)):.3g}")
            return False
        apart = np.abs(found - wanted)
        self.noise[id(number)] = float(apart[np.isfinite(apart)].max(initial=0.0))
        return True

    def _rounding(self, form: Any, apart: np.ndarray) -> bool:
        """Whether the normal form's terms are so much larger than their sum that its digits are lost."""
        return bool((apart <= _LOST * self.denotation.magnitude(form)).all())

    def _noisy(self, form: Any, found: np.ndarray, apart: np.ndarray) -> bool:
        """Whether what the normal form denotes moves as far when the leaves, and what is rounded, move a little: inside a factor of a term a zero may be left of large numbers, and be multiplied by such."""
        reach = np.zeros(found.shape)
        for _ in range(_NUDGES):
            leaves = {
                name: data * (1 + self.arrays.uniform(-_NUDGED, _NUDGED, data.shape))
                if data.dtype.kind == "f"
                else data
                for name, data in self.leaves.items()
            }
            with np.errstate(all="ignore"):
                again = Rounded(leaves, self.denotation.tables, self.arrays).value(form)
            reach = np.fmax(reach, np.abs(again - found))
        return bool((apart <= 10 * reach).all())

    def _unstable(self, wanted: np.ndarray, apart: np.ndarray, place: int | None) -> bool:
        """Whether the numbers themselves move as far when what they are computed from moves a little: where large ones cancel, normal forms know the zero, and of equal ones either is larger."""
        reach = np.zeros(wanted.shape)
        for _ in range(_NUDGES):
            noted = Noted(self.numbers)
            with np.errstate(all="ignore"):
                last = self.call(noted, *[self._nudged(self.pairs[i][0]) for i in self.operands])
            again = (last if place is None else noted.results[place][1]).array.astype(float)
            reach = np.maximum(reach, np.abs(again - wanted))
        return bool((apart <= 10 * reach).all())

    def _nudged(self, number: Any) -> Any:
        if number.kind != "float":
            return number
        array = number.array
        moved = array * (1 + self.arrays.uniform(-_NUDGED, _NUDGED, array.shape))
        dust = max(np.abs(array[np.isfinite(array)]).max(initial=1.0) * _DUST, self.noise.get(id(number), 0.0))
        return self.numbers.literal(np.where(array == 0, 0.0, moved + self.arrays.uniform(-dust, dust, array.shape)))

    def _undefined(self, form: Any) -> bool:
        """Whether the normal form divides by zero where the program, in its own order, does not."""
        return len(form.pieces) > 0 and all(terms is not None for _, terms in form.pieces) and self._covered(form)

    @staticmethod
    def _covered(form: Any) -> bool:
        total = sum(int(np.prod([high - low for low, high in box])) for box, _ in form.pieces)
        return total == int(np.prod(form.shape))

    def wrong(self, what: str) -> None:
        self.result.wrong.append(f"seed {self.seed}: {self.trace[-1] if self.trace else 'leaf'}: {what}")

    def compare_pairs(self) -> None:
        """Completeness: how many numerically equal pairs are equal in normal form; soundness: no unequal pair is."""
        for index, (number, form) in enumerate(self.pairs):
            for other, candidate in self.pairs[:index]:
                if number.shape != other.shape or number.kind != other.kind:
                    continue
                mine, theirs = number.array.astype(float), other.array.astype(float)
                same = _near(mine, theirs, 1e-9, 1e-12)
                sampled = self.rng.random() < _SAMPLED
                if not same and not sampled:
                    continue
                try:
                    proved = equal(self.forms.universe, form, candidate) or (
                        sampled
                        and self.forms.universe.expand > 1
                        and equal_at_points(self.forms.universe, form, candidate)
                    )
                except Unsupported:
                    proved = False
                if proved and not _near(mine, theirs, 1e-6, 1e-7):
                    self.wrong("two values that differ have one normal form")
                if same:
                    self.result.equal_pairs += 1
                    self.result.matched_pairs += proved

    # -- choosing operands

    def pick(self, kind: str = "float", rank: int | None = None) -> int:
        choices = [
            i
            for i, (number, _) in enumerate(self.pairs)
            if number.kind == kind and (rank is None or len(number.shape) == rank)
        ]
        return (
            choices[-1 - min(len(choices) - 1, int(self.rng.expovariate(0.4)))]
            if self.rng.random() < 0.6 and choices
            else self.rng.choice(choices)
        )

    def shape(self, index: int) -> tuple[int, ...]:
        return tuple(self.pairs[index][0].shape)

    def partner(self, index: int) -> int:
        number = self.pairs[index][0]
        return self.rng.choice(
            [i for i, (other, _) in enumerate(self.pairs) if other.shape == number.shape and other.kind == number.kind]
        )


def order_of(line: np.ndarray, descending: bool) -> np.ndarray:
    """The places of the elements of every line, sorted; equal ones in the order they had."""
    return np.argsort(-line if descending else line, axis=-1, kind="stable")


def _side_by_side(numbers: Noted, forms: Noted) -> Iterator[tuple[Any, Any]]:
    """What the same operators returned, up to where normal forms go a way of their own."""
    for (name, number), (other, form) in zip(numbers.results, forms.results, strict=False):
        if name != other or number is None or form is None:
            return
        yield number, form


def _moderate(number: Any) -> bool:
    """Whether a value is small enough to be written down, and finite."""
    array = number.array
    if array.size > 700 or array.ndim > 5:
        return False
    elements = array.astype(float)
    return bool(np.isfinite(elements).all() and np.abs(elements).max(initial=0) <= 1e6)


def _near(a: np.ndarray, b: np.ndarray, relative: float, absolute: float) -> bool:
    """Whether all elements lie within a tolerance of each other: ``np.allclose`` for finite numbers, in a fifth of its time."""
    return bool((np.abs(a - b) <= absolute + relative * np.abs(b)).all())


def closed(name: str, attributes: tuple[Any, ...], arrays: Any) -> np.ndarray:
    """Elements of functions known by name."""
    if name == "cast":
        whole = (
            attributes[0] not in FLOAT_BITS
        )  # an integer that is worked out in floats: thirds of it may have been added up
        return np.asarray(CASTS[attributes[0]](*(np.rint(array) if whole else array for array in arrays)), dtype=float)
    if name in FUNCTIONS:
        return np.asarray(FUNCTIONS[name](*arrays))
    raise Unsupported(name)


def fuzz(
    nodes: int,
    seed: int = 0,
    seconds: float = float("inf"),
    tell: Callable[[Result], None] | None = None,
) -> Result:
    """Random programs until that many nodes were compared, or the time is up; ``tell`` hears of the result so far every minute."""
    result = Result()
    started = told = time.perf_counter()
    while result.nodes < nodes and result.seconds < seconds:
        program = Program(seed + result.programs, result)
        result.programs += 1
        try:
            program.run()
        except Exhausted:
            result.reasons["budget"] += 1
        except Exception as error:  # noqa: BLE001  a program on which the engine fails is a finding, and the others still count
            program.wrong(f"the engine failed: {type(error).__name__} {error}")
        result.seconds = time.perf_counter() - started
        if tell is not None and time.perf_counter() - told > _MINUTE:
            told = time.perf_counter()
            tell(result)
    return result


def report(result: Result) -> str:
    """The result as lines of text."""
    rate = result.nodes / max(result.seconds, 1e-9)
    lines = [
        (
            f"{result.programs} programs, {result.nodes} nodes compared, {len(result.wrong)} wrong, {result.unsupported} left closed, "
            f"{rate:.0f} nodes/s, of {result.equal_pairs} equal pairs {result.matched_pairs} proved equal"
        )
    ]
    lines += result.wrong[:20]
    return "\n".join(lines)
