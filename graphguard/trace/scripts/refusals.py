"""What a recorded script cannot do: read what a person types, start processes, reach other machines, write into its own folder.

The first three are one diagnostic at their line.  What it writes goes to a folder of its own.
"""

from __future__ import annotations

import builtins
import copy
import fcntl
import functools
import io
import multiprocessing.process
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import torch

from graphguard.trace.source.errors import TracingError
from graphguard.trace.source.sources import is_installed, is_ours

_WRITING = frozenset("wxa+")
_ANYWHERE = ("/dev/", "/proc/", "/sys/")


def refuse() -> None:
    """From now on, for the rest of this process."""
    sys.stdin = _Typed()
    builtins.input = _TYPED
    starting = _refusing(
        "starts processes of its own; graphguard torchrun starts one for each rank, as torchrun does",
        "run each rank from RANK and WORLD_SIZE, as under torchrun; or check what the processes call, with gg.verify",
    )
    multiprocessing.process.BaseProcess.start = starting  # type: ignore[method-assign]
    torch.multiprocessing.spawn = torch.multiprocessing.start_processes = starting
    os.fork = os.forkpty = starting
    _watch_programs(starting)
    beyond = _refusing(
        "asks another machine, which a recorded script cannot: it downloads something, or reports to a server",
        "have the files there before (run the script once), and work offline, as with HF_HUB_OFFLINE=1",
    )
    usual = socket.socket.connect

    def connect(this: Any, address: Any) -> Any:
        return usual(this, address) if this.family == socket.AF_UNIX else beyond()

    socket.socket.connect = socket.socket.connect_ex = connect  # type: ignore[method-assign]
    socket.getaddrinfo = beyond


#: Programs that run Python on their own, each of whose processes would be a rank or one more job.
_PYTHON = re.compile(r"(python|pypy)[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun|ray")
#: Programs that only tell something.
_TELLING = frozenset(("git", "uname", "hostname", "nvidia-smi", "rocm-smi", "ldconfig", "lscpu", "which", "gcc", "cc"))
started: dict[str, None] = {}
"""The other programs that the script has started, in order: what they write is not redirected."""


def _watch_programs(starting: Callable[..., Any]) -> None:
    """Refuse those that run Python, and note the others."""
    opening, system = subprocess.Popen.__init__, os.system

    def note(command: Any) -> None:
        words = command.split() if isinstance(command, str) else [os.fsdecode(word) for word in command]
        program = os.path.basename(words[0]) if words else ""
        if _PYTHON.fullmatch(program):
            starting()
        if program not in _TELLING:
            started[program] = None

    @functools.wraps(opening)
    def popen(this: Any, args: Any, *others: Any, **keywords: Any) -> None:
        note(os.fspath(args) if isinstance(args, os.PathLike) else args)
        opening(this, args, *others, **keywords)

    def call(command: Any) -> int:
        note(command)
        return system(command)

    subprocess.Popen.__init__ = popen  # type: ignore[method-assign,assignment]
    os.system = call


def _refusing(what: str, instead: str) -> Callable[..., NoReturn]:
    def refused(*_: Any, **__: Any) -> NoReturn:
        raise TracingError("trace-error", f"the script {what}\nfix: {instead}")

    return refused


_TYPED: Final = _refusing(
    "reads standard input, which a recorded script does not have", "take it from arguments or a file"
)


class _Typed(io.TextIOBase):
    """Standard input."""

    def _refuse(self, *_: Any) -> NoReturn:
        _TYPED()

    read = readline = __next__ = _refuse

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 0


