"""Random programs over the algebra: what every normal form denotes against plain numbers.

A program has two phases, as a proof has: kernels of the first are the specification's, and the second's are unified with them.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from graphguard.relations.algebra import Unsupported
from graphguard.relations.denotation import Denotation
from graphguard.relations.kernels import Exhausted, Universe
from graphguard.relations.normal_form import NormalForm
from graphguard.relations.numbers import FUNCTIONS, Numbers
from graphguard.relations.points import equal_at_points
from graphguard.relations.values import equal

SHAPES = [(4, 6), (2, 4, 6), (6, 4), (2, 6, 4), (4,), (6,), (2, 2, 6), (3, 4), (4, 4), (1, 6)]
LETTERS = "abcdefgh"
_MINUTE = 60.0


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


class Program:
    """One random program, run over numbers and over normal forms side by side."""

    def __init__(self, seed: int, result: Result) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.result = result
        self.arrays = np.random.default_rng(seed)
        self.numbers = Numbers()
        self.forms = NormalForm(Universe(expand=self.rng.choice((1, 1, 1, 12)), seconds=20))
        self.leaves: dict[str, np.ndarray] = {}
        self.denotation = Denotation(self.leaves, closed, {})
        self.pairs: list[tuple[Any, Any]] = []
        self.trace: list[str] = []

    def run(self) -> None:
        for _ in range(self.rng.randint(2, 4)):
            self.leaf()
        for length, specifying in ((self.rng.randint(4, 12), True), (self.rng.randint(4, 12), False)):
            self.forms.universe.specifying = specifying
            for _ in range(length):
                self.step()
        self.compare_pairs()

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
        with np.errstate(all="ignore"):
            try:
                number = call(self.numbers, *(self.pairs[i][0] for i in operands))
            except Unsupported:
                return
        array = number.array
        if (
            array.size > 700
            or array.ndim > 5
            or not np.isfinite(array.astype(float)).all()
            or np.abs(array.astype(float)).max(initial=0) > 1e6
        ):
            return
        self.trace.append(f"{name}{operands}")
        try:
            form = call(self.forms, *(self.pairs[i][1] for i in operands))
        except Unsupported as reason:
            self.result.unsupported += 1
            self.result.reasons[str(reason)] += 1
            return
        if self.agrees(number, form):
            self.pairs.append((number, form))

    def agrees(self, number: Any, form: Any) -> bool:
        if number.shape != form.shape or number.kind != form.kind:
            self.wrong(f"shape or kind: {number.shape} {number.kind}, {form.shape} {form.kind}")
            return False
        self.denotation.tables = {kernel.id: data for kernel, data in self.forms.universe.tables}
        with np.errstate(all="ignore"):
            try:
                found = self.denotation.value(form)
            except Unsupported as reason:
                self.result.reasons[f"not denoted: {reason}"] += 1
                return True
        if np.isinf(found).any() or (np.isnan(found).any() and self._undefined(form)):
            return False
        self.result.nodes += 1
        if not _near(found, number.array.astype(float), 1e-6, 1e-7):
            self.wrong(f"elements differ by {np.nanmax(np.abs(found - number.array)):.3g}")
            return False
        return True

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
                try:
                    proved = equal(self.forms.universe, form, candidate) or (
                        self.forms.universe.expand > 1 and equal_at_points(self.forms.universe, form, candidate)
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


def _near(a: np.ndarray, b: np.ndarray, relative: float, absolute: float) -> bool:
    """Whether all elements lie within a tolerance of each other: ``np.allclose`` for finite numbers, in a fifth of its time."""
    return bool((np.abs(a - b) <= absolute + relative * np.abs(b)).all())


def closed(name: str, _: tuple[Any, ...], arrays: Any) -> np.ndarray:
    """Elements of functions known by name."""
    if name in FUNCTIONS:
        return np.asarray(FUNCTIONS[name](*arrays))
    raise Unsupported(name)


Made = tuple[Callable[..., Any], list[int]] | None


def _dim(p: Program, index: int, least: int = 1) -> int:
    return p.rng.choice([dim for dim, size in enumerate(p.shape(index)) if size >= least])


def _any(p: Program) -> int:
    return p.rng.choice(range(len(p.pairs))) if p.rng.random() < 0.3 else p.pick()


def _slice(p: Program) -> Made:
    i = _any(p)
    dim = _dim(p, i)
    low = p.rng.randrange(p.shape(i)[dim])
    high = p.rng.randint(low + 1, p.shape(i)[dim])
    step = p.rng.choice((1, 1, 1, 2))
    return lambda a, v: a.slice(v, dim, low, high, step), [i]


def _halves(p: Program, act: Callable[[Any, list[Any], int], Any]) -> Made:
    i = _any(p)
    dim = p.rng.choice([dim for dim, size in enumerate(p.shape(i)) if size % 2 == 0])
    half = p.shape(i)[dim] // 2
    return lambda a, v: act(a, [a.slice(v, dim, 0, half), a.slice(v, dim, half, 2 * half)], dim), [i]


def _swap(p: Program) -> Made:
    keep = p.rng.random() < 0.6
    return _halves(p, lambda a, halves, dim: a.concat(halves if keep else halves[::-1], dim))


def _add_halves(p: Program) -> Made:
    i = p.pick()
    dim = p.rng.choice([dim for dim, size in enumerate(p.shape(i)) if size % 2 == 0])
    half = p.shape(i)[dim] // 2
    whole = p.rng.random() < 0.5

    def act(a: Any, v: Any) -> Any:
        halves = [a.slice(v, dim, 0, half), a.slice(v, dim, half, 2 * half)]
        return a.add([a.sum(part, [dim]) for part in halves] if whole else halves)

    return act, [i]


def _concat(p: Program) -> Made:
    i = _any(p)
    j = p.partner(i)
    dim = _dim(p, i)
    return lambda a, x, y: a.concat([x, y], dim), [i, j]


def _reshape(p: Program) -> Made:
    i = _any(p)
    size = int(np.prod(p.shape(i)))
    shape: list[int] = []
    while size > 1:
        factor = p.rng.choice([k for k in range(2, size + 1) if size % k == 0])
        shape.append(factor)
        size //= factor
    if p.rng.random() < 0.3:
        shape.insert(p.rng.randrange(len(shape) + 1), 1)
    new = tuple(shape)
    return lambda a, v: a.reshape(v, new), [i]


def _permute(p: Program) -> Made:
    i = _any(p)
    order = list(range(len(p.shape(i))))
    p.rng.shuffle(order)
    return lambda a, v: a.permute(v, order), [i]


def _flip(p: Program) -> Made:
    i = _any(p)
    dim = _dim(p, i)
    return lambda a, v: a.flip(v, dim), [i]


def _expand(p: Program) -> Made:
    i = _any(p)
    shape = p.shape(i)
    at = p.rng.randrange(len(shape) + 1)
    size = p.rng.choice((2, 3))
    return lambda a, v: a.expand(a.reshape(v, (*shape[:at], 1, *shape[at:])), (*shape[:at], size, *shape[at:])), [i]


def _binary(name: str) -> Callable[[Program], Made]:
    def make(p: Program) -> Made:
        i = p.pick()
        j = p.partner(i)
        if name == "add":
            return lambda a, x, y: a.add([x, y]), [i, j]
        if name == "subtract":
            return lambda a, x, y: a.add([x, a.scale(y, Fraction(-1))]), [i, j]
        if name == "divide":
            return lambda a, x, y: a.multiply(x, a.power(y, Fraction(-1))), [i, j]
        return lambda a, x, y: getattr(a, name)(x, y), [i, j]

    return make


def _contract(p: Program) -> Made:
    i, j = p.pick(), p.pick()
    mine = list(LETTERS[: len(p.shape(i))])
    sizes = dict(zip(mine, p.shape(i), strict=True))
    other: list[str] = []
    for at, size in enumerate(p.shape(j)):
        same = [letter for letter in mine if sizes[letter] == size and letter not in other]
        other.append(p.rng.choice(same) if same and p.rng.random() < 0.7 else LETTERS[len(mine) + at].upper().lower())
    letters = list(dict.fromkeys((*mine, *other)))
    kept = [letter for letter in letters if p.rng.random() < 0.6]
    p.rng.shuffle(kept)
    left, right, out = "".join(mine), "".join(other), "".join(kept)
    return lambda a, x, y: a.contract([(x, left), (y, right)], out), [i, j]


def _unary(p: Program) -> Made:
    i = p.pick()
    name = p.rng.choice(
        ("exp", "log", "sigmoid", "tanh", "sqrt", "rsqrt", "square", "reciprocal", "half", "minus", "shift", "relu")
    )
    shape = p.shape(i)
    powers = {"sqrt": Fraction(1, 2), "rsqrt": Fraction(-1, 2), "square": Fraction(2), "reciprocal": Fraction(-1)}
    if name in ("exp", "log"):
        return lambda a, v: getattr(a, name)(v), [i]
    if name in powers:
        return lambda a, v: a.power(v, powers[name]), [i]
    if name in ("sigmoid", "tanh"):
        return lambda a, v: a.apply(name, (), [v], "float"), [i]
    if name == "shift":
        return lambda a, v: a.add([v, a.full(shape, Fraction(3, 2), "float")]), [i]
    if name == "relu":
        return lambda a, v: a.maximum(
            a.add([v, a.full(shape, Fraction(-1), "float")]), a.full(shape, Fraction(0), "float")
        ), [i]
    factor = Fraction(1, 2) if name == "half" else Fraction(-1)
    return lambda a, v: a.scale(v, factor), [i]


def _reduce(name: str) -> Callable[[Program], Made]:
    def make(p: Program) -> Made:
        i = p.pick()
        dims = [dim for dim in range(len(p.shape(i))) if p.rng.random() < 0.5] or [_dim(p, i)]
        return lambda a, v: getattr(a, name)(v, dims), [i]

    return make


def _softmax(p: Program) -> Made:
    i = p.pick()
    dim = _dim(p, i)
    shape = p.shape(i)
    shift = p.rng.random() < 0.5
    masked = p.rng.random() < 0.4 and len(shape) >= 2

    def act(a: Any, v: Any) -> Any:
        if masked:
            rows, columns = shape[-2:]
            row = a.expand(a.reshape(a.iota(rows), (rows, 1)), (rows, columns))
            column = a.expand(a.reshape(a.iota(columns), (1, columns)), (rows, columns))
            mask = a.expand(a.compare("le", column, row), shape)
            v = a.where(mask, v, a.full(shape, float("-inf"), "float"))
        keep = tuple(1 if d == dim else size for d, size in enumerate(shape))
        if shift:
            v = a.add([v, a.scale(a.expand(a.reshape(a.max_over(v, [dim]), keep), shape), Fraction(-1))])
        e = a.exp(v)
        return a.multiply(e, a.power(a.expand(a.reshape(a.sum(e, [dim]), keep), shape), Fraction(-1)))

    return act, [i]


def _integer(p: Program) -> Made:
    i = p.pick("int")
    shape = p.shape(i)
    name = p.rng.choice(("plus", "times", "divide", "remainder", "masked", "one_hot", "iota", "float"))
    k = p.rng.choice((1, 2, 3))
    if name == "plus":
        return lambda a, v: a.add([v, a.full(shape, Fraction(k), "int")]), [i]
    if name == "times":
        return lambda a, v: a.scale(v, Fraction(k - 2)), [i]
    if name == "divide":
        return lambda a, v: a.floor_divide(v, k + 1), [i]
    if name == "remainder":
        return lambda a, v: a.remainder(v, k + 1), [i]
    if name == "one_hot":
        return lambda a, v: a.one_hot(v, 5), [i]
    if name == "float":
        return lambda a, v: a.number(v, "float"), [i]
    if name == "iota":
        last = shape[-1]
        return lambda a, v: a.add([v, a.expand(a.iota(last), shape)]), [i]

    def masked(a: Any, v: Any) -> Any:
        out = a.logical_or(
            a.compare("lt", v, a.full(shape, Fraction(k), "int")),
            a.compare("le", a.full(shape, Fraction(k + 2), "int"), v),
        )
        return a.where(out, a.full(shape, Fraction(0), "int"), a.add([v, a.full(shape, Fraction(-k), "int")]))

    return masked, [i]


def _compare(p: Program) -> Made:
    i = p.rng.choice([i for i, (number, _) in enumerate(p.pairs) if number.kind != "bool"])
    relation = p.rng.choice(("lt", "le", "eq"))
    kind = p.pairs[i][0].kind
    shape = p.shape(i)
    if p.rng.random() < 0.5:
        j = p.partner(i)
        if kind == "float":
            gap = p.pairs[i][0].array - p.pairs[j][0].array
            if (np.abs(gap) < 1e-9).any() and i != j:
                return None  # equal up to rounding: numbers cannot say which is larger
        return lambda a, x, y: a.compare(relation, x, y), [i, j]
    value = Fraction(p.rng.choice((1, 2, 3)))
    swap = p.rng.random() < 0.5
    if kind == "float" and (np.abs(p.pairs[i][0].array - float(value)) < 1e-9).any():
        return None
    return lambda a, x: a.compare(
        relation, *((x, a.full(shape, value, kind)) if not swap else (a.full(shape, value, kind), x))
    ), [i]


def _logic(p: Program) -> Made:
    i = p.pick("bool")
    name = p.rng.choice(("not", "and", "or", "float", "where", "mask"))
    if name == "not":
        return lambda a, v: a.logical_not(v), [i]
    if name == "float":
        return lambda a, v: a.number(v, "float"), [i]
    if name in ("and", "or"):
        return lambda a, x, y: getattr(a, f"logical_{name}")(x, y), [i, p.partner(i)]
    shape = p.shape(i)
    j = p.rng.choice([k for k, (number, _) in enumerate(p.pairs) if number.shape == shape and number.kind == "float"])
    if name == "mask":
        return lambda a, c, x: a.where(c, x, a.full(shape, Fraction(0), "float")), [i, j]
    return lambda a, c, x, y: a.where(c, x, y), [i, j, p.partner(j)]


def _lookup(p: Program) -> Made:
    i = p.pick("int")
    j = p.pick()
    if not p.shape(j):
        return None
    return lambda a, t, v: a.lookup(t, v), [j, i]


OPERATORS: dict[str, Callable[[Program], Made]] = {
    "slice": _slice,
    "swap": _swap,
    "add_halves": _add_halves,
    "concat": _concat,
    "reshape": _reshape,
    "permute": _permute,
    "flip": _flip,
    "expand": _expand,
    "add": _binary("add"),
    "subtract": _binary("subtract"),
    "multiply": _binary("multiply"),
    "divide": _binary("divide"),
    "maximum": _binary("maximum"),
    "contract": _contract,
    "unary": _unary,
    "sum": _reduce("sum"),
    "max_over": _reduce("max_over"),
    "softmax": _softmax,
    "integer": _integer,
    "compare": _compare,
    "logic": _logic,
    "lookup": _lookup,
}
NAMES = [
    *OPERATORS,
    "slice",
    "reshape",
    "contract",
    "contract",
    "unary",
    "unary",
    "integer",
    "logic",
    "compare",
    "concat",
    "sum",
]


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
