"""Terms of tensors that are one index thick: what holds at all places is written down at the one that is looked at.

One new token has one position, which a program may know as a number (``torch.arange(7, 8)``, ``cos(7)``) where the specification has a function of all
positions.  The normal form of the specification's tensor does not show that it is this number there: kernels are built over all places.  Here a kernel is followed to
the coordinates that do not move, and rebuilt from the same constructions; the others stay whole, sums over them included.  A thin neighbour of a tensor continues it if
it is what the tensor's own terms are one index further on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor, isfinite, trunc
from typing import Any, Final

from graphguard.relations.algebra import Unsupported
from graphguard.relations.functions.exponentials import exponential, logarithm
from graphguard.relations.functions.functions import applied
from graphguard.relations.functions.piecewise import difference
from graphguard.relations.prove.views import View, in_runs, mask_along, positional, runs, where_held
from graphguard.relations.rewrite.rule import rule
from graphguard.relations.simplify.triangles import without_implied
from graphguard.relations.sums.linear import constant, exact, normalise, powered, reopened, scaled, summed_over, times
from graphguard.relations.sums.products import Product
from graphguard.relations.terms.kernels import Budget, Factor, Kernel, Number, Ref, Term, Terms, Universe, Window
from graphguard.relations.terms.values import NormalValue, Piece, cut, extents_of, merged
from graphguard.relations.terms.windows import joined, refine

_PIECES: Final = 16  # of a value that is put together
_STEPS: Final = 20_000  # constructions for one comparison
_TRUTHS: Final = frozenset(("gt0", "ge0", "eq0"))
_EXACT: Final[dict[str, Callable[[Fraction], int | Fraction]]] = {
    "floor": floor,
    "ceil": ceil,
    "trunc": trunc,
    "abs": abs,
}


def equal_where_thin(universe: Universe, a: NormalValue, b: NormalValue) -> bool:
    """Whether two values are equal where the pieces in which they differ are written down at the places that do not move."""
    if a.shape != b.shape or a.kind != b.kind:
        return False
    specifying = universe.specifying
    try:
        return all(_vanish(universe, terms, extents_of(box)) for box, terms in difference(universe, a, b).pieces)
    except Unsupported:
        return False
    finally:
        universe.specifying = specifying


def _vanish(universe: Universe, terms: Terms, extents: tuple[int, ...]) -> bool:
    """Whether terms add to nothing: the specification's are written down first, so that the ranks' may be seen to be windows onto them."""
    specified = tuple(term for term in terms if term[1][0].specified)
    others = tuple(term for term in terms if not term[1][0].specified)
    universe.specifying = True
    found = [*_Places(universe).written(specified, extents)]
    universe.specifying = False
    found += _Places(universe, anew=True).written(others, extents)
    if not normalise(universe, found, extents):
        return True
    if any(map(_stands, specified)) and _vanish_anew(universe, specified, others, extents):
        return True
    if not any(in_runs(universe, ref[0]) for _, ref in terms):
        return False
    return _vanish_in_runs(universe, specified, others, extents)


def _stands(term: Term) -> bool:
    """Whether a product is looked at where one of its axes does not move: two of its factors may be one there, and a symmetric one has two spellings."""
    kernel, _, dims, _ = term[1]
    moving = {axis for digits in dims for axis, _, _ in digits if axis >= 0}
    return kernel.kind == "product" and len(moving) < len(kernel.shape)


def _vanish_anew(universe: Universe, specified: Terms, others: Terms, extents: tuple[int, ...]) -> bool:
    """The same where the specification's terms are put together anew as well."""
    universe.specifying = True
    found = [*_Places(universe, anew=True).written(specified, extents)]
    universe.specifying = False
    found += _Places(universe, anew=True).written(others, extents)
    return not normalise(universe, found, extents)


def _vanish_in_runs(universe: Universe, specified: Terms, others: Terms, extents: tuple[int, ...]) -> bool:
    """The same where sums over several runs of one axis are written down run by run, and all of them added up at once: there are several ways to join some of them."""
    universe.specifying = True
    found = _Places(universe, anew=True, parted=True).apart(specified, extents)
    universe.specifying = False
    found += _Places(universe, anew=True, parted=True).apart(others, extents)
    left = normalise(universe, found, extents)
    return not left or not normalise(universe, [without_implied(universe, term, extents) for term in left], extents)


def written_at_places(universe: Universe, value: NormalValue, anew: bool = False) -> NormalValue:
    """The same value, every piece written down at the coordinates that do not move in it, or ``anew`` in all its parts."""
    places = _Places(universe, anew)
    pieces = [(box, places.written(terms, extents_of(box))) for box, terms in value.pieces]
    return NormalValue(value.shape, value.kind, pieces, value.grid)


