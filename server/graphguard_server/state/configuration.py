"""Settings of the client, and the configuration of a project's folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import graphguard

Mode = Literal["change", "save", "manual"]

MODES: Final = ("change", "save", "manual")
_RULES: Final = Path(graphguard.__file__).resolve().parents[1] / "docs" / "rules"
DOCS: Final = (
    _RULES.as_uri() if _RULES.is_dir() else ""
)  # the pages lie beside the engine; without them there is no link


@dataclass(frozen=True, slots=True)
class Settings:
    """What the client may set; the names are those of docs/protocol.md.

    ``interpreter`` is the command that runs the workspace's Python, empty for the project's own choice or the server's interpreter.
    """

    mode: Mode = "change"
    interpreter: tuple[str, ...] = ()
    inlay_hints: bool = False
    semantic_tokens: bool = False
    code_lens: bool = True
    fixes: bool = True
    docs: str = DOCS

    def updated(self, values: object) -> tuple[Settings, tuple[str, ...]]:
        """These settings with the client's values; what is not understood is left as it was and named in the second result."""
        if not isinstance(values, Mapping):
            return self, ()
        changed: dict[str, Any] = {}
        wrong: list[str] = []
        for name, (field, read) in _READERS.items():
            if values.get(name) is None:
                continue
            try:
                changed[field] = read(values[name])
            except ValueError as error:
                wrong.append(f"graphguard.{name}: {error}")
        return replace(self, **changed), tuple(wrong)


def _mode(value: object) -> str:
    if value not in MODES:
        raise ValueError(f"{value!r} is none of {', '.join(MODES)}")
    return str(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")  # noqa: TRY004 - a wrong value of a setting, not of a call
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")  # noqa: TRY004
    return value.rstrip("/")


def command(value: object) -> tuple[str, ...]:
    """The command of an interpreter: a path, the folder of an environment, or a list of words; raises ``ValueError``."""
    if isinstance(value, str):
        return (_executable(os.path.expanduser(value)),) if value.strip() else ()
    if isinstance(value, Sequence) and value and all(isinstance(word, str) for word in value):
        return (os.path.expanduser(str(value[0])), *(str(word) for word in value[1:]))
    raise ValueError(f"{value!r} is neither a path nor a list of words")


def _executable(path: str) -> str:
    if os.path.isdir(path):
        inside = ("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")
        return os.path.join(path, *inside)
    return path


_READERS: Final = {
    "mode": ("mode", _mode),
    "interpreter": ("interpreter", command),
    "inlayHints": ("inlay_hints", _flag),
    "semanticTokens": ("semantic_tokens", _flag),
    "codeLens": ("code_lens", _flag),
    "fixes": ("fixes", _flag),
    "docs": ("docs", _text),
}
