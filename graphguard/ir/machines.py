"""The machines that ranks are spread over: one, as they are recorded, or several, as they are recorded once more where a program asks."""

from __future__ import annotations

from typing import Final

#: What is assumed of a check that asks, and was recorded as on one machine alone, begins with this.
ONE_MACHINE: Final = "all ranks are on one machine: "


def several(ranks: int) -> int:
    """Over how many machines so many ranks can be spread evenly, the fewest; 1 for one rank."""
    return next((machines for machines in range(2, ranks + 1) if ranks % machines == 0), 1)
