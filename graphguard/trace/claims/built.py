"""Buffers and frozen parameters whose values both programs computed while they were built, and not alike."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from graphguard.trace.calls.constants import LARGEST_TABLE
from graphguard.trace.claims.leaves import is_table
from graphguard.trace.claims.parameters import Related, is_distributed
from graphguard.trace.claims.placements import Mesh
from graphguard.trace.record.capture import Recording

ROUNDINGS = 64  # what two ways to compute one table may differ by, in units of the last place of its largest number


def computes_otherwise(recording: Recording, one: Related, mesh: Mesh) -> bool:
    """Whether the rank gave a buffer or a frozen parameter other numbers than the specification has there; to load the specification's would hide it.

    Zeros and ones say little: statistics begin with them, and so does what a checkpoint is to fill; that it is, the verdict lists.
    """
    built = _built(recording, one) if isinstance(one.state.tensor, FakeTensor) else None
    if built is None:
        return False
    whole, computed = built
    with recording.on_real_tensors():
        return _says_something(computed) and not _alike(computed, one.part(whole, mesh))


def filled_otherwise(recording: Recording, one: Related, mesh: Mesh) -> str | None:
    """What is assumed of a buffer or a frozen parameter that the rank fills with one number, and the specification with others; of a buffer, too, whose numbers are not known."""
    built = _built(recording, one)
    if built is None:
        return _not_compared(recording, one)
    whole, filled = built
    with recording.on_real_tensors():
        if not filled.numel() or _alike(filled, one.part(whole, mesh)):
            return None
    if not all(map(recording.is_written, (one.source.tensor, one.state.tensor))):
        return None  # memory that waits to be filled
    with recording.on_real_tensors():
        kind, name = one.state.kind, one.state.name
        theirs, ours = _numbers(whole), _numbers(filled)
    return f"{kind} '{name}' is built of other numbers in the specification ({theirs}) than on the ranks ({ours}): a checkpoint fills both"


def _not_compared(recording: Recording, one: Related) -> str | None:
    """What is assumed of a buffer that both programs wrote, or of a tensor that a function closes over, of which the numbers are not known: they are too many, or follow from what is not."""
    own = one.state
    if not own.owners and isinstance(own.tensor, FakeTensor) and recording.is_computed(own.tensor):
        return f"'{own.name}', which the implementation computes while it is built, is what the specification has: how it is computed is not compared"
    tensors = (one.source.tensor, one.state.tensor)
    if one.state.kind != "buffer" or any(each.requires_grad for each in tensors):
        return None
    if not all(map(recording.is_written, tensors)):
        return None
    return f"buffer '{one.state.name}' is built of the same numbers in the specification and on the ranks: its {one.source.tensor.numel():,} elements are not compared"


def _built(recording: Recording, one: Related) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The numbers with which the specification's tensor and the rank's were built, where both are known and nothing trains them."""
    own = one.state.tensor
    if one.source.tensor.requires_grad or own.requires_grad or is_distributed(own):
        return None
    whole, built = (recording.known(each, LARGEST_TABLE) for each in (one.source.tensor, own))
    return None if whole is None or built is None else (whole, built)


def _numbers(value: torch.Tensor) -> str:
    return "a table" if is_table(value) else f"{value.flatten()[0].item():g}"


def _says_something(value: torch.Tensor) -> bool:
    return is_table(value) or (value.numel() > 0 and value.flatten()[0].item() not in (0, 1))


def _alike(value: torch.Tensor, needed: torch.Tensor) -> bool:
    """Equal but for what another way to compute the same rounds."""
    if value.shape == needed.shape and value.dtype == needed.dtype and torch.equal(value, needed):
        return True
    if not (value.is_floating_point() and needed.is_floating_point()):
        return value.shape == needed.shape and bool((value == needed).all())
    finite = needed.double()[needed.isfinite()]
    unit = max(torch.finfo(value.dtype).eps, torch.finfo(needed.dtype).eps)
    bound = ROUNDINGS * unit * (finite.abs().max().item() if finite.numel() else 0.0)
    return torch.allclose(value.double(), needed.double(), rtol=0.0, atol=bound, equal_nan=True)
