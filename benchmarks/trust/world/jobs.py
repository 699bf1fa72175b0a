"""What a rank is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.trust.world.results import Tree


@dataclass(frozen=True, slots=True)
class Job:
    """What a rank is to run: a program's file, on so many inputs; ``late`` lets what is asynchronous happen as late as it may."""

    path: Path
    world_size: int
    port: int
    trials: int
    late: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rank made of a job: what the specification and it returned, by trial, or what was raised and by which of them."""

    wanted: tuple[Tree, ...] = ()
    found: tuple[Tree, ...] = ()
    raised: str = ""
    by: str = ""
    not_dense: bool = False
