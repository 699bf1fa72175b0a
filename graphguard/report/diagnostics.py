"""What a user gets: verdicts, diagnostics and fixes as plain data, the same for terminal, JSON and editor."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from graphguard.confirm.confirmation import Counterexample
from graphguard.ir.capture import CheckRef
from graphguard.ir.spans import Span

OUT_OF_FUEL = "the proof was given up after as many steps as it may take: it may be found at smaller sizes"
REAL_ARITHMETIC = (
    "real arithmetic: rounding, overflow and the order of additions are left out; what is divided by is not zero, and what a root or a logarithm is taken of is "
    "positive"
)
"""What every proof assumes; anything else in ``Report.assumed`` is particular to its check."""

Severity = Literal["error", "warning", "information", "hint"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "information", "hint")


class Verdict(enum.Enum):
    """Proved, refuted with a counterexample, or neither."""

    REFINES = "refines"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replace the text of ``span`` (empty for an insertion) by ``text``."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A source edit after which the program was traced and proved again (``proved``); ``place`` is the expression that it mends."""

    title: str
    edits: tuple[TextEdit, ...]
    proved: bool
    bytes_moved: int = 0
    place: Span | None = None


@dataclass(frozen=True, slots=True)
class RelatedPlace:
    """A further place of a diagnostic."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding at one place.

    ``rule`` and ``code`` are the slug of the registry; ``message`` begins with a headline that stands alone in its line.
    """

    code: str
    rule: str
    message: str
    severity: Severity
    span: Span | None
    related: tuple[RelatedPlace, ...] = ()
    fixes: tuple[Fix, ...] = ()

    @property
    def headline(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Numbers:
    """How far numbers were run beside the proof: in how many ``runs`` the programs agree or differ, or the ``reason`` why there are none.

    ``reduced``: at smaller sizes than the program's.
    """

    status: Literal["equal", "differs", "not-run"]
    runs: int = 0
    reduced: bool = False
    reason: str = ""

    def __str__(self) -> str:
        if self.status == "not-run":
            return f"not run: {self.reason}"
        sizes = " at reduced sizes" if self.reduced else ""
        word = "agree" if self.status == "equal" else "differ"
        return f"{word} in {self.runs} run{'' if self.runs == 1 else 's'}{sizes}" + (self.reason and f"; {self.reason}")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one check on one mesh.

    ``verdict`` is None where the check could not be run at all (the diagnostics say why).  ``relations`` maps tensors of the specification
    to relations, whose ``str`` is a formula; ``layouts`` says in DTensor's words those that are ones of placements.  ``seconds`` by step; ``operators`` of the specification and of all ranks, and those of both
    that were ``evaluated`` because no proof before this one answered for them.
    ``not_compared`` are results and other traces of the programs of which no relation was looked for.
    ``waived`` are diagnostics that a comment, a baseline or the configuration silences.
    ``numbers`` says how far the verdict was checked on numbers, a proof as well.
    ``audit`` says what every step of the proof came to when it was read again; empty where nobody asked.
    ``proof`` names the proof that the prover keeps for follow-up questions; ``sources`` are the imported files with the digests of their meaning.
    ``depends`` is all that the recording depended on, None where that cannot be compared later.
    """

    check: CheckRef
    mesh: dict[str, int]
    verdict: Verdict | None
    diagnostics: tuple[Diagnostic, ...] = ()
    relations: dict[str, Any] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    counterexample: Counterexample | None = None
    assumed: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    operators: dict[str, int] = field(default_factory=dict)
    cached: bool = False
    waived: tuple[Diagnostic, ...] = ()
    numbers: Numbers | None = None
    audit: str = ""
    proof: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    depends: dict[str, Any] | None = None

    @property
    def particular_assumptions(self) -> tuple[str, ...]:
        """What this verdict rests on beyond what every proof does."""
        return tuple(text for text in self.assumed if text != REAL_ARITHMETIC)
