"""Relations that are clean and seldom what a program's author means: sums that nobody holds, shards in another order, ranks that hold something else."""

from __future__ import annotations

import re
from typing import Final

from graphguard.refine.outcome import SOMETHING_ELSE, Outcome, PromiseOutcome

_PART: Final = re.compile(r"@(\d+)(?:\[([^]]*)\])?")
_START: Final = re.compile(r"(\d+):\d+")


def cautions_of(outcome: Outcome) -> tuple[str, ...]:
    """What is to be said of outputs for which no relation was promised and such a one was found."""
    inferred = [one for one in outcome.promises if one.holds and one.needed == f"a clean relation for {one.name}"]
    return tuple(text for promise in inferred for text in _cautions(promise))


def _cautions(promise: PromiseOutcome) -> list[str]:
    found, others, ranks = promise.found.partition(SOMETHING_ELSE)
    texts = []
    if "sum(" in found:
        texts.append(f"{found}: no rank holds {promise.name} whole; out_relations='replicate' would demand it")
    if others:
        texts.append(
            f"{found}:{ranks} returns something else as {promise.name}; out_relations='replicate' would forbid it"
        )
    if any(_is_rearranged(copy) for copy in found.split(" = ")):
        texts.append(
            f"{found}: the shards of {promise.name} are not in the order of the ranks; out_relations={{axis: Shard(dim)}} would demand it"
        )
    return texts


def _is_rearranged(expression: str) -> bool:
    """Whether parts of the ranks' tensors are put together in another order than theirs."""
    parts = [(int(rank), tuple(map(int, _START.findall(ranges)))) for rank, ranges in _PART.findall(expression)]
    return "concat(" in expression and parts != sorted(parts)
