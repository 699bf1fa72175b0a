"""What a program asks of its machine, heard as it asks: files and folders, child processes, the network.

Python's audit events tell of what is opened, listed, started and imported.  They do not tell of questions about a file's status (``os.path.exists``), so that the
functions of ``os`` by which all of these go are replaced.  An import that fails is heard by a finder that comes after all others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from functools import wraps
from types import FrameType
from typing import Any, Final, Protocol

from graphguard.trace.depends.audits import hear
from graphguard.trace.depends.questions import of_function
from graphguard.trace.source.sources import is_installed, is_ours, is_own_code, is_torch

# What another process or another machine answers differently every day.
_BEYOND: Final = frozenset(
    (
        "subprocess.Popen", "os.system", "os.posix_spawn", "os.spawn", "os.exec", "os.fork", "os.forkpty", "pty.spawn", "socket.connect", "socket.getaddrinfo",
        "socket.gethostbyname", "socket.gethostbyaddr", "socket.sendto", "urllib.Request",
    )
)  # fmt: skip
# Events by the place of the path in their arguments, that say a program makes or removes a file.
_MAKING: Final = {"os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1, "os.remove": 0, "os.rmdir": 0, "os.truncate": 0}  # fmt: skip
_LOADING: Final = {"import": 1, "ctypes.dlopen": 0, "sqlite3.connect": 0}
_LISTING: Final = frozenset(("os.listdir", "os.scandir"))
# What the kernel makes up as it is read.
_MADE_UP: Final = ("/proc/", "/sys/", "/dev/")
_LIKE_FILES: Final = ("/dev/shm/",)  # noqa: S108 - a prefix of paths that are read
_NOTHING: Final = "/dev/null"
_READERS_OF_CODE: Final = ("tokenize.py", "linecache.py", "py_compile.py", "pkgutil.py", "inspect.py")
_CODE: Final = (".py", ".pyc", ".pyi")


class Asker(Enum):
    """On whose behalf something is asked."""

    PROGRAM = "program"
    IMPORT = "a library while it is imported"
    RUNTIME = "torch or this recording"


class Ledger(Protocol):
    """Who keeps what is asked."""

    def ask(self, question: str, path: str) -> None:
        """A question of :mod:`graphguard.trace.depends.questions`."""
        ...

    def make(self, path: str) -> None:
        """The program writes, makes or removes this: what is asked of it from now on is the program's own doing."""
        ...

    def lose(self, why: str) -> None:
        """Something was asked that cannot be compared later."""
        ...


def asker() -> Asker:
    """Who asks, as the frames tell: the innermost that is neither ours nor the standard library's."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - who asks is what counts
    imports = False
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith("<frozen importlib"):
            imports = True
        elif is_own_code(path):
            return Asker.PROGRAM
        elif is_installed(path) and not is_torch(path):
            return Asker.IMPORT if _is_being_imported(frame) else Asker.PROGRAM
        elif not is_ours(path) and is_torch(path) and f"{os.sep}torch{os.sep}" in path:
            return Asker.RUNTIME
        frame = frame.f_back
    return Asker.IMPORT if imports else Asker.RUNTIME


def _is_being_imported(frame: FrameType | None) -> bool:
    """Whether an import stands between a library's frame and the user's own code."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith("<frozen importlib"):
            return True
        if is_own_code(path):
            return False
        frame = frame.f_back
    return True


def listen(ledger: Ledger) -> None:
    """From now on ``ledger`` is told; it cannot be taken back."""
    hear(("open", *_LISTING, *_MAKING, *_BEYOND, *_LOADING), _Ear(ledger).hear)
    _replace(ledger)
    sys.meta_path.append(_LastFinder(ledger))


