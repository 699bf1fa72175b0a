"""Giving up a proof that nobody waits for any more: it ends at its next step as if its time were up, and what it found is thrown away."""

from __future__ import annotations


class InterruptedProofError(Exception):
    """The proof was given up."""


class Interruption:
    """Whether the proof that this process works on is to be given up; set from another thread."""

    __slots__ = ("wanted",)

    def __init__(self) -> None:
        self.wanted = False

    def check(self) -> None:
        """Raise ``InterruptedProofError`` where what was just computed may have been cut short."""
        if self.wanted:
            raise InterruptedProofError


INTERRUPTION = Interruption()
