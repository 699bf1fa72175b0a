"""The second opinion: programs evaluated over a pair of finite fields by the same rules as in the proof.

A real number is a pair of residues modulo p = 2q + 1 and q, both prime, drawn at random for every leaf.  Sums, products and quotients are exact; ``exp`` maps
the residue modulo q onto the subgroup of order q modulo p, so exp(a + b) = exp(a) exp(b).  What has no meaning in a field (a logarithm, a
comparison, a function known by name) is a fixed random function of its operands.  Two rational expressions that differ agree by chance with probability at
most degree / p for each element (Schwartz 1980, Zippel 1979): equality is good evidence.  A difference is evidence only where no
random function was needed, or the same one on the same operands; :attr:`Fields.guessed` says which were.

Gulwani and Necula, "Discovering affine equalities using random interpretation" (POPL 2003), is where the method comes from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from graphguard.relations.algebra import Kind, Scalar, Unsupported

P: Final = 2097779
Q: Final = 1048889

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Residues:
    """Values of one shape.

    Floats have residues ``p`` and ``q`` (None once they are lost: an exponential has none modulo q); ints and bools have
    ``plain`` elements.  ``hidden`` marks elements that are minus infinity, which only masks are.
    """

    shape: tuple[int, ...]
    kind: Kind
    plain: Array | None = None
    p: Array | None = None
    q: Array | None = None
    hidden: Array | None = None
    literal: bool = False


def _mixed(x: Array) -> Array:
    """A fixed random function of 64-bit words (splitmix64, Steele et al. 2014)."""
    z = x.astype(np.uint64)
    with np.errstate(over="ignore"):
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def _seed(*what: object) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest(), "little"))


def _residues(words: Array, modulus: int) -> Array:
    """Nonzero residues from random words."""
    return np.asarray((words % np.uint64(modulus - 1)).astype(np.int64) + 1)


@cache
def _powers() -> Array:
    """The subgroup of order q modulo p: the powers of one generator."""
    generator = next(g * g % P for g in range(2, 100) if pow(g, 2, P) != 1 and pow(g, Q, P) != 1)
    table = np.ones(1, dtype=np.int64)
    step = generator
    while len(table) < Q:
        table = np.concatenate([table, table * step % P])
        step = step * step % P
    return np.asarray(table[:Q])


def _power(x: Array, exponent: int, modulus: int) -> Array:
    """x to a natural number, element by element."""
    result, base = np.ones_like(x), x % modulus
    while exponent:
        if exponent & 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent >>= 1
    return result


class Fields:
    """An :class:`~graphguard.relations.algebra.Algebra` over pairs of residues; leaves and draws are random, by ``seed``."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.guessed: set[str] = set()

    # -- where values come from
    def leaf(
        self, name: str, shape: tuple[int, ...], kind: Kind, low: int | None = None, high: int | None = None
    ) -> Residues:
        return self._unknown((self.seed, "leaf", name), shape, kind, low, high)

    def _unknown(
        self,
        what: tuple[object, ...],
        shape: tuple[int, ...],
        kind: Kind,
        low: int | None = None,
        high: int | None = None,
    ) -> Residues:
        words = _mixed(np.arange(_count(shape), dtype=np.uint64).reshape(shape) ^ _seed(*what))
        if kind == "float":
            return Residues(shape, kind, p=_residues(words, P), q=_residues(_mixed(words), Q))
        first = 0 if low is None else low
        extent = 2 if kind == "bool" else max((first + 4 if high is None else high) - first, 1)
        plain = (words % np.uint64(extent)).astype(np.int64) + (0 if kind == "bool" else first)
        return Residues(shape, kind, plain=plain.astype(bool) if kind == "bool" else plain)

    def literal(self, elements: np.ndarray) -> Residues:
        if elements.dtype == np.bool_ or elements.dtype.kind in "iu":
            kind: Kind = "bool" if elements.dtype == np.bool_ else "int"
            return Residues(elements.shape, kind, plain=elements, literal=True)
        hidden = np.isneginf(elements)
        if not np.isfinite(elements[~hidden]).all():
            raise Unsupported("an infinity or a not-a-number in a field")
        numbers = [_fraction(float(x)) for x in np.where(hidden, 0.0, elements).reshape(-1)]
        p, q = (np.array([_residue(x, m) for x in numbers], dtype=np.int64).reshape(elements.shape) for m in (P, Q))
        return Residues(elements.shape, "float", p=p, q=q, hidden=hidden if hidden.any() else None, literal=True)

    def full(self, shape: tuple[int, ...], value: Scalar, kind: Kind) -> Residues:
        if kind != "float":
            plain = np.full(shape, bool(value) if kind == "bool" else int(value))
            return Residues(shape, kind, plain=plain, literal=True)
        if isinstance(value, float) and value == -np.inf:
            zero = np.zeros(shape, dtype=np.int64)
            return Residues(shape, kind, p=zero, q=zero, hidden=np.ones(shape, dtype=bool), literal=True)
        number = _exact(value)
        p, q = (np.full(shape, _residue(number, m), dtype=np.int64) for m in (P, Q))
        return Residues(shape, kind, p=p, q=q, literal=True)

    def iota(self, extent: int) -> Residues:
        return Residues((extent,), "int", plain=np.arange(extent, dtype=np.int64), literal=True)

    def random(
        self, draw: tuple[str, int], name: str, attributes: tuple[object, ...], shape: tuple[int, ...], kind: Kind
    ) -> Residues:
        return self._unknown((self.seed, "draw", draw, name, attributes, shape), shape, kind)

    def known(self, v: Residues) -> np.ndarray | None:
        return v.plain if v.literal else None

    def once(self, key: tuple[object, ...], make: Callable[[], Residues]) -> Residues:  # noqa: ARG002 - nothing is remembered
        return make()

    # -- layout
    def reshape(self, v: Residues, shape: tuple[int, ...]) -> Residues:
        return _moved(v, lambda x: x.reshape(shape))

    def permute(self, v: Residues, dims: Sequence[int]) -> Residues:
        return _moved(v, lambda x: x.transpose(tuple(dims)))

    def slice(self, v: Residues, dim: int, start: int, stop: int, step: int = 1) -> Residues:
        return _moved(v, lambda x: x[(slice(None),) * dim + (slice(start, stop, step),)])

    def flip(self, v: Residues, dim: int) -> Residues:
        return _moved(v, lambda x: np.flip(x, dim))

    def concat(self, vs: Sequence[Residues], dim: int) -> Residues:
        return _together(vs, lambda xs: np.concatenate(xs, axis=dim))

    def expand(self, v: Residues, shape: tuple[int, ...]) -> Residues:
        return _moved(v, lambda x: np.broadcast_to(x, shape))

    # -- arithmetic
    def add(self, vs: Sequence[Residues]) -> Residues:
        if vs[0].kind == "int":
            return _plain("int", sum(_elements(v) for v in vs[1:]) + _elements(vs[0]), *vs)
        hidden = [v.hidden for v in vs if v.hidden is not None]
        masked = np.logical_or.reduce(hidden) if hidden else None
        total = _each(vs, lambda xs, m: sum(xs[1:], xs[0]) % m)
        return Residues(total.shape, "float", p=total.p, q=total.q, hidden=masked, literal=total.literal)

    def scale(self, v: Residues, factor: Scalar) -> Residues:
        number = _exact(factor)
        if v.kind == "int" and number.denominator == 1:
            return _plain("int", _elements(v) * int(number), v)
        v = self.number(v, "float") if v.kind == "int" else v
        if v.hidden is not None and number <= 0:
            raise Unsupported("minus infinity times a number that is not positive")
        scaled = _each([v], lambda xs, m: xs[0] * _residue(number, m) % m)
        return Residues(scaled.shape, "float", p=scaled.p, q=scaled.q, hidden=v.hidden, literal=scaled.literal)

    def multiply(self, a: Residues, b: Residues) -> Residues:
        if a.kind == "int":
            return _plain("int", _elements(a) * _elements(b), a, b)
        return _each([_open(a), _open(b)], lambda xs, m: xs[0] * xs[1] % m)

    def power(self, v: Residues, exponent: Fraction) -> Residues:
        v = self.number(v, "float") if v.kind == "int" else _open(v)
        if exponent.denominator == 1:
            whole = int(exponent)
            return _each([v], lambda xs, m: _power(xs[0], whole if whole >= 0 else (m - 2) * -whole, m))
        if exponent.denominator != 2:
            return self._guess("power", (exponent,), [v], "float")
        root = self._root(v)
        return self.power(root, Fraction(exponent.numerator))

    def _root(self, v: Residues) -> Residues:
        """The square root that is itself a square, where there is one: modulo p it respects products; modulo q it is lost."""
        assert v.p is not None
        self.guessed.add("square root")
        root = _power(v.p, (P + 1) // 4, P)
        square = root * root % P == v.p
        other = self._guess("square root", (), [Residues(v.shape, "float", p=v.p)], "float")
        return Residues(v.shape, "float", p=np.where(square, root, _modulo_p(other)), literal=v.literal)

    def exp(self, v: Residues) -> Residues:
        if v.q is None:
            self.guessed.add("exp of exp")
            assert v.p is not None
            q = _residues(_mixed(v.p.astype(np.uint64) ^ _seed("revived")), Q)
        else:
            q = v.q
        p = _powers()[q]
        return Residues(v.shape, "float", p=p if v.hidden is None else np.where(v.hidden, 0, p), literal=v.literal)

    def log(self, v: Residues) -> Residues:
        return self._guess("log", (), [v], "float")

    def sum(self, v: Residues, dims: Sequence[int]) -> Residues:
        axes = tuple(dims)
        if v.kind == "int":
            return _plain("int", _elements(v).sum(axis=axes), v)
        return _each([_open(v)], lambda xs, m: np.asarray(xs[0].sum(axis=axes)) % m)

    def contract(self, operands: Sequence[tuple[Residues, str]], out: str) -> Residues:
        if operands[0][0].kind == "int":
            equation = ",".join(letters for _, letters in operands) + "->" + out
            return _plain("int", np.einsum(equation, *(_elements(v) for v, _ in operands)), *(v for v, _ in operands))
        letters = [names for _, names in operands]
        return _each([_open(v) for v, _ in operands], lambda xs, m: _contracted(list(xs), letters, out, m))

    def maximum(self, a: Residues, b: Residues) -> Residues:
        if a.kind == "int":
            return _plain("int", np.maximum(_elements(a), _elements(b)), a, b)
        self.guessed.add("max")
        first = _key(a, self.seed) >= _key(b, self.seed)
        return _together([a, b], lambda xs: np.where(first, xs[0], xs[1]))

    def max_over(self, v: Residues, dims: Sequence[int]) -> Residues:
        axes = tuple(dims)
        if v.kind == "int":
            return _plain("int", _elements(v).max(axis=axes), v)
        self.guessed.add("max")
        kept = [d for d in range(len(v.shape)) if d not in axes]
        rows = _moved(v, lambda x: x.transpose((*kept, *axes)).reshape((*(v.shape[d] for d in kept), -1)))
        best = _key(rows, self.seed).argmax(axis=-1)[..., None]
        return _moved(rows, lambda x: np.take_along_axis(x, best, -1)[..., 0])

    def place_of_largest(self, v: Residues, dim: int) -> Residues:
        if v.kind != "float":
            return _plain("int", _elements(v).argmax(axis=dim), v)
        self.guessed.add("max")
        return _plain("int", _key(v, self.seed).argmax(axis=dim), v)

    # -- integers
    def floor_divide(self, v: Residues, divisor: int) -> Residues:
        return _plain("int", _elements(v) // divisor, v)

    def remainder(self, v: Residues, divisor: int) -> Residues:
        return _plain("int", _elements(v) % divisor, v)

    def one_hot(self, index: Residues, extent: int, checked: bool | Literal["known"] = False) -> Residues:
        elements = _elements(index)
        if checked:
            _inside(elements, extent)
        ones = (elements[..., None] == np.arange(extent)).astype(np.int64)
        return Residues(ones.shape, "float", p=ones, q=ones, literal=index.literal)

    def lookup(self, table: Residues, index: Residues) -> Residues:
        elements = _elements(index)
        _inside(elements, table.shape[0])
        found = _moved(table, lambda x: x[elements])
        return (
            found if index.literal else Residues(found.shape, found.kind, found.plain, found.p, found.q, found.hidden)
        )

    # -- truth
    def compare(self, relation: Literal["lt", "le", "eq"], a: Residues, b: Residues) -> Residues:
        if a.kind != "float":
            compare = {"lt": np.less, "le": np.less_equal, "eq": np.equal}[relation]
            return _plain("bool", compare(_elements(a), _elements(b)), a, b)
        self.guessed.add("comparison")
        assert a.p is not None
        assert b.p is not None
        gap = (a.p - b.p) % P
        if relation == "eq":
            return _plain("bool", gap == 0, a, b)
        # A sign that turns with its operand, and nothing else that an order has.
        negative = gap > P // 2
        return _plain("bool", negative if relation == "lt" else negative | (gap == 0), a, b)

    def distinct(self, v: Residues, dim: int) -> bool:  # noqa: ARG002 - random functions are no permutations
        return False

    def groups(self, ends: Residues, extent: int) -> Residues | None:  # noqa: ARG002
        return None

    def truth(self, v: Residues) -> Residues:
        return _plain("bool", (_elements(v) if v.p is None else v.p) != 0, v)

    def logical_not(self, v: Residues) -> Residues:
        return _plain("bool", ~_elements(v), v)

    def logical_and(self, a: Residues, b: Residues) -> Residues:
        return _plain("bool", _elements(a) & _elements(b), a, b)

    def logical_or(self, a: Residues, b: Residues) -> Residues:
        return _plain("bool", _elements(a) | _elements(b), a, b)

    def number(self, v: Residues, kind: Literal["int", "float"]) -> Residues:
        if v.kind == kind:
            return v
        if v.kind == "float":
            return self._guess("truncation", (), [v], "int")
        whole = _elements(v).astype(np.int64)
        if kind == "int":
            return _plain("int", whole, v)
        return Residues(v.shape, "float", p=whole % P, q=whole % Q, literal=v.literal)

    def where(self, condition: Residues, a: Residues, b: Residues) -> Residues:
        chosen = _elements(condition)
        found = _together([a, b], lambda xs: np.where(chosen, xs[0], xs[1]))
        return (
            found
            if condition.literal
            else Residues(found.shape, found.kind, found.plain, found.p, found.q, found.hidden)
        )

    # -- what stays closed
    def apply(self, name: str, attributes: tuple[object, ...], vs: Sequence[Residues], kind: Kind) -> Residues:
        return self._guess(name, attributes, vs, kind)

    def opaque(
        self,
        name: str,
        attributes: tuple[object, ...],
        operands: Sequence[tuple[Residues, str]],
        out: str,
        out_shape: tuple[int, ...],
        kind: Kind,
    ) -> Residues:
        self.guessed.add(name)
        batch = [letter for letter in out if letter.islower()]
        sizes = dict(zip(out, out_shape, strict=True))
        words = np.full([sizes[letter] for letter in batch], _seed(name, attributes))
        for position, (v, letters) in enumerate(operands):
            words = _mixed(words ^ _digest(v, letters, batch, position))
        core = [letter for letter in out if letter not in batch]
        count = _count(tuple(sizes[letter] for letter in core))
        spread = _mixed(words[..., None] ^ _mixed(np.arange(count, dtype=np.uint64)))
        arranged = spread.reshape([sizes[letter] for letter in (*batch, *core)])
        return _from_words(np.einsum(arranged, *_orders((*batch, *core), out)), kind)

    def _guess(self, name: str, attributes: tuple[object, ...], vs: Sequence[Residues], kind: Kind) -> Residues:
        """A fixed random function of the operands, element by element."""
        self.guessed.add(name)
        words = np.full(vs[0].shape, _seed(name, attributes))
        for v in vs:
            words = _mixed(words ^ _mixed(_words(v)))
        result = _from_words(words, kind)
        return Residues(result.shape, kind, result.plain, result.p, result.q, literal=False)


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


def _fraction(value: float) -> Fraction:
    """The simplest fraction that a literal can mean, as the rules read literals."""
    found = Fraction(value).limit_denominator(1 << 24)
    return found if abs(float(found) - value) <= 1e-15 * abs(value) else Fraction(value)


def _exact(value: Scalar) -> Fraction:
    if isinstance(value, Fraction):
        return value
    if not np.isfinite(value):
        raise Unsupported("an infinity in a field")
    return _fraction(float(value))


def _residue(number: Fraction, modulus: int) -> int:
    if number.denominator % modulus == 0:
        raise Unsupported("a literal whose denominator is zero in the field")
    return number.numerator * pow(number.denominator, -1, modulus) % modulus


def _elements(v: Residues) -> Array:
    if v.plain is None:
        raise Unsupported("whole numbers were expected")
    return v.plain


def _plain(kind: Kind, elements: Any, *sources: Residues) -> Residues:
    array = np.asarray(elements)
    return Residues(array.shape, kind, plain=array, literal=all(v.literal for v in sources))


def _open(v: Residues) -> Residues:
    if v.hidden is not None:
        raise Unsupported("minus infinity outside a sum or an exponential")
    return v


def _each(vs: Sequence[Residues], compute: Any) -> Residues:
    """The same computation modulo p and, where all operands have it, modulo q."""
    p = compute([_modulo_p(v) for v in vs], P)
    alive = all(v.q is not None for v in vs)
    q = compute([v.q for v in vs], Q) if alive else None
    return Residues(np.asarray(p).shape, "float", p=np.asarray(p), q=q, literal=all(v.literal for v in vs))


def _modulo_p(v: Residues) -> Array:
    if v.p is None:
        raise Unsupported("real numbers were expected")
    return v.p


def _moved(v: Residues, move: Any) -> Residues:
    plain, p, q, hidden = (None if x is None else np.asarray(move(x)) for x in (v.plain, v.p, v.q, v.hidden))
    moved = plain if plain is not None else p
    assert moved is not None
    return Residues(moved.shape, v.kind, plain, p, q, hidden, v.literal)


def _together(vs: Sequence[Residues], join: Any) -> Residues:
    """Elements of several values put into one, each kept as it is."""
    literal = all(v.literal for v in vs)
    if vs[0].kind != "float":
        array = np.asarray(join([_elements(v) for v in vs]))
        return Residues(array.shape, vs[0].kind, plain=array, literal=literal)
    p = np.asarray(join([_modulo_p(v) for v in vs]))
    alive = all(v.q is not None for v in vs)
    q = np.asarray(join([v.q for v in vs])) if alive else None
    masked = any(v.hidden is not None for v in vs)
    flags = [np.zeros(v.shape, dtype=bool) if v.hidden is None else v.hidden for v in vs]
    return Residues(p.shape, "float", p=p, q=q, hidden=np.asarray(join(flags)) if masked else None, literal=literal)


def _contracted(arrays: list[Array], letters: list[str], out: str, modulus: int) -> Array:
    """An Einstein summation, two operands at a time so that products stay within 63 bits."""
    while len(arrays) > 1:
        later = set(out).union(*letters[2:])
        kept = "".join(dict.fromkeys(c for c in letters[0] + letters[1] if c in later))
        arrays[:2] = [np.einsum(f"{letters[0]},{letters[1]}->{kept}", arrays[0], arrays[1]) % modulus]
        letters = [kept, *letters[2:]]
    return np.asarray(np.einsum(f"{letters[0]}->{out}", arrays[0]) % modulus)


def _key(v: Residues, seed: int) -> Array:
    """A random order among values: what it is does not matter, only that all agree on it, and that no literal is always first or last."""
    key = _modulo_p(v) * Q + (0 if v.q is None else v.q)
    order = (_mixed(key.astype(np.uint64) ^ _seed("order", seed)) >> np.uint64(1)).astype(np.int64)
    return order if v.hidden is None else np.where(v.hidden, -1, order)


def _words(v: Residues) -> Array:
    """One word for every element: equal elements give equal words."""
    if v.plain is not None:
        return np.asarray(v.plain.astype(np.int64).astype(np.uint64))
    words = _modulo_p(v).astype(np.uint64)
    return words if v.hidden is None else np.where(v.hidden, np.uint64(P), words)


def _from_words(words: Array, kind: Kind) -> Residues:
    if kind == "float":
        return Residues(words.shape, kind, p=_residues(words, P), q=_residues(_mixed(words), Q))
    plain = (words % np.uint64(2)).astype(bool) if kind == "bool" else (words % np.uint64(4)).astype(np.int64)
    return Residues(words.shape, kind, plain=plain)


def _digest(v: Residues, letters: str, batch: Sequence[str], position: int) -> Array:
    """One word for every batch position, from all of the operand's core elements there, in order."""
    mine = [letter for letter in batch if letter in letters]
    core = [letter for letter in letters if letter not in mine]
    words = np.einsum(_words(v), *_orders(letters, (*mine, *core)))
    flat = words.reshape(*words.shape[: len(mine)], -1)
    with np.errstate(over="ignore"):
        marked = _mixed(flat ^ _mixed(np.arange(flat.shape[-1], dtype=np.uint64) ^ _seed("place", position)))
        total = _mixed(marked).sum(axis=-1, dtype=np.uint64)
    shape = [total.shape[mine.index(letter)] if letter in mine else 1 for letter in batch]
    return np.asarray(total.reshape(shape))


def _orders(source: Sequence[str], target: Sequence[str]) -> tuple[list[int], list[int]]:
    """Letters as numbers, as ``np.einsum`` takes them."""
    names = {letter: number for number, letter in enumerate(source)}
    return [names[letter] for letter in source], [names[letter] for letter in target]


def _inside(index: Array, extent: int) -> None:
    if index.size and (index.min() < 0 or index.max() >= extent):
        raise Unsupported(f"an index outside 0..{extent - 1}")
