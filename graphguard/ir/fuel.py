"""Work that is counted: what is given up for want of fuel is given up on every machine alike.

A thread burns fuel as it works: a step for a call that is evaluated, and as many as take about as long for what else it does.  A :class:`Fuel` is a budget:
an amount that may be burnt from now on.  Whatever is burnt counts in every budget that was begun before, so that budgets nest by themselves.  No clock is asked,
so a busy machine, or a slow one, comes to the same answer later.
"""

from __future__ import annotations

import threading
from typing import Final

SECOND: Final = 20_000  # steps that one second was enough for where the limits were set: a unit to write them in
CALL: Final = 1  # an operator, evaluated by its rule
KERNEL: Final = 3  # a construction of the normal form
LOOKS: Final = 1 / 8  # a look at whether one factor is another, for budgets that count those


class _Meter(threading.local):
    burnt: int = 0
    looked: int = 0


_METER: Final = _Meter()


def burn(steps: int) -> None:
    """Count work of this thread that was done, or is about to be: in whole steps, for sums of others depend on what was burnt before."""
    _METER.burnt += steps


def burnt() -> int:
    """All work of this thread so far; only differences say something."""
    return _METER.burnt


def look(times: int) -> None:
    """Count what was looked at in vain, or not, where kernels are matched: proofs are not given up for that, searches may be."""
    _METER.looked += times


def hanging_after(steps: float) -> float:
    """The seconds after which work of so many steps hangs, even on a machine that is slow and busy: a clock ends it then, and decides nothing else."""
    return 60.0 + 30.0 * steps / SECOND


class Fuel:
    """``steps`` of work of the thread that makes this, from now on; ``what`` is done with them.  ``looks``: how many steps one look at a pair of factors counts as."""

    __slots__ = ("_end", "looks", "steps", "what")

    def __init__(self, what: str, steps: float, looks: float = 0.0) -> None:
        self.what = what
        self.steps = steps
        self.looks = looks
        self._end = self._now + steps

    def __str__(self) -> str:
        return f"{self.what} was given up after {self.steps:,.0f} steps"

    @property
    def _now(self) -> float:
        return _METER.burnt + self.looks * _METER.looked if self.looks else _METER.burnt

    @property
    def left(self) -> float:
        """How many steps may still be done."""
        return max(0.0, self._end - self._now)

    @property
    def spent(self) -> bool:
        """Whether there is nothing left."""
        return self._now >= self._end

    def part(self, what: str, steps: float) -> Fuel:
        """A budget inside this one, of which it leaves no more than there is."""
        return Fuel(what, min(steps, self.left), self.looks)
