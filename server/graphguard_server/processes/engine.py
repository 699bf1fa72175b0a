"""What the server needs of the engine, as one value, so that tests can put other processes in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from graphguard.checks.judging.requests import CheckRequest, Steps
from graphguard.ir.capture import CheckRef
from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Diagnostic, Report
from graphguard_server.processes.processes import Launch, Limits


class FoundCheck(Protocol):
    """A check found in source: its place, and its meshes where they are literals."""

    @property
    def ref(self) -> CheckRef:
        """Its name and place."""

    @property
    def meshes(self) -> Sequence[dict[str, int]] | None:
        """Its meshes; None where only running the file tells."""


@dataclass(frozen=True, slots=True)
class ProjectConfiguration:
    """What `[tool.graphguard]` says about a project's folder; ``trouble`` where it could not be read, with file and line, and ``place`` alone."""

    root: str
    checks: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    timeout: float = 60.0
    memory: int | None = None
    levels: Mapping[str, str] | None = None
    sources: tuple[str, ...] = ()
    ranks: int | None = None
    trouble: str = ""
    place: Span | None = None

    @property
    def effective(self) -> ProjectConfiguration:
        """What of it decides results: all but what is wrong with it."""
        return replace(self, trouble="", place=None)


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine as functions.

    ``steps`` are the steps of a check; ``discover`` finds checks in ``(path, text, root)``, ``configure`` reads the project around a folder;
    ``check_files`` lists a project's files that may hold checks (called in a thread); ``waive`` applies the waivers in the given texts, ``unused_waivers`` finds those of a file ``(reports, path, text, levels)`` that no
    report needs; ``worker`` and ``prover`` start the processes; ``clear_cache`` empties
    what is kept on disk and says how much that was.
    """

    steps: Callable[[CheckRequest], Steps]
    discover: Callable[[str, str, str], Sequence[FoundCheck]]
    configure: Callable[[str], ProjectConfiguration]
    check_files: Callable[[ProjectConfiguration], Sequence[str]]
    waive: Callable[[Report, Mapping[str, str], Mapping[str, str]], Report]
    unused_waivers: Callable[[Sequence[Report], str, str, Mapping[str, str]], Sequence[Diagnostic]]
    worker: Callable[[Sequence[str], str, Sequence[str]], Launch]
    prover: Callable[[], Launch]
    clear_cache: Callable[[], int]
    limits: Limits = field(default_factory=Limits)
