"""Buffers and frozen parameters whose values both programs computed while they were built, and not alike."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from graphguard.checks.leaves import is_table
from graphguard.checks.parameters import Related
from graphguard.checks.placements import Mesh
from graphguard.trace.capture import Recording
from graphguard.trace.constants import LARGEST_TABLE

ROUNDINGS = 64  # what two ways to compute one table may differ by, in units of the last place of its largest number


def computes_otherwise(recording: Recording, one: Related, mesh: Mesh) -> bool:
    """Whether the rank gave a buffer or a frozen parameter other numbers than the specification has there; to load the specification's would hide it.

    Zeros and ones say nothing: statistics begin with them, and so does what a checkpoint is to fill.
    """
    own = one.state.tensor
    if one.source.tensor.requires_grad or own.requires_grad or not isinstance(own, FakeTensor):
        return False
    whole, computed = (recording.known(each, LARGEST_TABLE) for each in (one.source.tensor, own))
    if whole is None or computed is None:
        return False
    with recording.on_real_tensors():
        return _says_something(computed) and not _alike(computed, one.part(whole, mesh))


def _says_something(value: torch.Tensor) -> bool:
    return is_table(value) or (value.numel() > 0 and value.flatten()[0].item() not in (0, 1))


def _alike(value: torch.Tensor, needed: torch.Tensor) -> bool:
    """Equal but for what another way to compute the same rounds."""
    if not (value.is_floating_point() and needed.is_floating_point()):
        return value.shape == needed.shape and bool((value == needed).all())
    finite = needed.double()[needed.isfinite()]
    unit = max(torch.finfo(value.dtype).eps, torch.finfo(needed.dtype).eps)
    bound = ROUNDINGS * unit * (finite.abs().max().item() if finite.numel() else 0.0)
    return torch.allclose(value.double(), needed.double(), rtol=0.0, atol=bound, equal_nan=True)
