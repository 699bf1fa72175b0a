"""Functions of selected elements: what is computed of ``table[index]``, element by element, is selected from what is computed of the table.

``sum over v of onehot(index)[j, v] * t[v]``, over all that the index can be, is one element of t for every j; so a function of it is
``sum over v of onehot(index)[j, v] * f(t[v])``, and programs that compute before they select meet those that select first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from graphguard.relations.rewrite.rule import rule
from graphguard.relations.sums.linear import reopened, times
from graphguard.relations.sums.products import Product
from graphguard.relations.terms.kernels import Factor, Ref, Terms, Universe
from graphguard.relations.terms.permutations import known_range
from graphguard.relations.terms.windows import refine, repeat

Act: TypeAlias = "Callable[[list[Terms], tuple[int, ...]], Terms]"


@dataclass(frozen=True, slots=True)
class _Selection:
    """``hot`` selects from ``table``, both over the extents and a last dim of ``extent`` places."""

    hot: Ref
    table: Terms
    extent: int


def selects(universe: Universe, terms: Terms) -> bool:
    """Whether terms are what one index selects from a table."""
    return _selection(universe, terms) is not None


@rule(
    "selected elements",
    "permutations",
    "`f(t[i])` = `f(t)[i]`",
    "`t[ids].softmax(-1)` = `t.softmax(-1)[ids]`",
    "acted",
)
def acted(universe: Universe, rows: list[Terms], extents: tuple[int, ...], act: Act) -> Terms:
    """A function of the elements of rows, worked out of what they are selected from where one index selects all of them that are selected."""
    found = [_selection(universe, terms) for terms in rows]
    chosen = [one for one in found if one is not None]
    if not chosen or any(one.hot != chosen[0].hot for one in chosen):
        return act(rows, extents)
    wide = (*extents, chosen[0].extent)
    before = [
        one.table if one is not None else tuple((c, _repeated(ref, chosen[0].extent)) for c, ref in terms)
        for one, terms in zip(found, rows, strict=True)
    ]
    return times(universe, ((1, chosen[0].hot),), acted(universe, before, wide, act), wide, (len(extents),))


def _repeated(ref: Ref, extent: int) -> Ref:
    return (ref[0], ref[1], (*ref[2], repeat(extent)), ref[3])


def _selection(universe: Universe, terms: Terms) -> _Selection | None:
    """Terms as what an index selects from a table; None where they are no selection or several."""
    if len(terms) != 1:
        return None
    coefficient, ref = terms[0]
    kernel = ref[0]
    if kernel.kind != "product" or not kernel.reduced or kernel.infinite:
        return None
    hots = [factor for factor in kernel.factors if factor[0].kind == "onehot"]
    if len(hots) != 1:
        return None
    label = _column(ref, hots[0])
    if label is None:
        return None
    rest = [factor for factor in kernel.factors if factor is not hots[0]]
    extent = ref[3][label - len(kernel.shape)][1] - ref[3][label - len(kernel.shape)][0]
    _, hot = _with_column(universe, ref, hots, label, {label})
    factor, table = _with_column(universe, ref, rest, label, None)
    if table[0].kind == "one":
        return None
    return _Selection(hot, reopened(universe, coefficient * factor, table), extent)


def _column(ref: Ref, hot: Factor) -> int | None:
    """The summed label that counts the columns of a one-hot, all that its index can be, and nothing else of it."""
    kernel, power, _, offsets, steps = hot
    free, column = len(ref[0].shape), len(kernel.shape) - 1
    across = [(label, stride) for axis, label, stride in steps if axis == column]
    if power != 1 or len(across) != 1 or across[0][1] != 1 or across[0][0] < free:
        return None
    label = across[0][0]
    if any(one >= free for axis, one, _ in steps if axis != column):
        return None
    window = ref[3][label - free]
    low, high = offsets[column] + window[0], offsets[column] + window[1]
    known = known_range(kernel.factors[0][0])
    return label if known is not None and low <= known[0] and known[1] <= high else None


def _with_column(
    universe: Universe, ref: Ref, factors: list[Factor], label: int, only: set[int] | None
) -> tuple[int, Ref]:
    """Factors of the product that a reference looks at, the label of the columns as a last dim; of others all but the ``only`` ones are summed."""
    sizes, dims, used = refine([ref], ())
    free = len(ref[0].shape)
    product = Product(universe, sizes, dims, set())
    digit = len(sizes) + sum(1 for other in range(free, label) if only is None or other in only)
    product.include(factors, free, 1, ref[3], list(ref[1]), used[0], only=only)
    product.reduced.discard(digit)
    product.dims = [*dims, [digit]]
    return product.finish()  # type: ignore[return-value]
