"""The way from a check to its report, without input or output of its own.

:func:`check_steps` is a generator: it yields what it needs from a process (:class:`Step`) and is sent the answer.  The command
line drives it in a loop, the language server from its event loop; both get the same reports from the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Step:
    """A request to one of the processes: the tracing ``worker`` (torch, user code) or the ``prover`` (pure Python).

    ``params`` and the answer are plain data (JSON); large payloads (captures) travel as ``bytes`` values.
    """

    process: Literal["worker", "prover"]
    method: str
    params: dict[str, Any] = field(default_factory=dict)
