"""``[tool.graphguard]`` of a project's pyproject.toml, the same for command line and editor."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphguard.report.registry import UnknownRuleError
from graphguard.report.registry import rule as known_rule

LEVELS = ("error", "warning", "information", "hint", "off")
RANKS = 16
RANKS_WORDS: dict[str, int | None] = {"auto": RANKS, "all": None}
_UNITS = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class ConfigurationError(ValueError):
    """The configuration is not valid; the message names file and line (0 where it is about the whole file), ``reason`` alone does not."""

    def __init__(self, file: Path, line: int, reason: str) -> None:
        super().__init__(f"{file}:{line}: {reason}" if line else f"{file}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Configuration:
    """A project's settings.

    ``root`` is its folder; ``checks`` are patterns of files relative to it; ``python`` is the command of the interpreter that has the project's torch
    (empty: the one that runs GraphGuard); ``timeout`` in seconds and ``memory`` in bytes (None: half of the machine's) bound one check; ``levels`` maps rules to severities or ``off``; ``sources`` are installed packages that count as the user's own code.
    ``ranks``: up to how many ranks all of them are recorded (None: however many there are).
    """

    root: Path
    checks: tuple[str, ...] = ("checks/**/*.py",)
    python: tuple[str, ...] = ()
    timeout: float = 60.0
    memory: int | None = None
    levels: dict[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    ranks: int | None = RANKS


def load_configuration(start: Path) -> Configuration:
    """The settings that hold for a file or folder: those of the nearest pyproject.toml upward.

    Without one the project is the nearest folder with a ``.git``, or ``start`` itself.  Raises ``ConfigurationError``.
    """
    folder = Path(os.path.abspath(start))  # no .. in the names of files: Path.absolute() leaves them
    if not folder.is_dir():
        folder = folder.parent
    for candidate in (folder, *folder.parents):
        file = candidate / "pyproject.toml"
        if file.is_file():
            return _read(file)
    return Configuration(repository(folder))


def repository(folder: Path) -> Path:
    """The nearest folder upward with a ``.git``; the folder itself where there is none."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def _read(file: Path) -> Configuration:
    try:
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        place = re.search(r"at line (\d+)", str(error))
        raise ConfigurationError(file, int(place[1]) if place is not None else 0, str(error)) from error
    except OSError as error:
        raise ConfigurationError(file, 0, f"cannot be read: {error.strerror}") from error
    table = document.get("tool", {}).get("graphguard", {})
    return _Reader(file, text).configuration(table)


class _Reader:
    """Turns the table into a :class:`Configuration`; every complaint names the line of its key."""

    def __init__(self, file: Path, text: str) -> None:
        self._file = file
        self._lines = text.splitlines()

    def configuration(self, table: Any) -> Configuration:
        if not isinstance(table, dict):
            raise self._error("graphguard", "[tool.graphguard] must be a table")
        readers: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
            "checks": ("checks", self._texts),
            "python": ("python", self._command),
            "timeout": ("timeout", self._seconds),
            "memory": ("memory", self._bytes),
            "rules": ("levels", self._levels),
            "sources": ("sources", self._packages),
            "ranks": ("ranks", self._ranks),
        }
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in readers:
                near = difflib.get_close_matches(key, readers, 1)
                known = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(readers)}"
                raise self._error(key, f"[tool.graphguard] has no setting {key!r}{known}")
            name, reader = readers[key]
            values[name] = reader(key, value)
        return Configuration(self._file.parent, **values)

    def _error(self, key: str, message: str) -> ConfigurationError:
        pattern = re.compile(rf"^\s*\[?[\w.\"-]*{re.escape(key)}\b")
        begin = next((i for i, line in enumerate(self._lines) if line.lstrip().startswith("[tool.graphguard")), 0)
        line = next((i for i in range(begin, len(self._lines)) if pattern.match(self._lines[i])), begin)
        return ConfigurationError(self._file, line + 1, message)

    def _texts(self, key: str, value: Any) -> tuple[str, ...]:
        rows = [value] if isinstance(value, str) else value
        if not isinstance(rows, list) or not all(isinstance(row, str) and row for row in rows):
            raise self._error(key, f"{key} must be a list of texts, such as ['checks/*.py']")
        return tuple(rows)

    def _packages(self, key: str, value: Any) -> tuple[str, ...]:
        names = self._texts(key, value)
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")):
                raise self._error(
                    key, f"{key} must be names of packages, such as ['megatron', 'torchtitan']; found {name!r}"
                )
        return names

    def _ranks(self, key: str, value: Any) -> int | None:
        if isinstance(value, str) and value in RANKS_WORDS:
            return RANKS_WORDS[value]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            words = " or ".join(map(repr, RANKS_WORDS))
            raise self._error(
                key, f"{key} must be {words}, or the number of ranks up to which all are recorded; found {value!r}"
            )
        return value

    def _command(self, key: str, value: Any) -> tuple[str, ...]:
        return tuple(shlex.split(value)) if isinstance(value, str) else self._texts(key, value)

    def _seconds(self, key: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise self._error(key, f"{key} must be a positive number of seconds; found {value!r}")
        return float(value)

    def _bytes(self, key: str, value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]i?B)", value, re.IGNORECASE) if isinstance(value, str) else None
        if match is None:
            raise self._error(key, f"{key} must be a number of bytes or a text such as '8 GiB'; found {value!r}")
        return int(float(match[1]) * _UNITS[match[2].upper()])

    def _levels(self, key: str, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise self._error(key, "rules must be a table, such as rules = { lower-precision = 'warning' }")
        for rule, level in value.items():
            try:
                known_rule(rule)
            except UnknownRuleError as error:
                raise self._error(rule, str(error)) from error
            if level not in LEVELS:
                raise self._error(rule, f"the level of {rule} must be one of {', '.join(LEVELS)}; found {level!r}")
        return dict(value)
