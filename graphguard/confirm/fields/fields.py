"""The second opinion: programs evaluated over a pair of finite fields by the same rules as in the proof.

A real number is a pair of residues modulo p = 2q + 1 and q, both prime, drawn at random for every leaf.  Sums, products and quotients are exact; ``exp`` maps
the residue modulo q onto the subgroup of order q modulo p, so exp(a + b) = exp(a) exp(b).  What has no meaning in a field (a logarithm, a
comparison, a function known by name) is a fixed random function of its operands.  Two rational expressions that differ agree by chance with probability at
most degree / p for each element (Schwartz 1980, Zippel 1979): equality is good evidence.  A difference is evidence only where no
random function was needed, or the same one on the same operands; :attr:`Fields.guessed` says which were.

Gulwani and Necula, "Discovering affine equalities using random interpretation" (POPL 2003), is where the method comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from graphguard.confirm.fields.residues import (
    P,
    Q,
    Residues,
    check_inside,
    contracted,
    count_of,
    digest,
    each,
    exact,
    finite,
    from_words,
    mixed,
    modulo_p,
    moved,
    order_key,
    orders,
    plain,
    powers,
    raised,
    residue_of,
    residues_of,
    seed_of,
    simplest,
    together,
    whole_numbers,
    words_of,
)
from graphguard.relations.algebra import Kind, Scalar, Unsupported


class Fields:
    """An :class:`~graphguard.relations.algebra.Algebra` over pairs of residues; leaves and draws are random, by ``seed``."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.guessed: set[str] = set()
        self._held: dict[str, list[np.ndarray]] = {}

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
        words = mixed(np.arange(count_of(shape), dtype=np.uint64).reshape(shape) ^ seed_of(*what))
        if kind == "float":
            return Residues(shape, kind, p=residues_of(words, P), q=residues_of(mixed(words), Q))
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
        numbers = [simplest(float(x)) for x in np.where(hidden, 0.0, elements).reshape(-1)]
        p, q = (np.array([residue_of(x, m) for x in numbers], dtype=np.int64).reshape(elements.shape) for m in (P, Q))
        return Residues(elements.shape, "float", p=p, q=q, hidden=hidden if hidden.any() else None, literal=True)

    def full(self, shape: tuple[int, ...], value: Scalar, kind: Kind) -> Residues:
        if kind != "float":
            plain = np.full(shape, bool(value) if kind == "bool" else int(value))
            return Residues(shape, kind, plain=plain, literal=True)
        if isinstance(value, float) and value == -np.inf:
            zero = np.zeros(shape, dtype=np.int64)
            return Residues(shape, kind, p=zero, q=zero, hidden=np.ones(shape, dtype=bool), literal=True)
        number = exact(value)
        p, q = (np.full(shape, residue_of(number, m), dtype=np.int64) for m in (P, Q))
        return Residues(shape, kind, p=p, q=q, literal=True)

    def iota(self, extent: int) -> Residues:
        return Residues((extent,), "int", plain=np.arange(extent, dtype=np.int64), literal=True)

    def random(
        self, draw: tuple[str, int], name: str, attributes: tuple[object, ...], shape: tuple[int, ...], kind: Kind
    ) -> Residues:
        return self._unknown((self.seed, "draw", draw, name, attributes, shape), shape, kind)

    def known(self, v: Residues) -> np.ndarray | None:
        return v.plain if v.literal else None

    def repeats(self, v: Residues, dim: int) -> bool:
        return v.shape[dim] == 1

    def hold(self, v: Residues, dtype: str) -> None:
        if v.p is not None:
            self._held.setdefault(dtype, []).append(v.p.reshape(-1))

    def holds(self, v: Residues, dtype: str) -> bool:
        held = self._held.get(dtype)
        return held is not None and v.p is not None and bool(np.isin(v.p, np.concatenate(held)).all())

    def once(self, key: tuple[object, ...], make: Callable[[], Residues]) -> Residues:  # noqa: ARG002 - nothing is remembered
        return make()

    def noted(self, topic: str) -> list[Any]:  # noqa: ARG002 - as above
        return []

    def assume(self, text: str) -> None:
        pass

    def same(self, v: Residues, w: Residues) -> bool:
        return v is w

    # -- layout
    def reshape(self, v: Residues, shape: tuple[int, ...]) -> Residues:
        return moved(v, lambda x: x.reshape(shape))

    def permute(self, v: Residues, dims: Sequence[int]) -> Residues:
        return moved(v, lambda x: x.transpose(tuple(dims)))

    def slice(self, v: Residues, dim: int, start: int, stop: int, step: int = 1) -> Residues:
        return moved(v, lambda x: x[(slice(None),) * dim + (slice(start, stop, step),)])

    def flip(self, v: Residues, dim: int) -> Residues:
        return moved(v, lambda x: np.flip(x, dim))

    def concat(self, vs: Sequence[Residues], dim: int) -> Residues:
        return together(vs, lambda xs: np.concatenate(xs, axis=dim))

    def expand(self, v: Residues, shape: tuple[int, ...]) -> Residues:
        return moved(v, lambda x: np.broadcast_to(x, shape))

    # -- arithmetic
    def add(self, vs: Sequence[Residues]) -> Residues:
        if vs[0].kind == "int":
            return plain("int", sum(whole_numbers(v) for v in vs[1:]) + whole_numbers(vs[0]), *vs)
        hidden = [v.hidden for v in vs if v.hidden is not None]
        masked = np.logical_or.reduce(hidden) if hidden else None
        total = each(vs, lambda xs, m: sum(xs[1:], xs[0]) % m)
        return replace(total, hidden=masked)

    def scale(self, v: Residues, factor: Scalar) -> Residues:
        number = exact(factor)
        if v.kind == "int" and number.denominator == 1:
            return plain("int", whole_numbers(v) * int(number), v)
        v = self.number(v, "float") if v.kind == "int" else v
        if v.hidden is not None and number <= 0:
            raise Unsupported("minus infinity times a number that is not positive")
        scaled = each([v], lambda xs, m: xs[0] * residue_of(number, m) % m)
        return replace(scaled, hidden=v.hidden)

    def multiply(self, a: Residues, b: Residues) -> Residues:
        if a.kind == "int":
            return plain("int", whole_numbers(a) * whole_numbers(b), a, b)
        return each([finite(a), finite(b)], lambda xs, m: xs[0] * xs[1] % m)

    def power(self, v: Residues, exponent: Fraction) -> Residues:
        v = self.number(v, "float") if v.kind == "int" else finite(v)
        if exponent.denominator == 1:
            whole = int(exponent)
            return each([v], lambda xs, m: raised(xs[0], whole if whole >= 0 else (m - 2) * -whole, m))
        if exponent.denominator != 2:
            return self._guess("power", (exponent,), [v], "float")
        root = self._root(v)
        return self.power(root, Fraction(exponent.numerator))

    def _root(self, v: Residues) -> Residues:
        """The square root that is itself a square, where there is one: modulo p it respects products; modulo q it is lost."""
        assert v.p is not None
        self.guessed.add("square root")
        root = raised(v.p, (P + 1) // 4, P)
        square = root * root % P == v.p
        other = self._guess("square root", (), [Residues(v.shape, "float", p=v.p)], "float")
        return Residues(v.shape, "float", p=np.where(square, root, modulo_p(other)), literal=v.literal)

    def exp(self, v: Residues) -> Residues:
        if v.q is None:
            self.guessed.add("exp of exp")
            assert v.p is not None
            q = residues_of(mixed(v.p.astype(np.uint64) ^ seed_of("revived")), Q)
        else:
            q = v.q
        p = powers(q)
        return Residues(v.shape, "float", p=p if v.hidden is None else np.where(v.hidden, 0, p), literal=v.literal)

    def log(self, v: Residues) -> Residues:
        return self._guess("log", (), [v], "float")

    def sum(self, v: Residues, dims: Sequence[int]) -> Residues:
        axes = tuple(dims)
        if v.kind == "int":
            return plain("int", whole_numbers(v).sum(axis=axes), v)
        return each([finite(v)], lambda xs, m: np.asarray(xs[0].sum(axis=axes)) % m)

    def contract(self, operands: Sequence[tuple[Residues, str]], out: str) -> Residues:
        if operands[0][0].kind == "int":
            equation = ",".join(letters for _, letters in operands) + "->" + out
            return plain(
                "int", np.einsum(equation, *(whole_numbers(v) for v, _ in operands)), *(v for v, _ in operands)
            )
        letters = [names for _, names in operands]
        return each([finite(v) for v, _ in operands], lambda xs, m: contracted(list(xs), letters, out, m))

    def maximum(self, a: Residues, b: Residues) -> Residues:
        if a.kind == "int":
            return plain("int", np.maximum(whole_numbers(a), whole_numbers(b)), a, b)
        self.guessed.add("max")
        first = order_key(a, self.seed) >= order_key(b, self.seed)
        return together([a, b], lambda xs: np.where(first, xs[0], xs[1]))

    def max_over(self, v: Residues, dims: Sequence[int]) -> Residues:
        axes = tuple(dims)
        if v.kind == "int":
            return plain("int", whole_numbers(v).max(axis=axes), v)
        self.guessed.add("max")
        kept = [d for d in range(len(v.shape)) if d not in axes]
        rows = moved(v, lambda x: x.transpose((*kept, *axes)).reshape((*(v.shape[d] for d in kept), -1)))
        best = order_key(rows, self.seed).argmax(axis=-1)[..., None]
        return moved(rows, lambda x: np.take_along_axis(x, best, -1)[..., 0])

    def place_of_largest(self, v: Residues, dim: int) -> Residues:
        if v.kind != "float":
            return plain("int", whole_numbers(v).argmax(axis=dim), v)
        self.guessed.add("max")
        return plain("int", order_key(v, self.seed).argmax(axis=dim), v)

    # -- integers
    def floor_divide(self, v: Residues, divisor: int) -> Residues:
        return plain("int", whole_numbers(v) // divisor, v)

    def remainder(self, v: Residues, divisor: int) -> Residues:
        return plain("int", whole_numbers(v) % divisor, v)

    def one_hot(self, index: Residues, extent: int, checked: bool | Literal["known"] = False) -> Residues:
        elements = whole_numbers(index)
        if checked:
            check_inside(elements, extent)
        ones = (elements[..., None] == np.arange(extent)).astype(np.int64)
        return Residues(ones.shape, "float", p=ones, q=ones, literal=index.literal)

    def lookup(self, table: Residues, index: Residues) -> Residues:
        elements = whole_numbers(index)
        check_inside(elements, table.shape[0])
        found = moved(table, lambda x: x[elements])
        return replace(found, literal=found.literal and index.literal)

    # -- truth
    def compare(self, relation: Literal["lt", "le", "eq"], a: Residues, b: Residues) -> Residues:
        if a.kind != "float":
            compare = {"lt": np.less, "le": np.less_equal, "eq": np.equal}[relation]
            return plain("bool", compare(whole_numbers(a), whole_numbers(b)), a, b)
        self.guessed.add("comparison")
        assert a.p is not None
        assert b.p is not None
        gap = (a.p - b.p) % P
        if relation == "eq":
            return plain("bool", gap == 0, a, b)
        # A sign that turns with its operand, and nothing else that an order has.
        negative = gap > P // 2
        return plain("bool", negative if relation == "lt" else negative | (gap == 0), a, b)

    def distinct(self, v: Residues, dim: int) -> bool:  # noqa: ARG002 - random functions are no permutations
        return False

    def truths(self, v: Residues) -> bool:  # noqa: ARG002
        return False

    def positive(self, v: Residues) -> bool:  # noqa: ARG002
        return False

    def sorts_by(self, v: Residues) -> int:  # noqa: ARG002
        return 0

    def may_count_back(self, v: Residues) -> bool:
        return bool((whole_numbers(v) < 0).any())

    def most_counted(self, v: Residues, digits: int) -> float | None:  # noqa: ARG002
        return None

    def groups(self, ends: Residues, extent: int) -> Residues | None:  # noqa: ARG002
        return None

    def truth(self, v: Residues) -> Residues:
        return plain("bool", (whole_numbers(v) if v.p is None else v.p) != 0, v)

    def logical_not(self, v: Residues) -> Residues:
        return plain("bool", ~whole_numbers(v), v)

    def logical_and(self, a: Residues, b: Residues) -> Residues:
        return plain("bool", whole_numbers(a) & whole_numbers(b), a, b)

    def logical_or(self, a: Residues, b: Residues) -> Residues:
        return plain("bool", whole_numbers(a) | whole_numbers(b), a, b)

    def number(self, v: Residues, kind: Literal["int", "float"]) -> Residues:
        if v.kind == kind:
            return v
        if v.kind == "float":
            return self._guess("truncation", (), [v], "int")
        whole = whole_numbers(v).astype(np.int64)
        if kind == "int":
            return plain("int", whole, v)
        return Residues(v.shape, "float", p=whole % P, q=whole % Q, literal=v.literal)

    def where(self, condition: Residues, a: Residues, b: Residues) -> Residues:
        chosen = whole_numbers(condition)
        found = together([a, b], lambda xs: np.where(chosen, xs[0], xs[1]))
        return replace(found, literal=found.literal and condition.literal)

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
        words = np.full([sizes[letter] for letter in batch], seed_of(name, attributes))
        for position, (v, letters) in enumerate(operands):
            words = mixed(words ^ digest(v, letters, batch, position))
        core = [letter for letter in out if letter not in batch]
        count = count_of(tuple(sizes[letter] for letter in core))
        spread = mixed(words[..., None] ^ mixed(np.arange(count, dtype=np.uint64)))
        arranged = spread.reshape([sizes[letter] for letter in (*batch, *core)])
        return from_words(np.einsum(arranged, *orders((*batch, *core), out)), kind)

    def _guess(self, name: str, attributes: tuple[object, ...], vs: Sequence[Residues], kind: Kind) -> Residues:
        """A fixed random function of the operands, element by element."""
        self.guessed.add(name)
        words = np.full(vs[0].shape, seed_of(name, attributes))
        for v in vs:
            words = mixed(words ^ mixed(words_of(v)))
        return from_words(words, kind)
