"""The verdict of numbers on a capture: several draws at several scales, and a minimised counterexample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import torch

from graphguard.confirm.confirmation import Confirmation
from graphguard.confirm.counterexample import CLEAR, clarity, minimised
from graphguard.confirm.leaks import leak
from graphguard.confirm.opinion import second_opinion
from graphguard.confirm.promises import Comparison
from graphguard.confirm.reduced.shrink import shrunk
from graphguard.confirm.run.draws import (
    DRAWS,
    FRACTIONS,
    FURTHER_DRAWS,
    GENERIC,
    MILD_DRAWS,
    MIXED_DRAWS,
    SIGNED_DRAWS,
    SPARSE,
    Draw,
    elements_of,
    is_sparse,
    overflow_draws,
    signed_draws,
)
from graphguard.confirm.run.elements import UncoveredError, UnrunnableError
from graphguard.confirm.run.kernels import REFERENCE
from graphguard.confirm.run.ranges import furthest_bound
from graphguard.confirm.run.replay import guessed_literal
from graphguard.confirm.run.work import work_of, work_of_calls, work_of_drawing
from graphguard.confirm.strange_draws import reason_of, redrawn
from graphguard.confirm.trial import CHOICES, FEW_CHOICES, Failure, OutOfFuelError, Trial
from graphguard.confirm.undefined import birth
from graphguard.ir import Capture, Graph, Node
from graphguard.ir.fuel import SECOND, Fuel
from graphguard.ops import traits_of

STEPS: Final = 10 * SECOND
_RUNNING: Final = "running on numbers"
BYTES_LIMIT: Final = 2 << 30
ENOUGH: Final = 2  # draws that must fail before a difference is described
SURE: Final = (
    4  # draws on which one factor must hold where inputs are counted: a few give every rank as many of them by chance
)
ATTEMPTS: Final = 16  # draws of one kind that may be outside of what is assumed
OPINION: Final = SECOND // 2000  # of a second opinion, for each call
FEW_CALLS: Final = 500  # of all programs together: further draws are made of them
_LARGE: Final = 20.0  # other draws reach bounds below it
RUNS: Final = 10  # at least, of a program that was run at reduced extents: fewer tell less
QUICK: Final = SECOND // 5  # of one run; many are made


def confirm(capture: Capture, steps: float = STEPS) -> Confirmation:
    """Run the capture on numbers and compare every promise as it was promised.

    ``steps`` bound the whole (:mod:`graphguard.ir.fuel`); what by the number of calls alone takes more is not begun.  A capture too large for numbers runs at reduced extents, and
    the reason says so; where that is not possible, or an operator has no kernel, it is ``not-run`` with the reason.
    """
    fuel = Fuel(_RUNNING, steps)
    found = _run(capture, fuel, _EXPLAIN)
    asks = capture.calls * OPINION <= steps and capture.spec is not None and redrawn(capture) is None
    if found.status == "not-run" and asks:
        words = {"equal": "agree", "differs": "differ"}.get(second_opinion(capture))
        said = f"; over finite fields the programs {words}" if words else ""
        found = replace(found, reason=found.reason + said)
    return replace(found, steps=steps - fuel.left)


def compare(capture: Capture, steps: float = STEPS) -> Confirmation:
    """As :func:`confirm`, without looking for a counterexample that a person can read: the first draw on which programs differ is enough."""
    return _run(capture, Fuel(_RUNNING, steps), _REFUTE)


class _Purpose(NamedTuple):
    """What numbers are for: how a difference is told, which draws come ``first``, whether those that failed are ``enough``, and how many ``choices`` among equal numbers are tried."""

    describe: Callable[[Trial, Sequence[Failure]], Confirmation]
    enough: Callable[[Trial, Sequence[Failure]], bool]
    choices: int
    first: tuple[Draw, ...] = ()


def _run(capture: Capture, fuel: Fuel, purpose: _Purpose) -> Confirmation:
    """What numbers say: where a run takes long, first at reduced extents, and then as the program is, unless they differ or it is too large."""
    if capture.spec is None or len(capture.ranks) != capture.world_size:
        return Confirmation("not-run", "the capture is not complete")
    if not capture.promises:
        return Confirmation("not-run", "nothing was promised")
    if guessed := guessed_literal(capture):
        return Confirmation("not-run", guessed)
    said = None
    calls = work_of_calls(capture)
    if calls > fuel.left:
        return Confirmation("not-run", f"numbers would take more than {calls / SECOND:.0f} s")
    if _work_of(capture) - calls > QUICK:  # calls take as long at any extents
        smaller = shrunk(capture)
        if smaller is not None and not _excess(smaller, fuel.left):
            reduced = _tried(smaller, fuel, purpose, reduced=True)
            reason = "; ".join(filter(None, (reduced.reason, "at reduced extents")))
            example = reduced.counterexample and replace(reduced.counterexample, reduced=True)
            said = replace(reduced, reason=reason, counterexample=example, reduced=True)
    excess = _excess(capture, fuel.left if said is None or said.status == "not-run" else fuel.left / RUNS)
    if excess or (said is not None and said.status == "differs"):
        return said or Confirmation("not-run", excess)
    whole = _tried(capture, fuel, purpose)
    return said if said is not None and whole.status == "not-run" else whole


def _tried(capture: Capture, fuel: Fuel, purpose: _Purpose, *, reduced: bool = False) -> Confirmation:
    trial = Trial(capture, capture.promises, fuel, choices=purpose.choices, reduced=reduced)
    try:
        found = _decide(trial, purpose)
        if found.status == "differs" and trial.casts:
            found = _without_rounding(trial, found)
    except UnrunnableError as error:
        found = Confirmation("not-run", str(error))
    return replace(found, kernels=_kernels(capture), draws=trial.draws)


def _excess(capture: Capture, steps: float) -> str:
    """What one run takes more than there is; empty where there is enough."""
    size, work = _bytes_of(capture), _work_of(capture)
    if size > BYTES_LIMIT:
        return f"numbers would take {size / (1 << 30):.1f} GB of memory"
    return f"numbers would take about {work / SECOND:.0f} s" if work > steps else ""


def _bytes_of(capture: Capture) -> int:
    """The memory of a run."""
    return 8 * (elements_of(capture) + sum(map(_peak, capture.graphs)))


def _work_of(capture: Capture) -> float:
    """The steps of a run."""
    return work_of(capture.graphs) + work_of_drawing(capture)


def _peak(graph: Graph) -> int:
    """The most elements that live at once while a graph runs, its inputs left out."""
    last = {operand: index for index, node in enumerate(graph.nodes) for operand in node.operands()}
    kept = set(graph.outputs.values())
    live = peak = 0
    freed: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        for out in node.outs:
            count = math.prod(size for size in graph.types[out].shape if isinstance(size, int))
            live += count
            if out not in kept:
                at = last.get(out, index)
                freed[at] = freed.get(at, 0) + count
        peak = max(peak, live)
        live -= freed.get(index, 0)
    return peak


def _kernels(capture: Capture) -> tuple[str, ...]:
    return tuple(sorted({node.op for graph in capture.graphs for node in graph.nodes if node.op in REFERENCE}))


def _draws(trial: Trial) -> tuple[Draw, ...]:
    capture = trial.capture
    further = (*FURTHER_DRAWS, *((*MIXED_DRAWS, *MILD_DRAWS) if _chooses(capture) else ()))
    if _asks_whether_finite(capture):
        further = (*further, *overflow_draws(capture))
    if (bound := furthest_bound(capture)) > _LARGE:
        further = (*further, Draw(17, bound))
    further = (*further, *signed_draws(trial.ranges))
    draws = (
        *DRAWS,
        *(further if capture.calls <= FEW_CALLS else ()),
        *((FRACTIONS,) if _is_of_fractions(capture) else ()),
    )
    return (*draws, SPARSE) if any(map(is_sparse, capture.leaves)) else draws


def _is_of_fractions(capture: Capture) -> bool:
    """Whether the specification has functions that are numbers for probabilities, and not for most other inputs."""
    return capture.spec is not None and any(traits_of(node.op).of_fractions for node in capture.spec.nodes)


def _chooses(capture: Capture) -> bool:
    """Whether a program makes choices that numbers move, so that it is piecewise constant somewhere."""
    return any(traits_of(node.op).steps for graph in capture.graphs for node in graph.nodes)


def _asks_whether_finite(capture: Capture) -> bool:
    """Whether the specification looks for infinities or for what is not a number, so that it says what is to be done where there are some."""
    return capture.spec is not None and any(_is_about_infinity(node) for node in capture.spec.nodes)


def _is_about_infinity(node: Node) -> bool:
    traits = traits_of(node.op)
    if traits.symbol in ("==", "!=") and len(node.args) == 2:
        first, second = node.args
        return first == second or (isinstance(second, float) and not math.isfinite(second))
    return traits.asks_finite


def _decide(trial: Trial, purpose: _Purpose) -> Confirmation:
    failures: list[Failure] = []
    for draw in (*purpose.first, *_draws(trial)):
        if draw is FRACTIONS and failures:
            continue
        try:
            failures.extend(_covered(trial, draw))
        except OutOfFuelError:
            if not trial.draws:
                raise
            break
        except UnrunnableError:
            if draw is not SPARSE and draw not in SIGNED_DRAWS:
                raise  # the others are inputs like any; where almost nothing is there, or a count is negative, an operator may have nothing to work on
        if failures and purpose.enough(trial, failures):
            break
    if failures:
        return purpose.describe(trial, failures)
    if not trial.draws:
        return Confirmation("not-run", "no draw is as assumed in every place where the program asks for a truth value")
    if trial.excused:
        return Confirmation("not-run", reason_of(tuple(trial.excused)))
    undefined = [promise.name for promise in trial.promises if promise.name not in trial.defined]
    if undefined:
        return Confirmation("not-run", f"'{undefined[0]}' of the specification is not a number on any draw")
    return Confirmation("equal")


def _without_rounding(trial: Trial, found: Confirmation) -> Confirmation:
    """What is found, and what a few draws say where casts to narrower types round nothing: whether the programs agree then, or by which factor they differ."""
    soft = Trial(trial.capture, trial.promises, trial.fuel, soft=True)
    try:
        failures = [failure for draw in _draws(trial)[:ENOUGH] for failure in _covered(soft, draw)]
    except UnrunnableError:
        return found
    return replace(found, rounding=not failures, ratios=found.ratios or ratios(failures) or None)


def _covered(trial: Trial, draw: Draw) -> list[Failure]:
    """What a draw refutes, or the next of its kind for which the program does what was recorded; nothing where none is found."""
    for again in range(1 if draw is SPARSE else ATTEMPTS):  # which has no others of its kind
        try:
            return trial.run(replace(draw, seed=draw.seed + 1000 * again))
        except UncoveredError:
            continue
    return []


def _is_clear(trial: Trial, failures: Sequence[Failure]) -> bool:
    """Whether a person sees the difference, on draws enough to say whether it is a factor."""
    return trial.draws >= ENOUGH and max(map(clarity, failures)) >= CLEAR and not _by_chance(trial, failures)


def _by_chance(trial: Trial, failures: Sequence[Failure]) -> bool:
    """Whether further draws may show that what looks like a factor is none."""
    return trial.draws < SURE and any(map(is_sparse, trial.capture.leaves)) and bool(ratios(failures))


def _described(trial: Trial, failures: Sequence[Failure]) -> Confirmation:
    return Confirmation(
        "differs",
        differing=_names(failures),
        ratios=ratios(failures) or None,
        counterexample=minimised(trial, max(failures, key=clarity)),
        undefined=birth(trial, failures),
        unwritten=leak(trial, failures),
    )


def _named(_: Trial, failures: Sequence[Failure]) -> Confirmation:
    return Confirmation("differs", differing=_names(failures))


def _names(failures: Sequence[Failure]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(failure.promise.name for failure in failures))


def ratios(failures: Sequence[Failure]) -> dict[str, float]:
    """For each promise that several draws refute by one and the same factor, other than zero: found / needed."""
    seen: dict[str, dict[int, list[torch.Tensor]]] = {}
    for failure in failures:
        for comparison in failure.comparisons:
            seen.setdefault(failure.promise.name, {}).setdefault(failure.draw.seed, []).append(_quotients(comparison))
    constant = {}
    for name, draws in seen.items():
        quotients = torch.cat([part for parts in draws.values() for part in parts])
        if len(draws) < ENOUGH or not quotients.numel() or not bool(quotients.isfinite().all()):
            continue
        factor, spread = float(quotients[0]), float(quotients.max() - quotients.min())
        if factor and spread <= 1e-8 * abs(factor):
            constant[name] = factor
    return constant


def _quotients(comparison: Comparison) -> torch.Tensor:
    """Found over needed where the needed is not negligible; an infinity where one constant is out of the question."""
    if not comparison.shaped or not comparison.expected.dtype.is_floating_point:
        return torch.tensor([float("inf")], dtype=torch.float64)
    expected, found = comparison.expected.reshape(-1), comparison.found.reshape(-1)
    largest = expected.abs().max() if expected.numel() else torch.tensor(0.0)
    heavy = expected.abs() > 1e-6 * largest
    return found[heavy] / expected[heavy]


_EXPLAIN: Final = _Purpose(_described, _is_clear, CHOICES)
# first a draw on which no two numbers are equal by chance: it is the quickest
_REFUTE: Final = _Purpose(_named, lambda _trial, _failures: True, FEW_CHOICES, GENERIC[:1])
