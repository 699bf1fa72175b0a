"""The log of a proof's rewritings, and its audit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from graphguard.relations.algebra import Unsupported
from graphguard.relations.audit.claims import CLAIMS, MADE_OF_OTHERS, State, roots, state_of
from graphguard.relations.audit.reader import Reader
from graphguard.relations.rewrite.rule import Outcome, Rule
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.parts import Part

_TOLERANCE: Final = 1e-7
_NUDGE: Final = 1e-13  # relative, of the unknowns
_LOST: Final = 1e-12  # of the largest summand: what rounding may leave of a sum
_MOVED: Final = 1e-2  # of a gap between two sides: where nudged unknowns move them as far, rounding explains it
#: What is written down, first nearly nothing, then more: how much of what a rule speaks of (see ``_spoken_of``), and what else, by its elements at one point.
_Way: TypeAlias = tuple[int, int]
_WAYS: Final[tuple[_Way, ...]] = ((0, 16), (1, 16), (2, 16), (3, 16), (3, 1 << 12))
_MOST: Final = 200_000  # steps that are kept


@dataclass(frozen=True, slots=True)
class Step:
    """One application of a rule, as far as it can be read again."""

    rule: Rule[Any, Any]
    given: Any
    made: Any


@dataclass(slots=True)
class Audit:
    """What was found of a log: how many steps of each rule hold, which could not be read again and why, and which are wrong."""

    checked: Counter[str] = field(default_factory=Counter)
    unread: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Audit) -> None:
        """Put two together."""
        self.checked += other.checked
        self.unread += other.unread
        self.wrong += other.wrong


class StepLog:
    """Keeps every step that changes something, each once."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.fired: Counter[str] = Counter()
        self._seen: set[Any] = set()

    def before(self, rule: Rule[Any, Any], arguments: tuple[Any, ...]) -> Any:
        """What the rule was given; a product, which it changes, as it is now."""
        if rule.claim == "product":
            return arguments[0], state_of(arguments[0])
        if rule.claim == "construction":
            _, kind, _, parts, sizes, dims, reduced, *_ = arguments
            state = State(1, tuple(map(Part.copy, parts)), tuple(sizes), tuple(map(tuple, dims)), frozenset(reduced))
            return kind, state
        return tuple(tuple(each) if isinstance(each, list) else each for each in arguments)

    def after(self, rule: Rule[Any, Any], before: Any, result: Any) -> None:
        """What it made of it; nothing is kept where that is what there was."""
        if rule.claim == "product":
            if result is Outcome.SAME:
                return
            product, state = before
            before = (state, state_of(product))
        elif result is None or (rule.claim == "sum" and tuple(before[1]) == tuple(result)):
            return
        self.fired[rule.name] += 1
        if rule.claim in MADE_OF_OTHERS or len(self.steps) >= _MOST:
            return
        if rule.claim == "construction" and before[0] == "place":
            return  # it counts from where its window starts, which who asks for it takes off: that is a claim of its own
        if rule.claim not in ("product", "construction"):
            key = (rule.name, before[1:], result if rule.claim not in ("cases", "cases or none") else None)
            try:
                if key in self._seen:
                    return
                self._seen.add(key)
            except TypeError:  # of lists within lists
                pass
        self.steps.append(Step(rule, before, tuple(result) if isinstance(result, list) else result))


class Auditor:
    """Reads steps again, at points, with other unknowns than any rule saw."""

    def __init__(self, universe: Universe) -> None:
        tables = {kernel.id: data for kernel, data in universe.tables}
        indices = universe.indices
        self._readers = [
            (
                Reader(seed, tables, signed=signed, indices=indices),
                Reader(seed, tables, signed=signed, nudged=_NUDGE, indices=indices),
            )
            for seed, signed in ((11, True), (12, False))
        ]

    def read(self, step: Step) -> tuple[str, str]:
        """Whether a step holds, is wrong, or cannot be read, and why."""
        reasons: list[str] = []
        held = False
        for reader, nudged in self._readers:
            for way in _WAYS:
                found = self._gap(step, reader, way)
                if isinstance(found, str):
                    reasons.append(found)
                elif found <= _TOLERANCE:
                    held = True
                    break
                elif not reader.guessed:
                    lost = _LOST * reader.reached
                    if found > lost and found * _MOVED > self._moves(step, reader, nudged, way):
                        return "wrong", f"both sides differ by {found:.3g}"
                    reasons.append("numbers of which rounding leaves too few digits")
                else:
                    reasons.append("expressions that are too large to be written down")
        return ("holds", "") if held else ("unread", reasons[-1] if reasons else "nothing to compare")

    def _sides(self, step: Step, reader: Reader, way: _Way) -> list[tuple[Any, Any]]:
        depth, longest = way
        reader.begin(_spoken_of(step, depth), longest)
        with np.errstate(all="ignore", over="raise", under="raise"):
            return list(CLAIMS[step.rule.claim](reader, step.given, step.made))

    def _gap(self, step: Step, reader: Reader, way: _Way) -> float | str:
        """How far the two sides are apart, or why that cannot be said."""
        try:
            apart = [_apart(*pair) for pair in self._sides(step, reader, way)]
        except FloatingPointError:
            return "numbers that do not fit floats"
        except (Unsupported, MemoryError) as reason:
            return str(reason)
        known = [gap for gap in apart if gap is not None]
        return max(known) if known else "no point at which both sides are numbers"

    def _moves(self, step: Step, reader: Reader, nudged: Reader, way: _Way) -> float:
        """How far either side moves where the unknowns move a little."""
        before, after = (self._sides(step, each, way) for each in (reader, nudged))
        pairs = [(a, b) for one, other in zip(before, after, strict=True) for a, b in zip(one, other, strict=True)]
        return max((gap for a, b in pairs if (gap := _apart(a, b)) is not None), default=0.0)


def audited(universe: Universe, log: StepLog) -> Audit:
    """Every step of a log, read again."""
    auditor = Auditor(universe)
    found = Audit()
    for step in log.steps:
        outcome, reason = auditor.read(step)
        if outcome == "holds":
            found.checked[step.rule.name] += 1
        elif outcome == "wrong":
            found.wrong.append((step.rule.name, reason))
        else:
            found.unread[step.rule.name, reason] += 1
    return found


def _spoken_of(step: Step, depth: int) -> set[int]:
    """Kernels of both sides: none; those that none of the others is made of; all; and what they are made of."""
    if not depth:
        return set()
    spoken = set(roots(step.given, step.made))
    inner = {factor[0] for kernel in spoken for factor in kernel.factors}
    found = spoken - inner if depth == 1 else spoken if depth == 2 else spoken | inner
    return {kernel.id for kernel in found}


def _apart(left: Any, right: Any) -> float | None:
    """How far two sides are apart where both are numbers, relative to their size; None where they are nowhere."""
    left, right = np.broadcast_arrays(np.asarray(left, dtype=float), np.asarray(right, dtype=float))
    both = np.isfinite(left) & np.isfinite(right)
    alike = (left == right) | (np.isnan(left) & np.isnan(right))
    if not both.any():
        return 0.0 if alike.any() else None
    gap = np.abs(left[both] - right[both]) / np.maximum(1.0, np.maximum(np.abs(left[both]), np.abs(right[both])))
    return float(gap.max())
