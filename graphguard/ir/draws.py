"""Names of random draws: a stream, and a position in it that says how many draws came before, and, as a number made of them, which."""

from __future__ import annotations

import hashlib
from typing import Final

_COUNTED: Final = 1 << 10


def behind(position: int, drawn: object) -> int:
    """The position behind a draw that was made at another one; ``drawn`` is what decides how many numbers it took."""
    return number_of((position, drawn)) * _COUNTED + (ordinal(position) + 1) % _COUNTED


def lying(position: int, order: object) -> int:
    """The position of a draw there into memory that lies in another order than by rows: it gives other numbers at the same places."""
    return number_of((position, order)) * _COUNTED + ordinal(position)


def of_state(state: bytes) -> int:
    """The position of a generator's state up to which nobody is known to have drawn."""
    return number_of(state) * _COUNTED


def ordinal(position: int) -> int:
    """How many draws came before it, if not very many."""
    return position % _COUNTED


def number_of(what: object) -> int:
    """A number of five bytes that is made of what something reads like."""
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:5], "big")
