"""Values over a pair of finite fields: residues modulo p = 2q + 1 and q, and what random functions make of them.

All functions raise :class:`~graphguard.relations.algebra.Unsupported` where a value is not of the kind that they need.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphguard.relations.algebra import Kind, Scalar, Unsupported

P: Final = 2097779
Q: Final = 1048889
_STEP: Final = 1 << 10

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


def mixed(x: Array) -> Array:
    """A fixed random function of 64-bit words (splitmix64, Steele et al. 2014)."""
    z = x.astype(np.uint64)
    with np.errstate(over="ignore"):
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def seed_of(*what: object) -> np.uint64:
    """A word from whatever has a representation."""
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest(), "little"))


def residues_of(words: Array, modulus: int) -> Array:
    """Nonzero residues from random words."""
    return np.asarray((words % np.uint64(modulus - 1)).astype(np.int64) + 1)


def powers(exponents: Array) -> Array:
    """The powers of one generator of the subgroup of order q modulo p: small steps and giant steps, of which there are 1024 each and a few more."""
    small, giant = _steps()
    return np.asarray(small[exponents & _STEP - 1] * giant[exponents >> _STEP.bit_length() - 1] % P)


@cache
def _steps() -> tuple[Array, Array]:
    generator = next(g * g % P for g in range(2, 100) if pow(g, 2, P) != 1 and pow(g, Q, P) != 1)
    small = [pow(generator, number, P) for number in range(_STEP)]
    giant = [pow(generator, number * _STEP, P) for number in range(Q // _STEP + 1)]
    return np.array(small, dtype=np.int64), np.array(giant, dtype=np.int64)


def raised(x: Array, exponent: int, modulus: int) -> Array:
    """x to a natural number, element by element."""
    result, base = np.ones_like(x), x % modulus
    while exponent:
        if exponent & 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent >>= 1
    return result


def count_of(shape: tuple[int, ...]) -> int:
    """How many elements a shape has."""
    return math.prod(shape)


def simplest(value: float) -> Fraction:
    """The simplest fraction that a literal can mean, as the rules read literals."""
    found = Fraction(value).limit_denominator(1 << 24)
    return found if abs(float(found) - value) <= 1e-15 * abs(value) else Fraction(value)


def exact(value: Scalar) -> Fraction:
    """A number of a program as a fraction."""
    if isinstance(value, Fraction):
        return value
    if not np.isfinite(value):
        raise Unsupported("an infinity in a field")
    return simplest(float(value))


def residue_of(number: Fraction, modulus: int) -> int:
    """A fraction in the field of that many residues."""
    if number.denominator % modulus == 0:
        raise Unsupported("a literal whose denominator is zero in the field")
    return number.numerator * pow(number.denominator, -1, modulus) % modulus


def whole_numbers(v: Residues) -> Array:
    """The elements of integers or bools."""
    if v.plain is None:
        raise Unsupported("whole numbers were expected")
    return v.plain


def plain(kind: Kind, elements: Any, *sources: Residues) -> Residues:
    """Integers or bools, literal where all their sources are."""
    array = np.asarray(elements)
    return Residues(array.shape, kind, plain=array, literal=all(v.literal for v in sources))


def finite(v: Residues) -> Residues:
    """The value itself, if none of its elements is minus infinity."""
    if v.hidden is not None:
        raise Unsupported("minus infinity outside a sum or an exponential")
    return v


def each(vs: Sequence[Residues], compute: Any) -> Residues:
    """The same computation modulo p and, where all operands have it, modulo q."""
    p = compute([modulo_p(v) for v in vs], P)
    alive = all(v.q is not None for v in vs)
    q = compute([v.q for v in vs], Q) if alive else None
    return Residues(np.asarray(p).shape, "float", p=np.asarray(p), q=q, literal=all(v.literal for v in vs))


def modulo_p(v: Residues) -> Array:
    """The residues of floats modulo p."""
    if v.p is None:
        raise Unsupported("real numbers were expected")
    return v.p


def moved(v: Residues, move: Any) -> Residues:
    """Elements moved to other places, copied or left out, whatever they are."""
    plain, p, q, hidden = (None if x is None else np.asarray(move(x)) for x in (v.plain, v.p, v.q, v.hidden))
    kept = plain if plain is not None else p
    assert kept is not None
    return Residues(kept.shape, v.kind, plain, p, q, hidden, v.literal)


def together(vs: Sequence[Residues], join: Any) -> Residues:
    """Elements of several values put into one, each kept as it is."""
    literal = all(v.literal for v in vs)
    if vs[0].kind != "float":
        array = np.asarray(join([whole_numbers(v) for v in vs]))
        return Residues(array.shape, vs[0].kind, plain=array, literal=literal)
    p = np.asarray(join([modulo_p(v) for v in vs]))
    alive = all(v.q is not None for v in vs)
    q = np.asarray(join([v.q for v in vs])) if alive else None
    masked = any(v.hidden is not None for v in vs)
    flags = [np.zeros(v.shape, dtype=bool) if v.hidden is None else v.hidden for v in vs]
    return Residues(p.shape, "float", p=p, q=q, hidden=np.asarray(join(flags)) if masked else None, literal=literal)


def contracted(arrays: list[Array], letters: list[str], out: str, modulus: int) -> Array:
    """An Einstein summation, two operands at a time so that products stay within 63 bits."""
    while len(arrays) > 1:
        later = set(out).union(*letters[2:])
        kept = "".join(dict.fromkeys(c for c in letters[0] + letters[1] if c in later))
        arrays[:2] = [np.einsum(f"{letters[0]},{letters[1]}->{kept}", arrays[0], arrays[1]) % modulus]
        letters = [kept, *letters[2:]]
    return np.asarray(np.einsum(f"{letters[0]}->{out}", arrays[0]) % modulus)


def order_key(v: Residues, seed: int) -> Array:
    """A random order among values: what it is does not matter, only that all agree on it, and that no literal is always first or last."""
    key = modulo_p(v) * Q + (0 if v.q is None else v.q)
    order = (mixed(key.astype(np.uint64) ^ seed_of("order", seed)) >> np.uint64(1)).astype(np.int64)
    return order if v.hidden is None else np.where(v.hidden, -1, order)


def words_of(v: Residues) -> Array:
    """One word for every element: equal elements give equal words."""
    if v.plain is not None:
        return np.asarray(v.plain.astype(np.int64).astype(np.uint64))
    words = modulo_p(v).astype(np.uint64)
    return words if v.hidden is None else np.where(v.hidden, np.uint64(P), words)


def from_words(words: Array, kind: Kind) -> Residues:
    """A value of a kind from one random word for every element."""
    if kind == "float":
        return Residues(words.shape, kind, p=residues_of(words, P), q=residues_of(mixed(words), Q))
    plain = (words % np.uint64(2)).astype(bool) if kind == "bool" else (words % np.uint64(4)).astype(np.int64)
    return Residues(words.shape, kind, plain=plain)


def digest(v: Residues, letters: str, batch: Sequence[str], position: int) -> Array:
    """One word for every batch position, from all of the operand's core elements there, in order."""
    mine = [letter for letter in batch if letter in letters]
    core = [letter for letter in letters if letter not in mine]
    words = np.einsum(words_of(v), *orders(letters, (*mine, *core)))
    flat = words.reshape(*words.shape[: len(mine)], -1)
    with np.errstate(over="ignore"):
        marked = mixed(flat ^ mixed(np.arange(flat.shape[-1], dtype=np.uint64) ^ seed_of("place", position)))
        total = mixed(marked).sum(axis=-1, dtype=np.uint64)
    shape = [total.shape[mine.index(letter)] if letter in mine else 1 for letter in batch]
    return np.asarray(total.reshape(shape))


def orders(source: Sequence[str], target: Sequence[str]) -> tuple[list[int], list[int]]:
    """Letters as numbers, as ``np.einsum`` takes them."""
    names = {letter: number for number, letter in enumerate(source)}
    return [names[letter] for letter in source], [names[letter] for letter in target]


def check_inside(index: Array, extent: int) -> None:
    """Refuse positions outside a dim."""
    if index.size and (index.min() < 0 or index.max() >= extent):
        raise Unsupported(f"an index outside 0..{extent - 1}")
