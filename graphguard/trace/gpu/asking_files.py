"""Which files asked for a CUDA device outside of any world, as they do while they are imported; told without torch."""

from __future__ import annotations

asking_files: set[str] = set()