class _Ear:
    """What audit events say."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """One event, before it happens."""
        if event == "open":
            self._opened(*arguments)
        elif event in _LISTING:
            self._listed(arguments[0], event)
        elif event in _MAKING:
            if (path := as_path(arguments[_MAKING[event]])) is not None:
                self._ledger.make(path)
        elif event in _BEYOND:
            if asker() is Asker.PROGRAM:
                self._ledger.lose(event)
        else:
            self._loaded(arguments[_LOADING[event]])

    def _opened(self, opened: object, mode: object, flags: object) -> None:
        path = as_path(opened)
        if path is None or path == _NOTHING or _is_read_as_code(path, _caller(3)):
            return
        how, bits = str(mode or ""), flags if isinstance(flags, int) else 0
        anew = "w" in how or "x" in how or (mode is None and bits & (os.O_TRUNC | os.O_EXCL))
        writes = anew or "a" in how or "+" in how or bits & (os.O_WRONLY | os.O_RDWR)
        if _is_made_up(path):
            if asker() is Asker.PROGRAM:
                self._ledger.lose(path)
            return
        if not anew:
            self._ledger.ask("content", path)
        if writes:
            self._ledger.make(path)

    def _listed(self, listed: object, event: str) -> None:
        path, lister = (
            as_path("." if listed is None else listed),
            _caller(3, is_ours),
        )  # ours puts what is listed in order
        if path is None or lister.startswith("<frozen importlib") or asker() is Asker.RUNTIME:
            return  # what an import finds is another question
        if _is_made_up(f"{path}/"):
            self._ledger.lose(path)
            return
        direct = event == "os.scandir" and not is_torch(lister)  # glob and walk look at names alone
        self._ledger.ask("entries" if direct else "listing", path)

    def _loaded(self, loaded: object) -> None:
        """A library of machine code, or a data base: read where Python does not see it."""
        path = as_path(loaded)
        if path is not None and os.path.isabs(str(loaded)) and not path.endswith(_CODE):
            self._ledger.ask("content", path)


def as_path(value: object) -> str | None:
    """The absolute path that an argument of ``os`` names; None for a number of an open file."""
    if not isinstance(value, str | bytes | os.PathLike):
        return None
    return os.path.abspath(os.fsdecode(value))


def _is_made_up(path: str) -> bool:
    return path.startswith(_MADE_UP) and not path.startswith(_LIKE_FILES)


def _is_read_as_code(path: str, reader: str) -> bool:
    """Whether a source file is read by an import, or to quote its lines: its meaning counts, which is noted elsewhere."""
    return path.endswith(_CODE) and (
        is_ours(reader) or reader.startswith("<frozen importlib") or os.path.basename(reader) in _READERS_OF_CODE
    )


def _caller(depth: int, passed: Callable[[str], bool] = lambda _: False) -> str:
    """The file of the code that calls a function of ``os`` or ``io``, not by way of ``pathlib`` or of files that are ``passed``; ``depth`` frames above this function's caller at the nearest."""
    frame: FrameType | None = sys._getframe(depth + 1)  # noqa: SLF001 - who asks is what counts
    while frame is not None and (
        frame.f_globals.get("__name__", "").partition(".")[0] == "pathlib" or passed(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def _replace(ledger: Ledger) -> None:
    """Put functions that tell in the place of those of ``os`` that ask for a file's status."""
    _tell("stat", ledger, _question_of_status)
    _tell("lstat", ledger, _question_of_status)
    _tell("access", ledger, lambda: "permission")
    _tell("readlink", ledger, lambda: "link")
    usual = os.statvfs

    @wraps(usual)
    def statvfs(path: Any) -> Any:
        if asker() is Asker.PROGRAM:
            ledger.lose("os.statvfs")
        return usual(path)

    os.statvfs = statvfs


def _tell(name: str, ledger: Ledger, question: Callable[[], str]) -> None:
    usual = getattr(os, name)

    @wraps(usual)
    def telling(path: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dir_fd") is not None:
            ledger.lose(f"os.{name} of an open folder")
        elif (
            (asked := as_path(path)) is not None
            and not _is_read_as_code(asked, _caller(1))
            and asker() is not Asker.RUNTIME
        ):
            ledger.ask(question(), asked)
        return usual(path, *args, **kwargs)

    setattr(os, name, telling)
    for supports in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
        if usual in supports:
            supports.add(telling)


def _question_of_status() -> str:
    """What is asked by looking at a file's status, as the functions between the program and ``os.stat`` say."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - above this and what tells
    name = ""
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in (
        "genericpath",
        "posixpath",
        "ntpath",
        "pathlib",
    ):
        name, frame = frame.f_code.co_name, frame.f_back
    return of_function(name)


class _LastFinder:
    """Finds nothing: it comes last, and hears of every module that is not there."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def find_spec(self, name: str, path: Sequence[str] | None = None, _: object = None) -> None:
        """Note where the module would have been."""
        for folder in sys.path if path is None else path:
            self._ledger.ask("module", os.path.join(os.path.abspath(folder or "."), name.rpartition(".")[2]))