class Scratch:
    """A folder that takes what a script writes; what lies there is found where the script wrote it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.written: dict[str, None] = {}

    def install(self) -> None:
        """From now on, for the rest of this process."""
        self._opening()
        for name in ("stat", "lstat", "access", "listdir", "scandir"):
            self._reading(name)
        for name in ("chmod", "utime", "truncate", "chown", "lchown"):
            self._changing(name)
        for name in ("mkdir", "remove", "unlink", "rmdir"):
            self._making(name)
        for name in ("rename", "replace", "link", "symlink"):
            self._moving(name)
        self._keeping()

    def _keeping(self) -> None:
        """What is saved stays in memory, for only the data decides its bytes: its file says no more than that it is there, and to load it gives a copy."""
        saving, loading, kept = torch.save, torch.load, {}

        @functools.wraps(saving)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(f, str | os.PathLike):
                return saving(obj, f, *args, **kwargs)
            path = os.path.abspath(self.target(f))
            kept[path] = copy.deepcopy(obj)
            return saving(None, path, *args, **kwargs)

        @functools.wraps(loading)
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            path = os.path.abspath(self.source(f)) if isinstance(f, str | os.PathLike) else ""
            return copy.deepcopy(kept[path]) if path in kept else loading(f, *args, **kwargs)

        torch.save, torch.load = save, load

    def _opening(self) -> None:
        opening, low = builtins.open, os.open

        def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(file, str | bytes | os.PathLike):
                file = self.target(file) if _WRITING & set(mode) else self.source(file)
            return opening(file, mode, *args, **kwargs)

        def os_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
            path = _whole(path, kwargs)
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            return low(self.target(path) if writes else self.source(path), flags, *args, **kwargs)

        builtins.open = io.open = open_
        os.open = os_open

    def _reading(self, name: str) -> None:
        usual = getattr(os, name)

        @functools.wraps(usual)
        def read(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            path = _whole(path, kwargs)
            return usual(self.source(path) if isinstance(path, str | bytes | os.PathLike) else path, *args, **kwargs)

        setattr(os, name, read)

    def _changing(self, name: str) -> None:
        usual = getattr(os, name)

        @functools.wraps(usual)
        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            path = _whole(path, kwargs)
            return usual(self.target(path) if isinstance(path, str | bytes | os.PathLike) else path, *args, **kwargs)

        setattr(os, name, change)

    def _making(self, name: str) -> None:
        usual = getattr(os, name)

        @functools.wraps(usual)
        def make(path: Any, *args: Any, **kwargs: Any) -> Any:
            path = _whole(path, kwargs)
            if name == "mkdir" and os.path.isdir(path):
                raise FileExistsError(17, "File exists", os.fspath(path))
            if name != "mkdir" and self.source(path) == os.fspath(path) and self._is_kept(path):
                raise TracingError(
                    "trace-error",
                    f"the script removes {os.fspath(path)}, which it did not make: nothing outside of its scratch folder is changed\n"
                    "fix: give it another folder to write to",
                )
            return usual(self.target(path), *args, **kwargs)

        setattr(os, name, make)

    def _moving(self, name: str) -> None:
        usual = getattr(os, name)

        @functools.wraps(usual)
        def move(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            return usual(self.target(source), self.target(target), *args, **kwargs)

        setattr(os, name, move)

    def _is_kept(self, path: Any) -> bool:
        """Whether a path is outside of what a script may change."""
        full = os.path.abspath(os.fsdecode(path))
        return not (full.startswith((self.folder + os.sep, *_ANYWHERE)) or full == self.folder)

    def _mirrored(self, path: Any) -> str:
        return os.path.join(self.folder, os.path.abspath(os.fsdecode(path)).lstrip(os.sep))

    def source(self, path: Any) -> Any:
        """Where to read a path: where the script wrote it, else there."""
        if not self.written or not self._is_kept(path):
            return path
        mirrored = self._mirrored(path)
        return mirrored if mirrored in self.written or _exists(mirrored) else path

    def target(self, path: Any) -> Any:
        """Where to write a path; what is there already was copied."""
        if not self._is_kept(path) or is_ours(os.fsdecode(path)) or is_installed(os.fsdecode(path)):
            return path
        mirrored = self._mirrored(path)
        if mirrored not in self.written:
            self.written[mirrored] = None
            _make_folders(os.path.dirname(mirrored))
            _copy(os.path.abspath(os.fsdecode(path)), mirrored)
        return mirrored

    def files(self) -> list[str]:
        """What was written, as the script named it."""
        return [path[len(self.folder) :] for path in self.written if _is_file(path)]


def _whole(path: Any, options: dict[str, Any]) -> Any:
    """A path with the folder that it is relative to, which may be given as an open file: ``dir_fd`` is taken out of the options."""
    descriptor = options.pop("dir_fd", None)
    if descriptor is None:
        return path
    asking = getattr(fcntl, "F_GETPATH", None)  # where there is no /proc
    folder = (
        os.readlink(f"/proc/self/fd/{descriptor}")
        if asking is None
        else os.fsdecode(fcntl.fcntl(descriptor, asking, bytes(1024)).rstrip(b"\0"))
    )
    return os.path.join(folder, os.fsdecode(path))


_stat, _mkdir, _open, _close, _read, _write = os.stat, os.mkdir, os.open, os.close, os.read, os.write


def _exists(path: str) -> bool:
    try:
        _stat(path)
    except OSError:
        return False
    return True


def _is_file(path: str) -> bool:
    return _exists(path) and not (_stat(path).st_mode & 0o040000)


def _make_folders(path: str) -> None:
    if not _exists(path):
        _make_folders(os.path.dirname(path))
        _mkdir(path)


def _copy(source: str, target: str) -> None:
    if not _is_file(source):
        return
    reading = _open(source, os.O_RDONLY)
    writing = _open(target, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        while data := _read(reading, 1 << 20):
            _write(writing, data)
    finally:
        _close(reading)
        _close(writing)
