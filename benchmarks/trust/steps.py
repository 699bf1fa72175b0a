"""The operators of random programs: each picks operands and gives a call that runs over numbers and over normal forms alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.trust.decays import DECAYS
from benchmarks.trust.gradients import GRADIENTS
from graphguard.relations.algebra import Unsupported
from graphguard.rules.lines.scaled_products import membership

if TYPE_CHECKING:
    from benchmarks.trust.fuzz import Program

LETTERS = "abcdefgh"
_CONDITIONED = 1e-6  # what is nearer to 0 may be rounding, which a root or a reciprocal makes large

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
            if (np.abs(p.pairs[j][0].array) < _CONDITIONED).any():
                return None
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
    if name in ("log", "sqrt", "rsqrt", "reciprocal") and (np.abs(p.pairs[i][0].array) < _CONDITIONED).any():
        return None
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


def _place(p: Program) -> Made:
    """Where the largest stands along a dim: at once, or from what parts of it say."""
    i = p.pick()
    dim = _dim(p, i)
    ordered = np.sort(np.moveaxis(p.pairs[i][0].array, dim, -1), axis=-1)
    if (np.diff(ordered[..., -2:]) < _CONDITIONED).any():
        return None  # rounding may turn the order of what is nearly equal
    size = p.shape(i)[dim]
    cuts = sorted({0, size, *(p.rng.randrange(1, size) for _ in range(p.rng.randrange(3)) if size > 1)})
    strict = p.rng.random() < 0.8

    def act(a: Any, v: Any) -> Any:
        top = place = None
        for low, high in itertools.pairwise(cuts):
            part = a.slice(v, dim, low, high)
            other, there = a.max_over(part, [dim]), a.place_of_largest(part, dim)
            there = a.add([there, a.full(there.shape, Fraction(low), "int")])
            if top is None:
                top, place = other, there
                continue
            later = a.compare("lt", top, other) if strict else a.compare("le", top, other)
            top, place = a.maximum(top, other), a.where(later, there, place)
        return place

    return act, [i]


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


def _merged(p: Program) -> Made:
    """Two parts of a softmax along a dim, merged by the logarithms of their sums; one may be masked."""
    i = p.pick()
    dim = _dim(p, i)
    shape = p.shape(i)
    place = p.rng.randrange(1, shape[dim])
    masked = p.rng.random() < 0.4 and len(shape) >= 2 and dim == len(shape) - 1

    def part(a: Any, v: Any, low: int, high: int) -> tuple[Any, Any]:
        v = a.slice(v, dim, low, high)
        e = a.exp(v)
        if masked and low == 0:
            rows, columns = e.shape[-2:]
            row = a.expand(a.reshape(a.iota(rows), (rows, 1)), (rows, columns))
            column = a.expand(a.reshape(a.iota(columns), (1, columns)), (rows, columns))
            e = a.multiply(e, a.expand(a.number(a.compare("le", column, row), "float"), e.shape))
        total = a.sum(e, [dim])
        return a.multiply(a.sum(a.multiply(e, v), [dim]), a.power(total, Fraction(-1))), a.log(total)

    def act(a: Any, v: Any) -> Any:
        (one, first), (two, second) = part(a, v, 0, place), part(a, v, place, shape[dim])
        weight = a.apply("sigmoid", (), [a.add([second, a.scale(first, Fraction(-1))])], "float")
        step = a.multiply(weight, a.add([one, a.scale(two, Fraction(-1))]))
        rest = a.apply(
            "sigmoid", (), [a.add([first, a.scale(second, Fraction(-1))])], "float"
        )  # 1 - weight, to the last digit
        whole = a.add([first, a.scale(a.log(rest), -1)])
        return a.add([one, a.scale(step, Fraction(-1)), a.scale(whole, Fraction(1, 2))])

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
    value = Fraction(p.rng.choice((0, 1, 2, 3)))
    swap = p.rng.random() < 0.5
    if kind == "float":
        gap = p.pairs[i][0].array - float(value)
        if ((np.abs(gap) < 1e-9) & ((gap != 0) | (value != 0))).any() or not _exact_zeros(p, i):
            return None  # zeros behind a mask are exact
    return lambda a, x: a.compare(
        relation, *((x, a.full(shape, value, kind)) if not swap else (a.full(shape, value, kind), x))
    ), [i]


def _exact_zeros(p: Program, index: int) -> bool:
    """Whether the denotation has a zero wherever numbers do; where terms only cancel, rounding decides on which side of it an element lies."""
    number, form = p.pairs[index]
    zeros = number.array == 0
    if not zeros.any():
        return True
    try:
        with np.errstate(all="ignore", over="raise", under="raise"):
            return not p.denotation.value(form)[zeros].any()
    except (FloatingPointError, Unsupported):
        return False


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


def _places(a: Any, keys: Any, descending: bool) -> Any:
    return a.opaque("argsort", (descending,), [(keys, "A")], "B", keys.shape, "int")


def _argsort(p: Program) -> Made:
    i = _any(p)
    shape = p.shape(i)
    if p.pairs[i][0].kind == "bool" or not shape or not _tell_apart(p, i):
        return None
    down = p.rng.random() < 0.3
    batch = LETTERS[: len(shape) - 1]
    return lambda a, v: a.opaque("argsort", (down,), [(v, batch + "A")], batch + "B", shape, "int"), [i]


def _tell_apart(p: Program, index: int) -> bool:
    """Whether rounding cannot change the order of the elements: whole numbers may be equal, others are told apart by their digits."""
    data = np.sort(p.pairs[index][0].array.astype(float), axis=-1)
    gaps = np.abs(np.diff(data, axis=-1))
    return p.pairs[index][0].kind == "int" or not (gaps < 1e-9).any()


def _sorted_rows(p: Program) -> Made:
    """Rows in the order of their keys, a function of them, and back again in one of several ways."""
    i = p.pick()
    count = p.shape(i)[0]
    keys = p.rng.choice(
        [k for k, (number, _) in enumerate(p.pairs) if number.shape == (count,) and number.kind != "bool"]
    )
    if not _tell_apart(p, keys):
        return None
    down, back = p.rng.random() < 0.3, p.rng.choice(("left", "put", "inverse", "again"))
    name = p.rng.choice(("tanh", "exp", "half"))
    letters = LETTERS[: len(p.shape(i)) - 1]

    def act(a: Any, key: Any, v: Any) -> Any:
        places = _places(a, key, down)
        rows = a.lookup(v, places)
        rows = a.apply("tanh", (), [rows], "float") if name == "tanh" else a.exp(rows) if name == "exp" else rows
        hot = a.one_hot(places, count, checked=True)
        if back == "put":
            return a.contract([(hot, "yz"), (rows, "y" + letters)], "z" + letters)
        if back == "inverse":
            inverse = a.number(a.contract([(hot, "yz"), (a.number(a.iota(count), "float"), "y")], "z"), "int")
            return a.lookup(rows, inverse)
        return rows if back == "left" else a.lookup(rows, _places(a, places, False))

    return act, [keys, i]


def _grouped(p: Program) -> Made:
    """Which places of a sorted line hold which of its elements, from how many there are of each."""
    keys = p.rng.choice([k for k, (number, _) in enumerate(p.pairs) if number.kind == "int" and len(number.shape) == 1])
    shape, first = p.shape(keys), p.rng.choice((0, 0, 1))
    count, less = p.rng.choice((3, 4, 6, 8)), p.rng.random() < 0.8

    def act(a: Any, v: Any) -> Any:
        places = _places(a, v, False)
        values = a.lookup(v, places)
        hot = a.one_hot(a.add([values, a.full(shape, Fraction(-first), "int")]), count)
        counts = a.sum(hot, [0])
        column = a.expand(a.iota(count), (count, count))
        row = a.expand(a.reshape(a.iota(count), (count, 1)), (count, count))
        below = a.number(a.compare("le", column, row), "float")
        ends = a.number(a.contract([(below, "zy"), (counts, "y")], "z"), "int")
        members = membership(a, ends, shape[0])
        return a.contract([(members, "tg"), (a.number(values if less else places, "float"), "t")], "g")

    return act, [keys]


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
    "place": _place,
    "softmax": _softmax,
    "merged": _merged,
    "integer": _integer,
    "compare": _compare,
    "logic": _logic,
    "lookup": _lookup,
    "argsort": _argsort,
    "sorted_rows": _sorted_rows,
    "grouped": _grouped,
    **DECAYS,
    **GRADIENTS,
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
