"""Whether a generator of random numbers was seeded by somebody, or by the system: told by its state alone, however long ago it was seeded and by whom.

Python's generator is seeded with the 32-bit words of a number or a text, over and over; with 624 words of the system where nobody seeds it.  Its steps can be taken back,
and so can its seeding (Matsumoto and Nishimura, *Mersenne Twister*, 1998; ``init_by_array`` of their program, which CPython has unchanged): the words are what is left.  Those of numpy keep what they were made of.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

_WORDS: Final = 624
_SHIFTED: Final = 397
_MASK: Final = 0xFFFFFFFF
_TWIST: Final = 0x9908B0DF
# Of so many numbers that were drawn since, 312 a step, the seeding is still found.
_MOST_STEPS: Final = 300
# The longest key of a text of a few hundred letters is a tenth of the state.
_LONGEST_KEY: Final = 200
# What numpy takes from the system, 128 bits, is hardly ever less.
_SYSTEM: Final = 2**96
_NUMBER: Final = re.compile(r"\b0[xX][\da-fA-F_]+\b|\b\d[\d_]{20,}\b")


def is_seeded(generator: Any, state: Any, sources: Iterable[str]) -> bool:
    """Whether somebody seeded a ``random.Random`` that had that state, or one of numpy's bit generators; a long seed of the latter stands in one of the ``sources``."""
    if isinstance(generator, random.Random):
        return _has_short_key(state[1])
    sequence = generator.seed_seq
    entropy = getattr(sequence, "entropy", None)
    if not isinstance(entropy, int) or entropy < _SYSTEM:  # no sequence: seeded in the old way, or set to a state
        return True
    return any(entropy in _long_numbers(text) for text in sources)


@cache
def _long_numbers(text: str) -> frozenset[int]:
    return frozenset(int(word.replace("_", ""), 0) for word in _NUMBER.findall(text))


def _has_short_key(state: Sequence[int]) -> bool:
    words = list(state[:_WORDS])
    for _ in range(_MOST_STEPS):
        if words[0] == 0x80000000 and _is_periodic(_key_of(words)):
            return True
        _step_back(words)
    return False


def _step_back(words: list[int]) -> None:
    """Undo what is done to the state after each 624 numbers; of its first word only the highest bit counts, and the others are what the last one was made of."""
    words[0] |= _untwisted(words[-1] ^ words[_SHIFTED - 1]) & 0x7FFFFFFF
    twisted = _untwisted(words[-1] ^ words[_SHIFTED - 1])
    for i in reversed(range(_WORDS)):
        before = _untwisted(words[i - 1] ^ words[(i + _SHIFTED - 1) % _WORDS])
        words[i] = twisted & 0x80000000 | before & 0x7FFFFFFF
        twisted = before
    words[0] &= 0x80000000


def _untwisted(word: int) -> int:
    return ((word ^ _TWIST) << 1 | 1) & _MASK if word & 0x80000000 else word << 1 & _MASK


def _key_of(words: list[int]) -> list[int]:
    """The words that a state was seeded with, each with its place added, in a row from the third on."""
    mixed = list(words)
    mixed[1] = (words[1] + 1 & _MASK) ^ _mixing(words[-1], 1566083941)
    for i in reversed(range(2, _WORDS)):
        mixed[i] = (words[i] + i & _MASK) ^ _mixing(words[i - 1] if i > 2 else mixed[1], 1566083941)
    start = _start()
    return [mixed[i] - (start[i] ^ _mixing(mixed[i - 1], 1664525)) & _MASK for i in range(3, _WORDS)]


def _mixing(word: int, factor: int) -> int:
    return (word ^ word >> 30) * factor & _MASK


@cache
def _start() -> tuple[int, ...]:
    words = [19650218]
    for i in range(1, _WORDS):
        words.append(((words[-1] ^ words[-1] >> 30) * 1812433253 + i) & _MASK)
    return tuple(words)


def _is_periodic(key: list[int]) -> bool:
    return any(key[length:] == key[:-length] for length in range(1, _LONGEST_KEY))
