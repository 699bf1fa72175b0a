"""What runs are started from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from graphguard_server.processes.engine import ProjectConfiguration
from graphguard_server.state.checks import RunKey


@dataclass(frozen=True, slots=True)
class Start:
    """What a run was started from: what it finds belongs to that, whatever has been typed or configured since."""

    texts: dict[str, str]
    configuration: ProjectConfiguration
    interpreter: tuple[str, ...]


class Executing(Protocol):
    """Who runs checks (see ``execution``): ``underway`` maps each run in progress to what it was started from."""

    underway: dict[RunKey, Start]

    async def execute(self, key: RunKey) -> None:
        """Run a check and take over its result."""
        ...
