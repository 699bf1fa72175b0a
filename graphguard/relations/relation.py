"""Relation terms: how a tensor of the specification is built from the ranks' tensors, as data and as text.

Only clean operations occur: a rank's tensor, slices and concatenations of them, equal copies, sums of partial values, and a named factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from graphguard.ir import Placement

REPLICATE: Final = "Replicate"


@dataclass(frozen=True, slots=True)
class Held:
    """A rank's tensor."""

    name: str
    rank: int

    def __str__(self) -> str:
        return f"{self.name}@{self.rank}"


@dataclass(frozen=True, slots=True)
class Sliced:
    """A box of a rank's tensor: per dim a half-open range, None for all of it."""

    of: Held
    ranges: tuple[tuple[int, int] | None, ...]

    def __str__(self) -> str:
        shown = ", ".join(":" if pair is None else f"{pair[0]}:{pair[1]}" for pair in self.ranges)
        return f"{self.of}[{shown}]"


@dataclass(frozen=True, slots=True)
class Same:
    """Copies: every part is the whole."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " = ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Concat:
    """Shards in order along a dim."""

    parts: tuple[Expression, ...]
    dim: int

    def __str__(self) -> str:
        return f"concat({', '.join(map(_bare, self.parts))}; dim={self.dim})"


@dataclass(frozen=True, slots=True)
class Sum:
    """Partial values; ``reduce`` other than sum names how they combine."""

    parts: tuple[Expression, ...]
    reduce: str = "sum"

    def __str__(self) -> str:
        return f"{self.reduce}({', '.join(map(_bare, self.parts))})"


Expression: TypeAlias = "Held | Sliced | Same | Concat | Sum"


def _bare(part: Expression) -> str:
    """A part inside a function's parentheses."""
    return f"({part})" if isinstance(part, Same) else str(part)


def held(expression: Expression) -> Iterator[Held]:
    """Every rank's tensor in an expression."""
    if isinstance(expression, Held):
        yield expression
    elif isinstance(expression, Sliced):
        yield expression.of
    else:
        for part in expression.parts:
            yield from held(part)


@dataclass(frozen=True, slots=True)
class Relation:
    """``target = factor * expression``; ``placements`` say it per mesh axis where they can.

    The text is the expression, or for more than eight tensors the placements: ``h: Shard(2) over tp``.
    """

    target: str
    expression: Expression
    placements: dict[str, Placement] | None = None
    factor: Fraction = Fraction(1)

    def __str__(self) -> str:
        tensors = list(held(self.expression))
        if len(tensors) > 8 and self.placements is not None:
            text = f"{tensors[0].name}: {placed(self.placements)}"
        else:
            text = str(self.expression)
        return text if self.factor == 1 else f"{self.factor} * ({text})"


def placed(placements: Mapping[str, Placement]) -> str:
    """Placements in DTensor's words; axes over which a tensor is the same everywhere are left out."""
    words = {"shard": lambda place: f"Shard({place.dim})", "partial": lambda place: f"Partial({place.reduce})"}
    shown = [
        f"{words[place.kind](place)} over {axis}" for axis, place in placements.items() if place.kind != "replicate"
    ]
    return ", ".join(shown) or REPLICATE
