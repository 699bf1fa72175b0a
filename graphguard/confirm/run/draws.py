"""Inputs to try: seeded values for every leaf, within what the program allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import torch

from graphguard.confirm.run.elements import DTYPES, NARROW, UnrunnableError, extents, rounded, stored
from graphguard.confirm.run.ranges import IndexRange
from graphguard.confirm.run.replay import constant_value
from graphguard.ir import Capture, Leaf

Style = Literal[
    "normal",
    "positive",
    "fractions",
    "integers",
    "ones",
    "zeros",
    "sparse",
    "mixed",
    "infinite",
    "undefined",
    "signs",
    "wide",
]


@dataclass(frozen=True, slots=True)
class Draw:
    """How leaves get their values: a seed, a scale, a style for all, and other styles for some."""

    seed: int
    scale: float = 1.0
    style: Style = "normal"
    special: Mapping[str, Style] | None = None

    def style_of(self, leaf: str) -> Style:
        """The style of one leaf."""
        return self.style if self.special is None else self.special.get(leaf, self.style)

    def scale_of(self, leaf: str, index: int) -> float:
        """The scale of one leaf of reals: among mixed ones every third is small beside its neighbours, another third for every seed."""
        small = self.style_of(leaf) == "mixed" and (index - self.seed % 1000) % 3 == 0
        return self.scale * _SMALL if small else self.scale


# Several scales: a saturated tanh hides a wrong operand at one of them, a logarithm wants positive inputs, a clip acts on one side.
DRAWS: Final = (Draw(7), Draw(8, 0.3), Draw(9, 1.0, "positive"), Draw(10, 3.0), Draw(11, 0.03))
# For programs of which a run costs little: halves meet what rounding and comparing do to ties, large numbers what is cut off at a bound before a sum.
FURTHER_DRAWS: Final = (Draw(12, 0.5, "integers"), Draw(13, 10.0), Draw(14, 3.0))
# For programs that choose (experts, signs, bounds): a wrong count shows only where it moves a choice, and a bias on top of scores makes all choices alone
# unless it is small beside them.
MIXED_DRAWS: Final = tuple(Draw(seed, 1.0, "mixed") for seed in range(31, 46))
# For the same programs, so mild that no function makes equal numbers of different ones: what ranks then choose among equals, they always do.
MILD_DRAWS: Final = tuple(Draw(seed, 0.1) for seed in range(46, 50))
# Between zero and one, as probabilities and uniform noise are: of other inputs ``-(-u.log()).log()`` is no number anywhere.
FRACTIONS: Final = Draw(16, style="fractions")
# One position alone holds, is counted or is other than the least: a rank that has none of it divides by what is zero on it alone.
SPARSE: Final = Draw(15, 0.3, "sparse")
# Integers of which nothing is said, of both signs, and all that their type holds: a narrow one wraps round.  A program may be unable to run on them.
SIGNED_DRAWS: Final = (Draw(61, 0.5, "signs"), Draw(62, 1.0, "signs"), Draw(63, 0.5, "wide"), Draw(64, 1.0, "wide"))
# One element of one leaf is infinite, or no number, the first or the last: a rank that asks its own part alone does not see it.
_OVERFLOWS: Final[tuple[tuple[int, Style], ...]] = (
    (51, "infinite"),
    (52, "infinite"),
    (53, "undefined"),
    (54, "undefined"),
)
_OVERFLOWING: Final = 6  # leaves that are tried
# Inputs of no special kind: what is equal on all of them is equal by more than chance, counts of a few things included.
GENERIC: Final = tuple(Draw(seed, 1.0, "positive" if seed % 2 else "normal") for seed in range(21, 29))

Ranges = Mapping[str, IndexRange]
_SMALL: Final = 0.03
_APART: Final = 1_000_003  # seeds of the leaves of one draw and the next
_WIDE: Final = 64  # in a narrower range an edge is met by chance


def leaf_values(capture: Capture, draw: Draw, ranges: Ranges) -> dict[str, torch.Tensor]:
    """A value for every leaf, the same for equal leaves and draws; raises :class:`UnrunnableError`."""
    return {
        leaf.name: leaf_value(leaf, draw, ranges.get(leaf.name, IndexRange()), index)
        for index, leaf in enumerate(capture.leaves)
    }


def leaf_value(leaf: Leaf, draw: Draw, span: IndexRange, index: int) -> torch.Tensor:
    """One leaf's value; ``span`` bounds integers, ``index`` sets leaves of one draw apart."""
    if leaf.value is not None:
        return constant_value(leaf.value)
    if leaf.type.dtype not in DTYPES:
        raise UnrunnableError(f"element type '{leaf.type.dtype}' of '{leaf.name}' has no numbers here")
    shape, dtype, style = extents(leaf.type), stored(leaf.type.dtype), draw.style_of(leaf.name)
    generator = torch.Generator().manual_seed(draw.seed * _APART + index)
    if dtype == torch.bool:
        return _truths(shape, style, generator)
    if not (dtype.is_floating_point or dtype.is_complex):
        value = _integers(shape, style, span, generator, draw.seed).to(dtype)
        return value if leaf.ignored is None else _with_ignored(value, leaf.ignored, style, generator)
    value = _reals(shape, dtype, style, draw.scale_of(leaf.name, index), generator)
    return rounded(value, leaf.type.dtype) if leaf.type.dtype in NARROW else value


