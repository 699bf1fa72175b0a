"""Packages that only a GPU's machine has, for programs that import them without asking: names, and no kernels.

Triton's wheel is for Linux with a GPU; code that runs there is checked elsewhere, too.  An import that the program itself guards (``try``) finds nothing, as without this,
so that the fallback is what is recorded.  A kernel that is launched all the same is one diagnostic.
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from graphguard.trace.source.errors import TracingError

_PACKAGES = ("triton",)
#: Where we import or run what is the user's: what is around that is ours.
_RUNNING = ("graphguard/trace/source/sources.py", "graphguard/trace/scripts/launching.py")
_ASKS = ("<frozen importlib.util>",)  # find_spec


def install() -> None:
    """Stand in for the packages that this interpreter lacks; once, in a process that runs user code."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())  # last: only what nobody else finds
        builtins.__import__ = _importing(builtins.__import__)


def _importing(usual: Any) -> Any:
    """What stands in is there for those alone that import it without asking: others find nothing, whoever imported it before."""

    @functools.wraps(usual)
    def imported(name: str, *args: Any, **kwargs: Any) -> Any:
        package = name.partition(".")[0]
        if package in _PACKAGES and isinstance(sys.modules.get(package), _Module) and _is_guarded(sys._getframe(1)):  # noqa: SLF001 - who imports it
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return usual(name, *args, **kwargs)

    return imported


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002 - Python's signature
        if name.partition(".")[0] not in _PACKAGES or _is_guarded(sys._getframe(1)):  # noqa: SLF001 - who imports it
            return None
        return importlib.util.spec_from_loader(name, _Loader(), is_package=True)


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def _is_guarded(frame: FrameType | None) -> bool:
    """Whether any import on the way here stands in a ``try``, or only asks whether there is such a package."""
    while frame is not None:
        code, at = frame.f_code, frame.f_lasti
        file = code.co_filename
        if file in _ASKS or file.endswith("importlib/util.py"):
            return True
        if file.endswith(_RUNNING):
            return False
        if not file.startswith("<frozen importlib") and any(
            entry.start <= at < entry.end
            for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]  # noqa: SLF001 - the only reader of it
        ):
            return True
        frame = frame.f_back
    return False


# What programs compute with before they launch.
_HOST = {"cdiv": lambda x, y: -(-x // y), "next_power_of_2": lambda n: 1 << max(0, n - 1).bit_length()}


class _Module(ModuleType):
    """Any name is there."""

    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _HOST.get(name) or _Name(f"{self.__name__}.{name}")


class _Name:
    """A name of the package: a decorator gives the kernel it was put on, anything else more names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], _Name):
            return args[0]
        if len(args) == 1 and not kwargs and callable(args[0]):
            return _Name(getattr(args[0], "__qualname__", self._name))
        return _Name(self._name)

    def __getitem__(self, grid: Any) -> Any:
        package = self._name.partition(".")[0]
        if package in _PACKAGES:
            return _Name(self._name)
        raise TracingError(
            "unsupported-operator",
            f"the kernel '{self._name}' is written in Triton, which is not installed here: what it computes is not known\n"
            "fix: check the program with its PyTorch implementation of this operator, or wrap the kernel in torch.library with a fake implementation",
        )

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__
