"""The factor of a pre-multiplied sum (``ReduceOp.PREMUL_SUM``), which collectives carry and their boxed operators do not tell.

The reduction as Python holds it tells, as a pickle would ask; so the methods of ``ProcessGroup`` that reduce are watched, and the operator that
one of them calls finds the factor of its own call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from graphguard.trace.calls import state
from graphguard.trace.source.errors import TracingError

_METHODS = (
    "allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single", "reduce_scatter_single_coalesced",
)  # fmt: skip
_factors: list[float | None] = []


def watch() -> None:
    """Watch what reduces; once."""
    for name in _METHODS:
        if hasattr(dist.ProcessGroup, name):  # the last two are new in PyTorch 2.13
            setattr(dist.ProcessGroup, name, _watched(getattr(dist.ProcessGroup, name)))


def factor() -> float:
    """The factor of the collective that is called now; raises ``TracingError`` where it does not come from Python."""
    if not _factors or _factors[-1] is None:
        raise TracingError("unsupported-operator", "a pre-multiplied sum whose factor is not known here is not traced")
    return _factors[-1]


def _watched(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reduce(*args: Any, **kwargs: Any) -> Any:
        if state.current_recorder() is None:
            return original(*args, **kwargs)
        _factors.append(_factor_in((*args, *kwargs.values())))
        try:
            return original(*args, **kwargs)
        finally:
            _factors.pop()

    return reduce


def _factor_in(values: tuple[Any, ...]) -> float | None:
    """The factor of the reduction among a call's arguments, or of the one in its options."""
    for value in values:
        reduction = getattr(value, "reduceOp", value)
        if isinstance(reduction, dist.ReduceOp):
            number, supplement = reduction.__getstate__()
            if number != dist.ReduceOp.PREMUL_SUM:
                return None
            if isinstance(supplement, torch.Tensor):
                raise TracingError(
                    "unsupported-operator",
                    "a sum pre-multiplied by a tensor is not traced\nfix: give the factor as a number",
                )
            return float(supplement)
    return None