def overflow_draws(capture: Capture) -> tuple[Draw, ...]:
    """Draws for a program that asks whether its numbers are finite: leaf by leaf one element that is not."""
    reals = [
        leaf.name for leaf in capture.leaves if leaf.value is None and leaf.type.dtype.startswith(("float", "bfloat"))
    ]
    return tuple(Draw(seed, special={name: style}) for name in reals[:_OVERFLOWING] for seed, style in _OVERFLOWS)


def is_sparse(leaf: Leaf) -> bool:
    """Whether a sparse draw gives a leaf other values than its kind of numbers alone would: truths, integers, targets that may be ignored."""
    return leaf.value is None and not leaf.type.dtype.startswith(("float", "bfloat", "complex"))


def signed_draws(ranges: Ranges) -> tuple[Draw, ...]:
    """Draws for integers of which nobody says what they are."""
    return SIGNED_DRAWS if any(span.free for span in ranges.values()) else ()


def _truths(shape: tuple[int, ...], style: Style, generator: torch.Generator) -> torch.Tensor:
    if style == "sparse":
        return _last_of(torch.zeros(shape, dtype=torch.bool), torch.ones(shape, dtype=torch.bool))
    if style in ("ones", "zeros"):
        return torch.full(shape, style == "ones")
    return torch.rand(shape, generator=generator) < 0.5


def _last_of(others: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """The first tensor with the last element of the second."""
    others.view(-1)[-1:] = last.reshape(-1)[-1:]
    return others


def _integers(
    shape: tuple[int, ...], style: Style, span: IndexRange, generator: torch.Generator, turn: int
) -> torch.Tensor:
    """Integers of a range.  Of a wide one half are edges, those of consecutive turns one after the other, so that all of them are tried."""
    low, high = span.low, span.high
    if style in ("ones", "zeros"):
        return torch.full(shape, min(max(int(style == "ones"), low), high - 1))
    if style == "sparse":
        return _last_of(torch.full(shape, low), torch.full(shape, max(high, low + 1) - 1))
    edges = span.edges if high - low > _WIDE else ()
    if span.free and style in ("signs", "wide"):
        (low, high), edges = (span.signs, ()) if style == "signs" else (span.width, span.beyond)
    value = torch.randint(low, max(high, low + 1), shape, generator=generator)
    if edges:
        count = -(-value.numel() // 2)
        places = torch.randperm(value.numel(), generator=generator)[:count]
        value.view(-1)[places] = torch.tensor(edges)[(turn * count + torch.arange(count)) % len(edges)]
    return value


def _with_ignored(value: torch.Tensor, ignored: int, style: Style, generator: torch.Generator) -> torch.Tensor:
    """The targets, about a third of them ignored."""
    if style in ("ones", "zeros"):
        return value
    if style == "sparse":
        return _last_of(torch.full_like(value, ignored), value)
    return value.masked_fill(torch.rand(value.shape, generator=generator) < 1 / 3, ignored)


def _reals(
    shape: tuple[int, ...], dtype: torch.dtype, style: Style, scale: float, generator: torch.Generator
) -> torch.Tensor:
    if style in ("ones", "zeros"):
        return torch.full(shape, float(style == "ones"), dtype=dtype)
    if style == "integers":
        return torch.randint(-2, 3, shape, generator=generator).to(dtype) * scale
    if style == "fractions":
        return torch.rand(shape, generator=generator, dtype=dtype)
    value = torch.randn(shape, generator=generator, dtype=dtype) * scale
    if style in ("infinite", "undefined") and value.numel():
        value.view(-1)[generator.initial_seed() // _APART % 2 - 1] = math.inf if style == "infinite" else math.nan
    return value.abs() + 0.1 * scale if style == "positive" else value


def elements_of(capture: Capture) -> int:
    """Elements of all leaves together."""
    return sum(math.prod(size for size in leaf.type.shape if isinstance(size, int)) for leaf in capture.leaves)
