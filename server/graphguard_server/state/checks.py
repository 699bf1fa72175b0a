"""What the server knows about checks: where they stand, and the last result of each on each mesh."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from graphguard.ir.capture import CheckRef
from graphguard.report.diagnostics import Report, Verdict
from graphguard_server.texts.places import Place

Activity = Literal["idle", "queued", "tracing", "proving"]
Result = Literal["idle", "proved", "assumed", "unknown", "broken", "error"]
Mesh = dict[str, int]


class RunKey(NamedTuple):
    """One check of one project on one mesh."""

    root: str
    check: str
    mesh: str


def mesh_label(mesh: Mapping[str, int] | None) -> str:
    """A mesh as users write it on the command line, such as ``tp=2,dp=4``; empty where the check decides."""
    return ",".join(f"{axis}={size}" for axis, size in mesh.items()) if mesh else ""


@dataclass(slots=True)
class Run:
    """A check on one mesh: what is being done about it, and its last result with the texts it was computed from.

    ``snapshot`` maps every file of the check to the text that was checked.  ``failure`` says why there is no report.
    ``search`` is there while fixes are being proved, and is set at the end of that.
    ``attempts`` and ``lookups`` count how often a process ended over the check, or over questions about its proof, one after the other.
    ``outdated`` results are stale whatever the texts say, for they are of another interpreter or configuration.
    """

    key: RunKey
    mesh: Mesh | None
    activity: Activity = "idle"
    report: Report | None = None
    failure: str = ""
    snapshot: dict[str, str] = field(default_factory=dict)
    stale: bool = False
    outdated: bool = False
    places: tuple[Place, ...] | None = None
    relations: dict[str, str] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    claimed: tuple[str, ...] = ()
    attempts: int = 0
    lookups: int = 0
    search: asyncio.Event | None = None

    @property
    def result(self) -> Result:
        """The last result in one word."""
        if self.failure:
            return "error"
        if self.report is None:
            return "idle"
        if self.report.verdict is Verdict.REFINES:
            return "assumed" if self.report.particular_assumptions else "proved"
        if self.report.verdict is None:
            return "error"
        return "broken" if self.report.verdict is Verdict.BROKEN else "unknown"

    @property
    def state(self) -> str:
        """What is under way, else the last result: a ``RunState`` of the protocol."""
        return self.result if self.activity == "idle" else self.activity

    @property
    def known(self) -> bool:
        """Whether there is a result of any kind."""
        return self.report is not None or bool(self.failure)

    @property
    def described(self) -> bool:
        """Whether hover, hints and references have what they tell of tensors: it follows the verdict, where there is a proof to ask."""
        return self.report is None or not self.report.proof or self.places is not None

    @property
    def seconds(self) -> float:
        """Wall-clock time of the last result."""
        return sum(self.report.seconds.values()) if self.report is not None else 0.0

    @property
    def shown_mesh(self) -> Mesh:
        """The mesh to show: the report's where the check decided."""
        if self.mesh is None and self.report is not None:
            return dict(self.report.mesh)
        return dict(self.mesh or {})


@dataclass(slots=True)
class Check:
    """A check of a file: its place, and one run per mesh.

    ``meshes`` are those its source names, None where it computes them; ``listed`` are those that running it has shown, for the text ``listed_for``.
    """

    root: str
    file: str
    ref: CheckRef
    meshes: tuple[Mesh, ...] | None
    text: str
    runs: dict[str, Run] = field(default_factory=dict)
    listed: tuple[Mesh, ...] = ()
    listed_for: str = ""

    def plan(self) -> None:
        """Make ``runs`` the runs of ``meshes``, keeping the results of those that stay."""
        wanted: tuple[Mesh | None, ...] = (self.listed or (None,)) if self.meshes is None else self.meshes
        kept = self.runs
        self.runs = {}
        for mesh in wanted:
            label = mesh_label(mesh)
            self.runs[label] = kept.get(label) or Run(RunKey(self.root, self.ref.id, label), mesh)
