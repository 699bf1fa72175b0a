"""How a process of ours ends with the one that started it, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

# Set by a parent that may be killed: its process id.
VARIABLE = "GRAPHGUARD_PARENT"
_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when ``parent`` ends; end at once where it already did (Linux; a no-op elsewhere)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def die_with_starter() -> None:
    """As :func:`die_with`, for the process that the environment names.

    One that was started by way of a launcher (``uv run python``) has another parent: it ends at the end of its input.
    """
    named = os.environ.pop(VARIABLE, "")
    if named.isdigit() and int(named) == os.getppid():
        die_with(int(named))