@rule(
    "thin parts",
    "layout",
    "parts of one index, put together, are the window that they make",
    "`torch.cat([x[:1] @ w, x[1:2] @ w])` = `x[:2] @ w`",
    "value",
)
def continued(universe: Universe, value: NormalValue) -> NormalValue:
    """The value in fewer pieces, where a piece that is one index thick is what its neighbour is one index further on."""
    pieces = value.pieces
    if not 1 < len(pieces) <= _PIECES or not any(positional(universe, r[0]) for _, terms in pieces for _, r in terms):
        return value
    try:
        for cell in range(len(pieces[0][0])):
            pieces = _continued(_Places(universe), pieces, cell)
    except Unsupported:
        return value
    if len(pieces) == len(value.pieces):
        return value
    return NormalValue(value.shape, value.kind, merged(pieces), value.grid)


def _continued(places: _Places, pieces: list[Piece], cell: int) -> list[Piece]:
    """The pieces, thin ones along a cell joined with what stands before them."""
    out: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece[0][cell]):
        for index, before in enumerate(out):
            joint = _joint(places, before, piece, cell)
            if joint is not None:
                out[index] = joint
                break
        else:
            out.append(piece)
    return out


def _joint(places: _Places, before: Piece, thin: Piece, cell: int) -> Piece | None:
    """Both pieces as one, if the second is one index thick and continues the first, which is thicker."""
    (box, terms), (other_box, other) = before, thin
    low, high = box[cell]
    neighbours = other_box == (*box[:cell], (high, high + 1), *box[cell + 1 :])
    if not neighbours or high - low == 1 or len(terms) != len(other):
        return None
    longer = _longer(terms, cell)
    if not longer:
        return None
    joint: Piece = ((*box[:cell], (low, high + 1), *box[cell + 1 :]), longer)
    rest: list[Term] = [(-c, ref) for c, ref in other]
    for _, last in cut(joint, cell, high, high + 1):
        rest += last
    extents = extents_of(other_box)
    return None if places.written(normalise(places.universe, rest, extents), extents) else joint


def _longer(terms: Terms, dim: int) -> Terms:
    """The terms over one more index of a dim; none where a kernel does not have it."""
    out: list[Term] = []
    for coefficient, (kernel, offsets, dims, window) in terms:
        if len(dims[dim]) != 1:
            return ()
        ((axis, stride, size),) = dims[dim]
        further = (*dims[:dim], ((axis, stride, size + 1),), *dims[dim + 1 :])
        if axis >= 0 and kernel.kind != "iota":
            steps = [step * (count - 1) for digits in further for at, step, count in digits if at == axis]
            lowest = offsets[axis] + sum(min(0, step) for step in steps)
            highest = offsets[axis] + sum(max(0, step) for step in steps)
            if not 0 <= lowest <= highest < kernel.shape[axis]:
                return ()
        out.append((coefficient, (kernel, offsets, further, window)))
    return tuple(out)


