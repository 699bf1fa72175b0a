"""One line on a terminal that says what is being done; nothing where there is no terminal."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TextIO

from graphguard.report.layout import width


@dataclass(slots=True)
class Progress:
    """The state of a run, drawn over itself in the last line of a terminal."""

    stream: TextIO
    columns: int
    total: int = 0
    done: int = 0
    _shown: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def show(self, text: str) -> None:
        """Draw the line anew."""
        if not self.stream.isatty():
            return
        with self._lock:
            line = f"[{self.done + 1}/{self.total}] {text}" if self.total else text
            while width(line) >= self.columns:
                line = line[:-1]
            self.stream.write(f"\r\x1b[2K{line}")
            self.stream.flush()
            self._shown = True

    def clear(self) -> None:
        """Take the line away, before anything else is written."""
        with self._lock:
            if self._shown:
                self.stream.write("\r\x1b[2K")
                self.stream.flush()
                self._shown = False
