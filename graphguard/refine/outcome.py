"""What a proof attempt says: plain data that crosses process borders and that diagnosis and reports are made from."""

from __future__ import annotations

import re
from dataclasses import dataclass

SPECIFICATION = -1
#: What stands behind a relation of which some ranks that have the output are no part.
SOMETHING_ELSE = ", and something else on"


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A node of a capture: ``graph`` is a rank, or ``SPECIFICATION``; ``node`` indexes ``Graph.nodes``."""

    graph: int
    node: int


@dataclass(frozen=True, slots=True)
class PromiseOutcome:
    """One promised output: whether the needed relation was proved, and what was found instead.

    ``needed`` is a layout; ``found`` is a relation text, empty where no clean relation exists, and ``layout`` says the same in DTensor's words where they can.
    """

    name: str
    holds: bool
    needed: str
    found: str = ""
    reason: str = ""
    layout: str = ""

    @property
    def told(self) -> str:
        """What was found, as people are told."""
        return self.layout or self.found


def says_partial(text: str) -> bool:
    """Whether a relation's text says that ranks hold partial values: ``sum(y@0, y@1)``, or ``Partial(sum) over tp``."""
    return re.search(r"\b(sum|avg|max|min|product|Partial)\(", text) is not None


OPERAND_UNKNOWN = "its operand is not known"
SENDER_UNKNOWN = "what a member sends is not known"
#: Reasons that only say that another operator stayed closed.
CONSEQUENCES = frozenset((OPERAND_UNKNOWN, SENDER_UNKNOWN))


@dataclass(frozen=True, slots=True)
class Gap:
    """An operator that the engine keeps closed on the way to an unproved output, and why."""

    where: Location
    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a proof attempt on one capture.

    ``specification_frontier``: the specification's first operators without a clean relation, though their operands have one.
    ``implementation_frontier``: the ranks' first operators that are off the relation, though their operands are on it.
    ``cautions``: equal sizes that could mask a bug.
    ``hurried``: the last attempt was given up for want of fuel, of which ``fuel`` was burnt (:mod:`graphguard.ir.fuel`).
    """

    proved: bool
    promises: tuple[PromiseOutcome, ...]
    specification_frontier: tuple[Location, ...] = ()
    implementation_frontier: tuple[Location, ...] = ()
    gaps: tuple[Gap, ...] = ()
    assumed: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    fuel: float = 0.0
    hurried: bool = False

    @property
    def failing(self) -> tuple[str, ...]:
        """The promises that do not hold, in order."""
        return tuple(promise.name for promise in self.promises if not promise.holds)
