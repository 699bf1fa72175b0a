"""Extensions in C++ that a program builds while it is recorded: refused, before a compiler starts.

A recording has a time limit, and a process that is stopped in the middle of a build leaves the lock of its build folder behind, on which the program itself would
then wait for ever.  What the extension computes could not be recorded anyway, unless it is one that is written here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch.utils.file_baton import FileBaton

from graphguard.trace.calls import state
from graphguard.trace.replace.written_extensions import written
from graphguard.trace.source.errors import TracingError, handled

_try_acquire, _wait = FileBaton.try_acquire, FileBaton.wait


def refuse_builds() -> None:
    """A build is one diagnostic; a program that can do without the extension goes on."""
    FileBaton.try_acquire = _refused
    FileBaton.wait = _awaited


def _refused(baton: FileBaton) -> bool:
    """PyTorch locks a build folder before it builds, and imports what is there if another process has the lock."""
    if state.current_world() is None:
        return bool(_try_acquire(baton))
    name = _extension(baton)
    module = written(name)
    if module is not None:
        _imported_instead(name, module)
        return False
    with handled():  # as where there is no compiler
        error = TracingError(
            "unsupported-operator",
            f"the program builds the C++ extension '{name}', and what that computes is not known\n"
            "fix: check the program with its PyTorch implementation of these operators, or register them by torch.library, with a fake implementation",
        )
    if (recorder := state.current_recorder()) is not None:
        recorder.assumed.add(f"the C++ extension '{name}' is not built, and the program does without")
    raise error


def _awaited(baton: FileBaton) -> None:
    if state.current_world() is None:
        _wait(baton)


def _extension(baton: FileBaton) -> str:
    return Path(baton.lock_file_path).parent.name


def _imported_instead(name: str, module: ModuleType) -> None:
    """The next import of a built library gives a module that is here."""
    building: Any = sys.modules["torch.utils.cpp_extension"]  # who asked
    usual = building._import_module_from_library  # noqa: SLF001 - the only way to a library

    def imported(asked: str, *args: Any) -> Any:
        building._import_module_from_library = usual  # noqa: SLF001
        return module if asked == name else usual(asked, *args)

    building._import_module_from_library = imported  # noqa: SLF001
