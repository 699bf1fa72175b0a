"""Whether the ranks' values rebuild the specification's as a promise says, and where not.

A comparison is a pair of tensors that must be equal, with the rank whose tensor it is (none where several ranks rebuild the whole).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from graphguard.confirm.run.elements import UnrunnableError, extents
from graphguard.confirm.run.preludes import Preludes
from graphguard.confirm.run.replay import Values, reduction, run_ranks
from graphguard.ir import Capture, Placement, Promise
from graphguard.ir.capture import Like

_LARGE: Final = 1 << 18  # elements, of what is looked up and of where
_LOOKED_UP: Final = 8
_EVIDENT: Final = 1e-6  # of the largest element


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the promise needs and what the ranks have; ``shaped`` is false where the shapes already differ."""

    expected: torch.Tensor
    found: torch.Tensor
    rank: int | None = None

    @property
    def shaped(self) -> bool:
        """Whether both have one shape."""
        return self.expected.shape == self.found.shape


@dataclass(frozen=True, slots=True)
class Slack:
    """How far apart equal values may lie: rounding noise, measured where it matters.

    ``noise`` is how far the value moves when every operation is disturbed by one part in 10^14; ten times that covers the rounding of
    float64, which is a hundred times smaller.  It is infinite for whole numbers and truths that move: a choice between equals, or between numbers
    that rounding alone tells apart.
    """

    noise: float = 0.0
    strict: bool = False

    def apart(self, expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
        """Where two tensors of one shape differ.

        Where the specification has no number there is nothing to compare.  Where only the ranks have none, or an infinity, the inputs may just be
        too large for float64: that counts on mild inputs (``strict``) only.
        """
        if expected.dtype == torch.bool or not (expected.dtype.is_floating_point or expected.dtype.is_complex):
            return (expected != found) & (self.noise < float("inf"))
        if torch.equal(expected, found):
            return torch.zeros(expected.shape, dtype=torch.bool)
        known = torch.nan_to_num(expected, 0.0, 0.0, 0.0).abs()
        bound = 1e-11 * float(known.max()) + 10 * self.noise + 1e-14 if known.numel() else 0.0
        same = ((expected - found).abs() <= bound) | (expected == found) | expected.isnan()
        if not self.strict:
            same |= ~(expected.isfinite() & found.isfinite())
        return ~same


def comparisons(
    capture: Capture,
    promise: Promise,
    spec: Values,
    ranks: Sequence[Values],
    preludes: Preludes,
    summed: Collection[str],
    *,
    rearranged: bool = True,
) -> list[list[Comparison]]:
    """Alternatives, of which one must hold in all its comparisons; raises :class:`UnrunnableError`.

    ``summed``: the axes along which the ranks' values may be added where any clean relation would do; ``rearranged``: whether its elements may then
    also lie anywhere.
    """
    held = held_values(capture, promise.name, ranks)
    if not held:
        raise UnrunnableError(f"no rank has '{promise.name}'")
    if isinstance(promise.wanted, Like):
        return [list(_like(capture, preludes, promise.name, promise.wanted.leaf, spec, held))]
    expected = promised(capture, promise.name, spec)
    if expected is None:
        raise UnrunnableError(f"the specification has no output '{promise.name}'")
    if isinstance(promise.wanted, dict):
        return [list(_placed(capture, promise.wanted, expected, held))]
    found = [list(alternative) for alternative in _inferred(capture, expected, held, summed)]
    if rearranged or not found:
        found += [list(alternative) for alternative in _rearranged(capture, expected, held, summed)]
    return found


def held_values(capture: Capture, name: str, ranks: Sequence[Values]) -> dict[int, torch.Tensor]:
    """An output on every rank that has it."""
    return {
        rank: values[graph.outputs[name]]
        for rank, (graph, values) in enumerate(zip(capture.ranks, ranks, strict=True))
        if name in graph.outputs
    }


def copied_axes(capture: Capture, held: Mapping[int, torch.Tensor]) -> frozenset[str]:
    """The axes along which all ranks hold one value: a sum of these is a multiple of it, not a whole rebuilt from its parts."""
    return frozenset(axis for axis in capture.mesh if capture.mesh[axis] > 1 and _copied(capture, axis, held))


def _copied(capture: Capture, axis: str, held: Mapping[int, torch.Tensor]) -> bool:
    first: dict[tuple[int, ...], torch.Tensor] = {}
    for rank, value in held.items():
        place = tuple(at for other, at in capture.coordinates(rank).items() if other != axis)
        one = first.setdefault(place, value)
        if one.shape != value.shape or not _same(one, value):
            return False
    return True


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    exact = not (one.dtype.is_floating_point or one.dtype.is_complex)
    return torch.equal(one, other) if exact else torch.allclose(one, other, rtol=1e-10, atol=0.0)


def promised(capture: Capture, name: str, spec: Values) -> torch.Tensor | None:
    """The specification's value of an output, if it has one of that name."""
    assert capture.spec is not None
    var = capture.spec.outputs.get(name)
    return None if var is None else spec[var]


def _like(
    capture: Capture, preludes: Preludes, name: str, tensor: str, spec: Values, held: Mapping[int, torch.Tensor]
) -> Iterator[Comparison]:
    """A rank's gradient of a parameter must be what its prelude makes of the specification's gradients.

    The prelude computes the rank's parameter from leaves; it computes the gradient from the leaves' gradients in the same way.
    """
    joined, parts = preludes.making(tensor, held.keys())
    types = {leaf.name: leaf.type for leaf in capture.leaves}
    before, _, after = name.rpartition(tensor)
    leaves = {}
    for leaf in dict.fromkeys(leaf for part in parts for leaf in part.inputs.values()):
        value = promised(capture, before + leaf + after, spec)
        leaves[leaf] = torch.zeros(extents(types[leaf]), dtype=torch.float64) if value is None else value
    needed = run_ranks(joined, parts, leaves)
    for rank, found in held.items():
        yield Comparison(needed[rank][parts[rank].outputs[tensor]], found, rank)


def _placed(
    capture: Capture, wanted: Mapping[str, Placement], expected: torch.Tensor, held: Mapping[int, torch.Tensor]
) -> Iterator[Comparison]:
    copied = [axis for axis in capture.mesh if wanted.get(axis, Placement("replicate")).kind == "replicate"]
    joined = [axis for axis in wanted if axis not in copied]
    groups: dict[tuple[int, ...], dict[int, torch.Tensor]] = {}
    for rank, value in held.items():
        place = capture.coordinates(rank)
        groups.setdefault(tuple(place[axis] for axis in copied), {})[rank] = value
    for _, ranks in sorted(groups.items()):
        whole = _joined(capture, wanted, joined, ranks)
        yield Comparison(expected, whole, None if joined else next(iter(ranks)))


def _joined(
    capture: Capture, wanted: Mapping[str, Placement], axes: Sequence[str], held: Mapping[int, torch.Tensor]
) -> torch.Tensor:
    """Shards and summands put together, the first axis outermost."""
    if not axes:
        return next(iter(held.values()))
    axis, *rest = axes
    groups: dict[int, dict[int, torch.Tensor]] = {}
    for rank, value in held.items():
        groups.setdefault(capture.coordinates(rank)[axis], {})[rank] = value
    parts = [_joined(capture, wanted, rest, group) for _, group in sorted(groups.items())]
    placement = wanted[axis]
    try:
        return torch.cat(parts, placement.dim) if placement.kind == "shard" else reduction(parts, placement.reduce)
    except (RuntimeError, IndexError) as error:
        # Shapes that do not fit together cannot be the promised layout: an empty tensor compares unequal.
        _ = error
        return torch.empty(0, dtype=parts[0].dtype)


def _inferred(
    capture: Capture, expected: torch.Tensor, held: Mapping[int, torch.Tensor], summed: Collection[str]
) -> Iterator[Iterable[Comparison]]:
    """Every placement over every axis; none where a large mesh of many dims has too many, which are left to the search among elements."""
    kinds: list[list[Placement]] = [
        [
            Placement("replicate"),
            *(Placement("shard", dim) for dim in range(expected.dim())),
            *([Placement("partial")] if axis in summed else []),
        ]
        for axis in capture.mesh
    ]
    if math.prod(map(len, kinds)) <= 256:
        for choice in itertools.product(*kinds):
            yield _placed(capture, dict(zip(capture.mesh, choice, strict=True)), expected, held)


def _rearranged(
    capture: Capture, expected: torch.Tensor, held: Mapping[int, torch.Tensor], summed: Collection[str]
) -> Iterator[Iterable[Comparison]]:
    """For each set of axes: the elements nearest to the needed ones among the ranks' values summed over these axes."""
    for count in range(len(summed) + 1):
        for chosen in itertools.combinations(summed, count):
            pool = _pool(capture, chosen, held)
            if pool is not None and expected.numel() and pool.dtype == expected.dtype:
                yield [Comparison(expected, _nearest(expected, pool))]


def _pool(capture: Capture, summed: Sequence[str], held: Mapping[int, torch.Tensor]) -> torch.Tensor | None:
    groups: dict[tuple[int, ...], list[torch.Tensor]] = {}
    for rank, value in held.items():
        place = capture.coordinates(rank)
        groups.setdefault(tuple(place[axis] for axis in capture.mesh if axis not in summed), []).append(value)
    if any(len({value.shape for value in group}) > 1 for group in groups.values()):
        return None
    parts = [reduction(group, "sum").reshape(-1) for group in groups.values()]
    return torch.cat(parts) if parts and sum(part.numel() for part in parts) else None


def _nearest(expected: torch.Tensor, pool: torch.Tensor) -> torch.Tensor:
    if pool.dtype == torch.bool or pool.dtype.is_complex:
        return (
            torch.full_like(expected, not bool(expected.reshape(-1)[0])) if pool.dtype == torch.bool else expected + 1
        )
    flat = expected.reshape(-1).contiguous()
    foreign = _foreign(flat, pool)
    if foreign is not None:
        return foreign.reshape(expected.shape)
    ordered = pool.sort().values
    above = torch.searchsorted(ordered, flat).clamp(max=len(ordered) - 1)
    below = (above - 1).clamp(min=0)
    lower, upper = ordered[below], ordered[above]
    return torch.where((flat - lower).abs() <= (upper - flat).abs(), lower, upper).reshape(expected.shape)


def _foreign(flat: torch.Tensor, pool: torch.Tensor) -> torch.Tensor | None:
    """Elements that lie apart from what is expected, if one of a few that are looked up is nowhere in the pool: a large pool need not be sorted then."""
    if len(flat) + len(pool) < _LARGE or not flat.dtype.is_floating_point:
        return None
    largest = flat.abs().max()
    places = torch.randint(len(flat), (_LOOKED_UP,), generator=torch.Generator().manual_seed(0))
    for place in places:
        gaps = (pool - flat[place]).abs_()
        if bool(gaps.min() > _EVIDENT * largest):
            found = flat + 2 * largest
            found[place] = pool[gaps.argmin()]
            return found
    return None
