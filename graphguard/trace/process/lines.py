"""Output that comes in pieces, passed on in whole lines that say whose they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Lines:
    """Takes pieces of what ``owner`` prints, and tells ``log`` lines such as ``rank 1: loss 0.5``."""

    owner: str
    log: Callable[[str], None]
    _rest: str = ""

    def take(self, text: str) -> None:
        """Pass on the lines that are whole by now."""
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self._tell(line)

    def end(self) -> None:
        """Nothing more comes: what is left is a line."""
        if self._rest:
            self._tell(self._rest)
            self._rest = ""

    def _tell(self, line: str) -> None:
        self.log(f"{self.owner}: {line}\n" if line.strip() else "\n")
