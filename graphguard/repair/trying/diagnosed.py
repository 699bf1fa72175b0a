"""What repairs start from: findings, and what was confirmed to mend them."""

from __future__ import annotations

from dataclasses import dataclass

from graphguard.refine.finding import Finding
from graphguard.repair.trying.trials import Repair


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Findings and, for each, the repair that was confirmed on the graphs (None where none was)."""

    findings: tuple[Finding, ...]
    repairs: tuple[Repair | None, ...]
