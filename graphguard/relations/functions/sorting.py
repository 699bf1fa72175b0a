"""Functions of sorted lines: what is computed element by element of rows in another order are the rows of what is computed, in that order.

With ``p`` the positions of a sorted line, a tensor whose rows were taken in that order is ``y[j] = sum over v of onehot(p)[j, v] * x[v]``, and the transpose finds
``x`` again.  So a function of the elements of y is worked out of those of x, and its rows are taken instead: programs that sort their rows in
different ways, or not at all, meet.  The same holds of a product of such tensors, and of its sum over their rows the order is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from graphguard.relations.functions.contraction import product
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.terms.kernels import Factor, Kernel, Ref, Terms, Universe
from graphguard.relations.terms.permutations import permuted
from graphguard.relations.terms.values import NormalValue, single

_LETTERS: Final = "abcdefghijklmnopqrstuvwx"
Operand = tuple[NormalValue, str]


@dataclass(frozen=True, slots=True)
class _Order:
    """The one-hot of the positions ``p`` of a sorted line as a matrix: a row for every place of the line, a column for every place before."""

    hot: NormalValue

    def undone(self, universe: Universe, value: NormalValue, dim: int) -> NormalValue:
        """The rows along a dim in the order they had before."""
        return self._moved(universe, value, dim, "y", "z")

    def done(self, universe: Universe, value: NormalValue, dim: int) -> NormalValue:
        """The rows along a dim in the sorted order."""
        return self._moved(universe, value, dim, "z", "y")

    def _moved(self, universe: Universe, value: NormalValue, dim: int, here: str, there: str) -> NormalValue:
        letters = _LETTERS[: len(value.shape)]
        before, after = (letters[:dim] + letter + letters[dim + 1 :] for letter in (here, there))
        result = product(universe, [(self.hot, "yz"), (value, before)], after)
        return NormalValue(result.shape, value.kind, result.pieces, result.grid)


def elementwise(
    universe: Universe, values: Sequence[NormalValue], act: Callable[[list[NormalValue]], NormalValue]
) -> NormalValue:
    """A function of the elements of values of one shape, which may have dims of its own behind theirs."""
    found = _first(universe, values, range(len(values[0].shape)))
    if found is None:
        return act(list(values))
    kernel, dim = found
    order = _order(kernel)
    before = _before(universe, order, kernel, [(value, dim) for value in values])
    if before is None:
        return act(list(values))
    return order.done(universe, elementwise(universe, before, act), dim)


@rule(
    "sums over rows",
    "permutations",
    "a sum over rows forgets the order of the rows",
    "`relu(x[p]).sum(0)` = `relu(x).sum(0)` for `p = keys.argsort()`",
    "value",
)
def contracted(
    universe: Universe, operands: Sequence[Operand], out: str, act: Callable[[list[Operand], str], NormalValue]
) -> NormalValue:
    """An Einstein summation, worked out by ``act`` of rows that are not sorted."""
    if not universe.orders:
        return act(list(operands), out)
    for letter in dict.fromkeys("".join(letters for _, letters in operands)):
        mine = [(value, letters.index(letter)) for value, letters in operands if letter in letters]
        found = next((hit for value, dim in mine if (hit := _first(universe, [value], [dim])) is not None), None)
        if found is None or len(mine) < 2:
            continue
        order = _order(found[0])
        before = _before(universe, order, found[0], mine)
        if before is None:
            continue
        rows = iter(before)
        fresh = [(next(rows) if letter in letters else value, letters) for value, letters in operands]
        result = contracted(universe, fresh, out, act)
        return order.done(universe, result, out.index(letter)) if letter in out else result
    return act(list(operands), out)


@rule(
    "sorted lines",
    "permutations",
    "the places of a sort are a permutation; its one-hot's transpose is the inverse",
    "`relu(x[p])[p.argsort()]` = `relu(x)` for `p = keys.argsort()`",
    "value",
)
def inverse(universe: Universe, value: NormalValue) -> NormalValue | None:
    """What sorts the positions of a sorted line; None for any other line."""
    if len(value.pieces) != 1 or len(value.shape) != 1 or len(value.pieces[0][1]) != 1:
        return None
    coefficient, (kernel, offsets, dims, _) = value.pieces[0][1][0]
    extent = value.shape[0]
    if coefficient != 1 or kernel not in universe.orders or kernel.shape != (extent,) or any(offsets):
        return None
    if dims != (((0, 1, extent),),):
        return None
    places = single((extent,), "int", ((1, (universe.iota, (0,), (((0, 1, extent),),), ())),))
    hot = universe.one_hot(kernel, tuple((0, size) for size in kernel.reduced))
    result = product(universe, [(_order(hot).hot, "jv"), (places, "j")], "v")
    return NormalValue(result.shape, "int", result.pieces, result.grid)


def _order(kernel: Kernel) -> _Order:
    extent = kernel.shape[0]
    square: Terms = ((1, (kernel, (0, 0), (((0, 1, extent),), ((1, 1, extent),)), ())),)
    return _Order(single((extent, extent), "float", square))


def _before(
    universe: Universe, order: _Order, kernel: Kernel, values: Sequence[tuple[NormalValue, int]]
) -> list[NormalValue] | None:
    """Values before their rows were sorted; None where they depend on the sorted order in another way, too."""
    before = [order.undone(universe, value, dim) for value, dim in values]
    return None if any(_depends(value, kernel) for value in before) else before


def _depends(value: NormalValue, kernel: Kernel) -> bool:
    return any(
        ref[0] is kernel or any(factor[0] is kernel for factor in ref[0].factors)
        for _, terms in value.pieces
        for _, ref in terms
    )


def _first(universe: Universe, values: Sequence[NormalValue], dims: Sequence[int]) -> tuple[Kernel, int] | None:
    """The one-hot of a permutation by which the rows of a value along one of the dims are sorted, and that dim."""
    if not universe.orders or len(values[0].shape) > len(_LETTERS):
        return None
    refs = [(value, ref) for value in values for _, terms in value.pieces for _, ref in terms]
    if any(ref[0].infinite for _, ref in refs):
        return None
    for value, ref in refs:
        for dim in dims:
            kernel = _sorted_by(ref, _cell_of(value, dim)) if len(value.grid[dim]) == 1 else None
            if kernel is not None:
                return kernel, dim
    return None


def _cell_of(value: NormalValue, dim: int) -> int:
    return sum(len(digits) for digits in value.grid[:dim])


def _sorted_by(ref: Ref, cell: int) -> Kernel | None:
    """The one-hot of a permutation whose rows a cell of a reference counts, all of them."""
    if ref[0].kind != "product":
        return None
    for factor in ref[0].factors:
        kernel = factor[0]
        of_line = kernel.kind == "onehot" and len(kernel.shape) == 2 and permuted(kernel.factors[0][0]) is not None
        if of_line and _counts_rows(ref, factor, cell):
            return kernel
    return None


def _counts_rows(ref: Ref, factor: Factor, cell: int) -> bool:
    rows = [(label, stride) for axis, label, stride in factor[4] if axis == 0]
    if len(rows) != 1 or rows[0][1] != 1 or rows[0][0] >= len(ref[1]):
        return False
    label, extent = rows[0][0], factor[0].shape[0]
    return factor[3][0] + ref[1][label] == 0 and ref[2][cell] == ((label, 1, extent),)
