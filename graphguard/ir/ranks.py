"""What a verdict rests on where not every rank was recorded."""

from __future__ import annotations


def some_recorded(recorded: int, ranks: int) -> str:
    """So many ranks were recorded, of so many."""
    return f"{recorded} of {ranks} ranks recorded; the others run the same programs with literals that are functions of their coordinates"
