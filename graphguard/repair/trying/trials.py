"""Edits of one program, tried on numbers first and by proof then; what numbers refuted once is not tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from graphguard.ir import Capture, Var
from graphguard.ir.fuel import burn
from graphguard.refine.proving.changes import retried
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.alignment import Alignment, align
from graphguard.repair.graph.editing import apply
from graphguard.repair.graph.slices import Site
from graphguard.repair.numbers.point import Changed
from graphguard.repair.numbers.refuting import Refuter
from graphguard.repair.trying.hypotheses import Hypothesis

_EDIT: Final = 2  # steps of making an edit ...
_JOINED: Final = 32  # ... and calls of all programs that are joined again in the time of one


@dataclass(frozen=True, slots=True)
class Repair:
    """A confirmed hypothesis: what it mends, and the program before and after it; ``sites`` and positions are those of the one before.

    ``regains`` are tensors of the specification that the ranks hold again after it: what confirms it where another defect spoils the same promises.
    """

    hypothesis: Hypothesis
    mends: tuple[str, ...]
    before: Capture
    capture: Capture
    proof: Proof
    sites: Mapping[int, Site]
    alternatives: tuple[Hypothesis, ...] = ()
    regains: tuple[Var, ...] = ()


@dataclass(slots=True)
class Trials:
    """What numbers say of the edits of one program.

    ``refuted`` are, by edit, the promises that it does not mend, and the tensors of the specification that it does not give back to the ranks;
    ``doubtful`` says whether an edit that numbers do not refute was not proved; ``seen`` is what was made of edits of a small program.
    """

    capture: Capture
    refuter: Refuter | None
    refuted: dict[str, set[str | Var]] = field(default_factory=dict)
    doubtful: bool = False
    seen: dict[str, tuple[Capture | None, Changed | None]] = field(default_factory=dict)
    _alignment: Alignment | None = None

    @classmethod
    def of(cls, capture: Capture) -> Trials:
        """No edit was tried yet."""
        return cls(capture, Refuter.of(capture))

    @property
    def alignment(self) -> Alignment:
        """Which nodes of the ranks belong together."""
        if self._alignment is None:
            self._alignment = align(self.capture)
        return self._alignment

    def after(self, edited: Capture) -> Trials:
        """No edit was tried yet of what became of the program."""
        return Trials(edited, None if self.refuter is None else self.refuter.after(edited))

    def mending(
        self,
        guess: Hypothesis,
        proof: Proof,
        sites: Mapping[int, Site],
        broken: Sequence[str],
        wanted: Sequence[str],
        fewest: int = 1,
    ) -> Repair | None:
        """What a hypothesis makes of a program; None where it cannot be made, spoils a promise that held, or mends fewer than the ``fewest`` that are wanted."""
        key = repr(guess.edits)
        known = self.refuted.setdefault(key, set())
        left = [name for name in wanted if name not in known]
        edited, changed = self._made(guess, key) if len(left) >= fewest else (None, None)
        if edited is None:
            return None
        if self.refuter is not None and changed is not None:
            known |= self.refuter.refuted(changed, left, fewest)
            left = [name for name in left if name not in known]
        if len(left) < fewest:
            return None
        found = _proved(guess, self.capture, edited, proof, sites, broken, left)
        self.doubtful |= found is None
        return found

    def regaining(
        self, guess: Hypothesis, proof: Proof, sites: Mapping[int, Site], broken: Sequence[str], missing: Sequence[Var]
    ) -> Repair | None:
        """What a hypothesis makes of a program after which the ranks hold a tensor that was missing; None where they do not, and as for :meth:`mending`."""
        key = repr(guess.edits)
        known = self.refuted.setdefault(key, set())
        left = [var for var in missing if var not in known]
        edited, changed = self._made(guess, key) if left else (None, None)
        if edited is None:
            return None
        if self.refuter is not None and changed is not None and not self.refuter.may_hold(changed, left):
            known.update(left)
            return None
        found = _proved(guess, self.capture, edited, proof, sites, broken, ())
        regained = () if found is None else tuple(var for var in missing if holds(found.proof, var))
        self.doubtful |= not regained
        return replace(found, regains=regained) if found is not None and regained else None

    def _made(self, guess: Hypothesis, key: str) -> tuple[Capture | None, Changed | None]:
        """The program after an edit, and what is known of its numbers."""
        if key not in self.seen:
            burn(_EDIT + self.capture.calls // _JOINED)
            edited = made(guess, self.capture)
            changed = self.refuter.point.changed(edited) if self.refuter is not None and edited is not None else None
            if self.refuter is None or not self.refuter.point.small:
                return edited, changed
            self.seen[key] = edited, changed
        return self.seen[key]


def holds(proof: Proof, var: Var) -> bool:
    """Whether the ranks hold a tensor of the specification whole or in parts, and not only summands of it."""
    relation = proof.relation(var)
    return relation is not None and all(place.kind != "partial" for place in (relation.placements or {}).values())


def made(guess: Hypothesis, capture: Capture) -> Capture | None:
    """The program after an edit; None where a rank lacks the position, so that the edit does not exist there."""
    edited = capture
    try:
        for edit in guess.edits:
            edited = apply(edit, edited)
    except (KeyError, IndexError):
        return None
    return edited


def _proved(
    guess: Hypothesis,
    capture: Capture,
    edited: Capture,
    proof: Proof,
    sites: Mapping[int, Site],
    broken: Sequence[str],
    wanted: Sequence[str],
) -> Repair | None:
    again = retried(proof, edited, wanted)
    if again is None:
        return None
    mends = tuple(name for name in broken if name not in again.failing)
    return Repair(guess, mends, capture, edited, again, sites)