class _Places:
    """Kernels written down where some of their axes do not move, or ``anew`` wherever they are looked at; gives up after a number of steps."""

    def __init__(self, universe: Universe, anew: bool = False, parted: bool = False) -> None:
        self.universe = universe
        self.anew = anew
        self.parted = parted  # sums over several runs of one axis are written down run by run
        self.limit = universe.steps + _STEPS

    def written(self, terms: Terms, extents: tuple[int, ...]) -> Terms:
        """Terms over a box of these extents, written down at the coordinates that do not move."""
        return normalise(self.universe, self.apart(terms, extents), extents)

    def apart(self, terms: Terms, extents: tuple[int, ...]) -> list[Term]:
        """The same, not yet added up."""
        return [term for coefficient, ref in terms for term in self._looked_at(coefficient, ref, extents)]

    def _looked_at(self, coefficient: Number, ref: Ref, extents: tuple[int, ...]) -> Terms:
        """What a reference looks at, as terms over a box of these extents."""
        sizes, dims, (steps,) = refine([ref], extents)
        out: list[Term] = []
        for number, (kernel, offsets, digits, window) in self._seen(
            ref[0], ref[3], View(ref[1], tuple(steps), tuple(sizes))
        ):
            regrouped = tuple([joined([one for digit in group for one in digits[digit]]) for group in dims])
            out.append((coefficient * number, (kernel, offsets, regrouped, window)))
        return tuple(out)

    def _seen(self, kernel: Kernel, window: Window, view: View) -> Terms:
        """A kernel as it is seen, with one dim for every digit."""
        universe = self.universe
        key = ("seen", kernel.id, window, view, self.anew, self.parted)
        known: Any = universe.memo.get(key)
        if known is None:
            universe.step()
            if universe.steps > self.limit:
                raise Budget("too many parts to write down at their places")
            known = universe.memo[key] = self._written_down(kernel, window, view)
        return known  # type: ignore[no-any-return]

    def _written_down(self, kernel: Kernel, window: Window, view: View) -> Terms:
        moving = {axis for axis, _, _ in view.steps}
        found: Terms | None = None
        if self.anew or (len(moving) < len(kernel.shape) and positional(self.universe, kernel)):
            match kernel.kind:
                case "iota" if not moving:
                    found = constant(self.universe, view.origins[0], view.sizes)
                case "literal" if not moving:
                    found = self._element(kernel, view)
                case "product":
                    found = self._product(kernel, window, view)
                case "sum":
                    rows = [(factor[1], self._looked_through(factor, view)) for factor in kernel.factors]
                    found = normalise(self.universe, [(n * c, ref) for n, row in rows for c, ref in row], view.sizes)
                case "function":
                    found = self._function(kernel, view)
        return self._as_it_is(kernel, window, view) if found is None else found

    def _as_it_is(self, kernel: Kernel, window: Window, view: View) -> Terms:
        product = Product(self.universe, list(view.sizes), [[digit] for digit in range(len(view.sizes))], set())
        product.push(kernel, 1, window, list(view.origins), list(view.steps))
        return reopened(self.universe, *product.finish())

    def _part(self, factor: Factor, view: View) -> Terms:
        terms = self._looked_through(factor, view)
        return normalise(self.universe, list(terms), view.sizes) if self.parted else terms

    def _looked_through(self, factor: Factor, view: View) -> Terms:
        """What is seen of a factor; of a sum over several runs, the sums over each of them."""
        return self._seen(factor[0], factor[2], view.of(factor))

    def _element(self, kernel: Kernel, view: View) -> Terms | None:
        for known, data in self.universe.tables:
            if known is kernel:
                value = data[view.origins].item()
                return constant(self.universe, exact(value), view.sizes) if isfinite(value) else None
        return None

    def _product(self, kernel: Kernel, window: Window, view: View) -> Terms:
        """The product of the factors as they are seen, summed over the window, whose labels are digits after the others."""
        spans, factors = list(window), []
        for factor in kernel.factors:
            place, held = mask_along(factor, view.wider(spans), len(view.sizes))
            if place is None:
                factors.append(factor)
            elif not held:
                return ()
            else:  # a mask along one reduced label: the sum is over the part where it holds
                low = spans[place][0]
                spans[place] = (low + held[0], low + held[-1] + 1)
        if not self.parted:
            return self._summed(factors, spans, view)
        windows = [where_held(factors, run, view) for run in runs(factors, spans, len(kernel.shape))]
        return tuple([term for run in windows if run is not None for term in self._summed(factors, run, view)])

    def _summed(self, factors: Sequence[Factor], window: Sequence[tuple[int, int]], view: View) -> Terms:
        universe, wider = self.universe, view.wider(window)
        total = constant(universe, 1, wider.sizes)
        for factor in factors:
            value = self._part(factor, wider)
            if factor[1] != 1:
                value = powered(universe, value, factor[1], wider.sizes)
            total = times(universe, total, value, wider.sizes)
        summed = tuple(range(len(view.sizes), len(wider.sizes)))
        return summed_over(universe, total, wider.sizes, summed) if summed else total

    def _function(self, kernel: Kernel, view: View) -> Terms | None:
        universe, sizes = self.universe, view.sizes
        factor = kernel.factors[0]
        argument = scaled(universe, self._part(factor, view), factor[1], sizes)
        if kernel.name == "exp":
            return exponential(universe, argument, sizes)
        if kernel.name == "log":
            return logarithm(universe, argument, sizes)
        if all(ref[0].kind == "one" for _, ref in argument):
            value = Fraction(sum(coefficient for coefficient, _ in argument))
            if kernel.name in _TRUTHS:
                holds = {"gt0": value > 0, "ge0": value >= 0, "eq0": value == 0}[kernel.name]
                return constant(universe, int(holds), sizes)
            if kernel.name in _EXACT and not kernel.attributes:
                return constant(universe, _EXACT[kernel.name](value), sizes)
        if kernel.name in _TRUTHS:
            return None
        return applied(universe, kernel.name, kernel.attributes, [argument], kernel.type, sizes)
