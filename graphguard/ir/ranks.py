"""Ranks in words: which they are, and how many of them were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_RUN: Final = 5  # so many ranks at one distance are a range
_MOST: Final = 8  # numbers and ranges that are shown


def ranks_text(ranks: Sequence[int], last: str = ", ") -> str:
    """``rank 3``, ``ranks 0, 2``, ``ranks 0 to 511``, ``ranks 0, 8 to 504`` for every eighth; before the ``last`` stands another word where one is given.

    Ranks keep their order; where they are in no order that a few ranges tell, the first are shown and how many there are.
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    parts: list[str] = []
    at = 0
    while at < len(ranks):
        step = ranks[at + 1] - ranks[at] if at + 1 < len(ranks) else 0
        end = at + 1
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if step > 0 and end - at >= _RUN:
            parts.append(
                f"{ranks[at]} to {ranks[end - 1]}" if step == 1 else f"{ranks[at]}, {ranks[at + 1]} to {ranks[end - 1]}"
            )
            at = end
        else:
            parts.append(str(ranks[at]))
            at += 1
    if len(parts) > _MOST:
        return f"ranks {', '.join(parts[:_MOST])}, ... ({len(ranks)} ranks)"
    return f"ranks {', '.join(parts[:-1])}{last}{parts[-1]}" if len(parts) > 1 else f"ranks {parts[0]}"


def some_recorded(recorded: int, ranks: int) -> str:
    """So many ranks were recorded, of so many."""
    return f"{recorded} of {ranks} ranks recorded; the others run the same programs with literals that are functions of their coordinates"
