"""Whether importing the user's files in one more process does the same there, and nothing but define things.

An import that does more is stopped before it does it: what an audit hook is told has not happened yet.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn

import torch

from graphguard.trace.depends.audits import hear_everything, stop_hearing
from graphguard.trace.process.limits import data_size
from graphguard.trace.source.sources import file_of, is_installed, is_own_code, is_torch

# What imports do that read and define.
_HARMLESS = frozenset(
    (
        "array.__new__", "builtins.id", "code.__new__", "compile", "function.__new__", "glob.glob", "marshal.dumps", "marshal.load", "marshal.loads",
        "object.__delattr__", "object.__getattr__", "object.__setattr__", "os.chdir", "os.listdir", "os.putenv", "os.scandir", "os.unsetenv",
        "pickle.find_class", "sys._getframe", "sys._getframemodulename",
    )
)  # fmt: skip
# Names by which code comes by clocks, chance, addresses and processes: what it makes of them is another thing in every process.
_UNLIKE = frozenset(
    (
        "SystemRandom", "datetime", "default_rng", "get_ident", "getpid", "getppid", "getrandom", "hash", "id", "monotonic", "monotonic_ns", "now", "perf_counter",
        "perf_counter_ns", "process_time", "register_at_fork", "secrets", "tempfile", "time", "time_ns", "today", "token_bytes", "token_hex", "urandom", "utcnow",
        "uuid", "uuid1", "uuid4",
    )
)  # fmt: skip
_CODE = (".py", ".pyc", ".pyi")
_EXTENSIONS = (".so", ".pyd", ".dylib")
# More than that is memory which processes forked after the import would share, and seconds which are lost where each of them takes them.
_LARGEST = 128 * 2**20
_LONGEST = 0.1


class Effects:
    """A context around an import; ``unlike`` is told the first thing for which the import must not go on here, and does not return."""

    def __init__(self, unlike: Callable[[str], NoReturn]) -> None:
        self._unlike = unlike
        self._watches = False

    def __enter__(self) -> None:
        self._loaded, self._data, self._threads = len(sys.modules), data_size(), _threads()
        self._chance, self._used = _chance(), time.process_time()
        self._output = os.memfd_create("graphguard-import")
        self._streams = os.dup(1), os.dup(2)
        for stream in (1, 2):
            os.dup2(self._output, stream)
        self._watches = True
        hear_everything(self._audit)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        stop_hearing(self._audit)
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, before in zip((1, 2), self._streams, strict=True):
            os.dup2(before, stream)
            os.close(before)
        used = time.process_time() - self._used
        printed = os.fstat(self._output).st_size
        os.close(self._output)
        if error is not None:
            self._unlike(f"it raises {kind.__name__ if kind is not None else error}")
        if printed:
            self._unlike("it prints")
        if data_size() - self._data > _LARGEST:
            self._unlike("it takes much memory")
        if used > _LONGEST:
            self._unlike("it takes long")
        if _threads() != self._threads:
            self._unlike("it starts threads")
        if _chance() != self._chance:
            self._unlike("it draws at random")
        if torch.cuda.is_initialized():
            self._unlike("it uses a device")
        for module in itertools.islice(reversed(sys.modules.values()), max(0, len(sys.modules) - self._loaded)):
            file = file_of(module)
            if is_installed(file) and not is_torch(file):
                self._unlike(f"it loads {file}")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._watches or event in _HARMLESS:
            return
        if event == "open":
            effect = _opens(*arguments)
        elif event == "import":
            effect = isinstance(arguments[1], str) and arguments[1].endswith(_EXTENSIONS) and not is_torch(arguments[1])
        elif event == "exec":
            effect = (
                isinstance(arguments[0], CodeType) and is_own_code(arguments[0].co_filename) and _asks(arguments[0])
            )
        else:
            effect = True
        if effect:
            self._watches = False
            self._unlike(f"{event} {arguments[0]}" if event == "open" else event)


def rehearse() -> None:
    """Look at what is looked at before and after an import."""
    _chance()
    _threads()
    data_size()


def _opens(path: object, mode: object, flags: object) -> bool:
    """Whether opening a file is more than reading code."""
    if not isinstance(path, str | bytes):
        return False
    name = os.fsdecode(path)
    writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
    writes = writes or (isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)))
    return writes or not name.endswith(_CODE)


def _asks(code: CodeType) -> bool:
    """Whether code, or any that it defines, mentions what is unlike in every process."""
    if not _UNLIKE.isdisjoint(code.co_names):
        return True
    return any(_asks(inner) for inner in code.co_consts if isinstance(inner, CodeType))


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _chance() -> tuple[object, ...]:
    """The states of the generators that are not torch's."""
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is None:
        return (random.getstate(),)
    kind, keys, *rest = numpy.get_state(legacy=True)
    return random.getstate(), kind, keys.tobytes(), *rest
