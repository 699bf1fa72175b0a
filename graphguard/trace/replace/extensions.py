"""Extensions in C++ that a program builds while it is recorded: refused, before a compiler starts.

A recording has a time limit, and a process that is stopped in the middle of a build leaves the lock of its build folder behind, on which the program itself would
then wait for ever.  What the extension computes could not be recorded anyway.
"""

from __future__ import annotations

from pathlib import Path

from torch.utils.file_baton import FileBaton

from graphguard.trace.calls import state
from graphguard.trace.source.errors import TracingError

_try_acquire = FileBaton.try_acquire


def refuse_builds() -> None:
    """A build is one diagnostic; a program that can do without the extension goes on."""
    FileBaton.try_acquire = _refused


def _refused(baton: FileBaton) -> bool:
    """PyTorch locks a build folder before it builds."""
    if state.current_world() is None:
        return bool(_try_acquire(baton))
    name = Path(baton.lock_file_path).parent.name
    raise TracingError(
        "unsupported-operator",
        f"the program builds the C++ extension '{name}', and what that computes is not known\n"
        "fix: check the program with its PyTorch implementation of these operators, or register them by torch.library, with a fake implementation",
    )
