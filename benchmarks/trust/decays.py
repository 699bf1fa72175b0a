"""Exponentials of positions in random programs: weights that fade over a dim, and what is carried on along it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from graphguard.rules.elements.elementwise import pow_base

if TYPE_CHECKING:
    from benchmarks.trust.fuzz import Program

Made = tuple[Callable[..., Any], list[int]] | None
_BASES = (0.9, 0.5, 0.96875, 2.0)


def _index(a: Any, shape: tuple[int, ...], steps: dict[int, int], start: int) -> Any:
    """``start`` plus a whole multiple of the places along each dim."""
    total = [a.full(shape, Fraction(start), "int")]
    for dim, step in steps.items():
        line = a.reshape(a.iota(shape[dim]), tuple(size if d == dim else 1 for d, size in enumerate(shape)))
        total.append(a.scale(a.expand(line, shape), Fraction(step)))
    return a.add(total)


def _grown(a: Any, base: float | Fraction, rate: Any, index: Any) -> Any:
    """A power of a number, or the exponential of a rate, which is a number or a tensor, times an index."""
    if isinstance(base, float):
        return pow_base(a, base, index)
    wide = a.number(index, "float")
    return a.exp(a.scale(wide, base) if rate is None else a.multiply(rate, wide))


def decay(p: Program) -> Made:
    """A tensor times an exponential of an index along one or two of its dims, under a mask or not."""
    i = p.pick()
    shape = p.shape(i)
    dims = p.rng.sample(range(len(shape)), min(len(shape), p.rng.choice((1, 2))))
    steps = {dim: p.rng.choice((-1, 1, 1, 2)) for dim in dims}
    start, base = p.rng.randrange(-3, 4), p.rng.choice((*_BASES, Fraction(1, 4), Fraction(-1, 3)))
    masked, alone, clamped = p.rng.random() < 0.4, p.rng.random() < 0.3, p.rng.random() < 0.2
    tensor = p.rng.random() < 0.4 and not isinstance(base, float)

    def act(a: Any, v: Any) -> Any:
        index = _index(a, shape, steps, start)
        zero = a.full(shape, Fraction(0), "int")
        power = a.maximum(index, zero) if clamped else index
        rate = None
        if tensor:  # one for every line of the dims that the index does not run along
            rate = a.expand(a.reshape(a.max_over(v, dims), [1 if d in dims else s for d, s in enumerate(shape)]), shape)
            rate = a.scale(rate, base)
        grown = _grown(a, base, rate, power)
        weighed = grown if alone else a.multiply(v, grown)
        return (
            a.where(a.compare("le", zero, index), weighed, a.full(shape, Fraction(0), "float")) if masked else weighed
        )

    return act, [i]


def carried(p: Program) -> Made:
    """The sum of a dim's elements, each faded by its distance from the end: at once, or of two parts of which the first fades on."""
    i = p.pick()
    shape = p.shape(i)
    dim = p.rng.choice([dim for dim, size in enumerate(shape) if size > 1])
    size, base = shape[dim], p.rng.choice((*_BASES, Fraction(1, 4), Fraction(-1, 3)))
    place = p.rng.randrange(1, size) if p.rng.random() < 0.6 else size
    late = p.rng.random() < 0.2

    def faded(a: Any, v: Any) -> Any:
        steps = v.shape[dim]
        return a.sum(a.multiply(v, _grown(a, base, None, _index(a, v.shape, {dim: -1}, steps - 1))), [dim])

    def act(a: Any, v: Any) -> Any:
        if place == size:
            return faded(a, v)
        first, second = faded(a, a.slice(v, dim, 0, place)), faded(a, a.slice(v, dim, place, size))
        after = a.full(first.shape, Fraction(size - place - late), "int")
        return a.add([a.multiply(first, _grown(a, base, None, after)), second])

    return act, [i]


DECAYS: dict[str, Callable[[Program], Made]] = {"decay": decay, "carried": carried}
