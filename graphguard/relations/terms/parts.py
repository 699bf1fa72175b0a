"""Factors of a kernel that is being built: each a kernel, and where it is looked at."""

from __future__ import annotations

from typing import Any

from graphguard.relations.terms.kernels import Expression, Kernel, Window


class Part:
    """A factor while its product is under construction; ``expressions`` are over digits instead of labels."""

    __slots__ = ("expressions", "kernel", "offsets", "payload", "window")

    def __init__(
        self, kernel: Kernel, payload: Any, window: Window, offsets: list[int], expressions: list[Expression]
    ) -> None:
        self.kernel = kernel
        self.payload = payload
        self.window = window
        self.offsets = offsets
        self.expressions = expressions

    def copy(self) -> Part:
        """A part that can be changed alone."""
        return Part(self.kernel, self.payload, self.window, list(self.offsets), list(self.expressions))
