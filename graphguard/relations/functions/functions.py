"""Functions of linear combinations that stand for themselves, by name."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from graphguard.relations.algebra import Kind
from graphguard.relations.facts.signs import never_negative
from graphguard.relations.facts.wholes import are_whole
from graphguard.relations.functions.diagonals import by_cases
from graphguard.relations.rewrite.engine import first
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import close, constant, normalise
from graphguard.relations.terms.building import build
from graphguard.relations.terms.infinity import is_infinite
from graphguard.relations.terms.kernels import Number, Ref, Terms, Universe
from graphguard.relations.terms.parts import Part
from graphguard.relations.terms.windows import refine

_EVEN: Final = frozenset(("cos", "abs"))
_ODD: Final = frozenset(("sin", "tanh", "erf", "sign", "tan", "asin", "atan", "sinh"))
_TO_WHOLE: Final = frozenset(("floor", "ceil", "round", "trunc"))
_RELATIVE: Final = frozenset(
    ("float32", "bfloat16", "float16")
)  # types that round by a part of the number, for all numbers of ordinary size

_ROUNDING: Final = frozenset(("cast", "floor", "ceil", "round", "trunc"))


def truth(ref: Ref) -> Ref:
    """The reference, its kernel marked as 0 or 1 everywhere."""
    ref[0].truth = True
    ref[0].type = "bool"
    return ref


def elementwise(universe: Universe, name: str, attributes: tuple[Hashable, ...], factor: Number, ref: Ref) -> Ref:
    """A reference to the function of ``factor`` times what the reference looks at."""
    kernel = universe.function(name, attributes, factor, ref[0], ref[3])
    return (kernel, ref[1], ref[2], ())


def applied(
    universe: Universe,
    name: str,
    attributes: tuple[Hashable, ...],
    rows: list[Terms],
    kind: Kind,
    extents: tuple[int, ...],
) -> Terms:
    """A function known by its name only."""
    if len(rows) == 1:
        return _of_terms(universe, name, attributes, rows[0], kind, extents)
    closed = [close(universe, terms, extents) for terms in rows]
    sizes, dims, used = refine([ref for _, ref in closed], extents)
    parts = [
        Part(ref[0], (position, coefficient), ref[3], list(ref[1]), steps)
        for position, ((coefficient, ref), steps) in enumerate(zip(closed, used, strict=True))
    ]
    result = build(universe, "apply", (name, *attributes), parts, sizes, dims, set())
    result[0].name = name
    result[0].type = kind
    result[0].truth = kind == "bool"
    return ((1, result),)


def _of_terms(
    universe: Universe,
    name: str,
    attributes: tuple[Hashable, ...],
    terms: Terms,
    kind: Kind,
    extents: tuple[int, ...],
) -> Terms:
    """A function of one sum; where products are written out, of what it is on a diagonal and beside it."""
    known = _known(universe, name, terms, extents)
    if known is None and universe.expand > 1:
        known = by_cases(
            universe, terms, extents, lambda case: _of_terms(universe, name, attributes, case, kind, extents)
        )
    return _of_one(universe, name, attributes, terms, kind, extents) if known is None else known


def _known(universe: Universe, name: str, terms: Terms, extents: tuple[int, ...]) -> Terms | None:
    """A function of one sum where it is something else than a function."""
    if name in _TO_WHOLE and are_whole(universe, terms):
        return terms
    if name == "cast" and terms and all(is_infinite(ref) for _, ref in terms):
        return terms  # masks of minus infinity and 0 are the same numbers in every float type
    found: Terms | None = first(universe.rules.functions.get(name, ()), universe, name, terms, extents)
    return found


@rule(
    "symmetry of functions",
    "functions",
    "`sin(-x)` = `-sin(x)`, `cos(-x)` = `cos(x)`, `abs(c x)` = `abs(c) abs(x)`, `sigmoid(-x)` = `1 - sigmoid(x)`, `floor(floor(x))` = `floor(x)`",
    "`torch.sigmoid(-x)` = `1 - torch.sigmoid(x)`",
    "named function",
)
def _of_one(
    universe: Universe,
    name: str,
    attributes: tuple[Hashable, ...],
    terms: Terms,
    kind: Kind,
    extents: tuple[int, ...],
) -> Terms:
    """A function of one sum, which is turned so that its leading term is positive where the function lets it."""
    coefficient, ref = close(universe, terms, extents)
    sign: Number = 1
    if name == "cast" and universe.relative and attributes[0] in _RELATIVE:
        coefficient, sign = 1, coefficient
        if sign == 0:
            return ()
    if coefficient < 0 and name in _EVEN | _ODD:
        coefficient, sign = -coefficient, 1 if name in _EVEN else -1
    if coefficient == 0 and (name in _ODD or name == "abs"):
        return ()
    if name == "abs":
        coefficient, sign = 1, coefficient
        if never_negative(ref[0]):
            return ((sign, ref),)
    if name == "sign":
        coefficient = 1
    if (
        name in _ROUNDING
        and coefficient == 1
        and ref[0].kind == "function"
        and ref[0].name == name
        and ref[0].attributes == attributes
    ):
        return ((sign, ref),)
    falls = name == "sigmoid" and coefficient < 0
    result = elementwise(universe, name, attributes, -coefficient if falls else coefficient, ref)
    result[0].type = kind
    result[0].truth = kind == "bool"
    if falls:  # sigmoid(-t) = 1 - sigmoid(t)
        return normalise(universe, [*constant(universe, 1, extents), (-1, result)], extents)
    return ((sign, result),)


def known_number(terms: Terms) -> Number | None:
    """The number that the terms are, if they are one."""
    if not terms:
        return 0
    return terms[0][0] if len(terms) == 1 and terms[0][1][0].kind == "one" else None
