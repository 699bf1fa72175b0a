"""One-dimensional convolutions as sums of shifted products.

out[n, o, y] = sum_k sum_c weight[o, c, k] padded[n, c, y stride + k dilation].  Every shift is a slice, so a sequence that is cut over ranks, with the neighbours'
border joined on, gives slices of the same products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from graphguard.relations.algebra import Algebra, V
from graphguard.rules.basis.index_maps import cut, join
from graphguard.rules.positions.layout import constant_pad, dropped, inserted, replaced

#: Longer kernels are contracted with the places of their windows instead.
LONGEST: Final = 8


@dataclass(frozen=True, slots=True)
class Shifts:
    """Where the windows of a one-dimensional convolution lie; ``big`` is the extent they slide over, ``small`` how many there are."""

    groups: int
    kernel: int
    big: int
    small: int
    stride: int
    padding: int
    dilation: int

    def forward(self, a: Algebra[V], x: V, weight: V) -> V:
        """The convolution of (N, C, L) by (O, C / groups, K)."""
        weight = self._split(a, weight, 0)
        terms = [
            a.contract([(v, "ngcy"), (self._tap(a, weight, k), "goc")], "ngoy")
            for k, v in enumerate(self._shifted(a, x))
        ]
        return self._join(a, _total(a, terms), 1)

    def gradient_of_weight(self, a: Algebra[V], gradient: V, x: V) -> V:
        """For every place of the kernel, the gradient times the input shifted to it."""
        split = self._split(a, gradient, 1)
        taps = [inserted(a, a.contract([(split, "ngoy"), (v, "ngcy")], "goc"), 3) for v in self._shifted(a, x)]
        return self._join(a, join(a, taps, 3), 0)

    def gradient_of_input(self, a: Algebra[V], gradient: V, weight: V) -> V:
        """The sum over places of the kernel of gradient times weight, put back to where it was read."""
        split, weight = self._split(a, gradient, 1), self._split(a, weight, 0)
        terms = [
            self._put_back(a, a.contract([(split, "ngoy"), (self._tap(a, weight, k), "goc")], "ngcy"), k)
            for k in range(self.kernel)
        ]
        return self._join(a, _total(a, terms), 1)

    def _shifted(self, a: Algebra[V], x: V) -> list[V]:
        v = constant_pad(a, self._split(a, x, 1), 3, self.padding, self._reach - self.big - self.padding, 0)
        return [cut(a, v, 3, *self._span(k)) for k in range(self.kernel)]

    def _put_back(self, a: Algebra[V], v: V, place: int) -> V:
        whole = a.full((*v.shape[:3], self._reach), Fraction(0), "float")
        whole = replaced(a, whole, v, 3, *self._span(place))
        return constant_pad(a, whole, 3, -self.padding, self.big + self.padding - self._reach, 0)

    @property
    def _reach(self) -> int:
        """Extent of the padded input that windows touch."""
        return (self.small - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    def _span(self, place: int) -> tuple[int, int, int]:
        start = place * self.dilation
        return start, start + (self.small - 1) * self.stride + 1, self.stride

    def _tap(self, a: Algebra[V], weight: V, place: int) -> V:
        return dropped(a, a.slice(weight, 3, place, place + 1), 3)

    def _split(self, a: Algebra[V], v: V, dim: int) -> V:
        return a.reshape(v, (*v.shape[:dim], self.groups, v.shape[dim] // self.groups, *v.shape[dim + 1 :]))

    def _join(self, a: Algebra[V], v: V, dim: int) -> V:
        return a.reshape(v, (*v.shape[:dim], v.shape[dim] * v.shape[dim + 1], *v.shape[dim + 2 :]))


def _total(a: Algebra[V], terms: Sequence[V]) -> V:
    return terms[0] if len(terms) == 1 else a.add(terms)
