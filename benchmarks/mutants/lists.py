"""All edits."""

from __future__ import annotations

from benchmarks.mutants import context, inference, megatron, training
from benchmarks.mutants.edit import SourceEdit

EDITS: tuple[SourceEdit, ...] = (*megatron.EDITS, *inference.EDITS, *training.EDITS, *context.EDITS)
