"""Numbers that a rank loses and the specification has: the program is the specification's, but for a division by zero."""

from __future__ import annotations

from typing import Final

from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture
from graphguard.ops import traits_of
from graphguard.refine.finding import Finding, Related
from graphguard.refine.found.naming import operator
from graphguard.repair.text.frames import Sources
from graphguard.repair.writing.words import spoiled_text

_REASONS: Final = {
    "log": "takes a logarithm of what is not positive",
    "log2": "takes a logarithm of what is not positive",
    "log10": "takes a logarithm of what is not positive",
    "log1p": "takes a logarithm of what is not positive",
    "sqrt": "takes a root of what is negative",
    "rsqrt": "divides by a root of what is not positive",
    "pow": "takes a power that there is none of",
    "div": "divides by zero",
    "true_divide": "divides by zero",
    "divide": "divides by zero",
    "reciprocal": "divides by zero",
    "addcdiv": "divides by zero",
    "mean": "is a mean of nothing",
    "var": "is a variance of too few",
    "var_mean": "is a variance of too few",
    "std": "is a deviation of too few",
    "nll_loss_forward": "is a mean over no target",
    "nll_loss2d_forward": "is a mean over no target",
}
_OUTSIDE: Final = "looks up what its table does not have, which is an error of PyTorch's,"


def raises(capture: Capture, numbers: Confirmation) -> bool:
    """Whether PyTorch raises an error where a rank loses numbers."""
    if numbers.undefined is None:
        return False
    rank, index = numbers.undefined
    op = capture.ranks[rank].nodes[index].op
    traits = traits_of(op)
    return operator(op) not in _REASONS and (traits.looks_up is not None or traits.indexes)


def lost_number(capture: Capture, numbers: Confirmation, sources: Sources) -> Finding | None:
    """The finding of a program that is proved where nothing is divided by zero, and that numbers show to divide by zero; None where they do not."""
    if numbers.undefined is None:
        return None
    rank, index = numbers.undefined
    graph = capture.ranks[rank]
    node = graph.nodes[index]
    span = sources.place(graph, node)
    reason = _OUTSIDE if raises(capture, numbers) else _REASONS.get(operator(node.op), "computes with infinities")
    what = sources.tensor_at(span) or operator(node.op)
    return Finding(
        rule="wrong-relation",
        headline=f"'{what}' {reason} on rank {rank}, where the specification has a number: {spoiled_text(numbers.differing)}",
        span=span,
        needed="a number on every rank wherever the specification has one",
        tensor=what,
        promises=numbers.differing,
        related=(Related(capture.check.span, "the check that fails"),),
    )
