"""What weights of the specification's summands say: that some count twice, on one rank only, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from graphguard.relations.explain.weights import Weight, Weights
from graphguard.relations.terms.kernels import Number

_SHOWN = 4  # weights that are told
OF_THE_SUM = "of the specification's sum"
LEFT_OUT = f"leaves out terms {OF_THE_SUM}"
Told = tuple[str, str]
"""A rule and what is wrong with ``{what}``."""


def uneven(by_rank: Mapping[int, Weights | None]) -> Told | None:
    """What weights say that are not one factor on all ranks; None where they are, or where a rank has none."""
    rows = [weights for weights in by_rank.values() if weights is not None]
    if len(rows) < len(by_rank) or not rows:
        return None
    if any(not weight.factor for weights in rows for weight in weights):
        return _left_out(rows)
    several = next((weights for weights in rows if len({weight.factor for weight in weights}) > 1), None)
    if several is not None and all(weight.high for weight in several):
        told = [f"{_counted(weight.low, weight.high)} {_times(weight.factor)}" for weight in several]
        return "wrong-scale", "'{what}' does not add up the specification's summands alike: " + _listed(told)
    if several is not None:
        told = [str(weight.factor) for weight in several]
        return "wrong-scale", "'{what}' adds up the specification's terms with factors of their own: " + _listed(told)
    factors = {rank: weights[0].factor for rank, weights in by_rank.items() if weights}
    if len(set(factors.values())) == 1:
        return None
    told = [f"{factor} on rank {rank}" for rank, factor in factors.items()]
    return (
        "wrong-scale",
        "'{what}' is what the specification computes with another factor on every rank: " + _listed(told),
    )


def _left_out(rows: list[Weights]) -> Told | None:
    """Summands that no rank adds up; None where every one is added up by some rank, as in a partial sum."""
    alike = all(row == rows[0] for row in rows)
    if not all(weight.high for row in rows for weight in row):
        return ("wrong-relation", f"'{{what}}' {LEFT_OUT}") if alike else None
    sums = [_by_sum(row) for row in (rows[:1] if alike else rows)]
    if len({len(each) for each in sums}) > 1:
        return None
    missing: set[int] = set()
    for parts in zip(*sums, strict=True):
        places = {place for part in parts for place in part}
        missing |= {place for place in places if not any(part.get(place) for part in parts)}
    if not missing:
        return None
    shown = ", ".join(map(str, sorted(missing)[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
    noun = "summand" if len(missing) == 1 else "summands"
    return "wrong-relation", f"'{{what}}' leaves out {noun} {shown} {OF_THE_SUM}, which no rank adds up"


def _by_sum(weights: Weights) -> list[dict[int, Number]]:
    """How often each summand counts, for one sum after the other."""
    runs = _runs(weights)
    return [{place: each.factor for each in run for place in range(each.low, each.high)} for run in runs]


def _runs(weights: Weights) -> list[list[Weight]]:
    """Weights of one sum after the other: the places of each go up."""
    runs: list[list[Weight]] = []
    for weight in weights:
        if runs and runs[-1][-1].high <= weight.low:
            runs[-1].append(weight)
        else:
            runs.append([weight])
    return runs


def _counted(low: int, high: int) -> str:
    return f"summand {low} counts" if high == low + 1 else f"summands {low}..{high - 1} count"


def _times(factor: Number) -> str:
    return "once" if factor == 1 else f"{factor} times"


def _listed(texts: list[str]) -> str:
    return ", ".join(texts if len(texts) <= _SHOWN else [*texts[: _SHOWN - 1], "..."])
