"""A training script as a command line names it, and what recording it has shown: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: The seed that a script starts with: without it every process of a job would draw other numbers, and nobody could say which.
UNSEEDED = 3_141_592_653
#: The output that a script's losses add up to.
LOSS = "loss"
#: Begins the names of outputs that are parameters as the script made them.
START = "start "


@dataclass(frozen=True, slots=True)
class Item:
    """One sample that a loader handed out: of which dataset, and which of its items, by index or by a digest of its content."""

    dataset: str
    index: str

    def __str__(self) -> str:
        return self.index


@dataclass(frozen=True, slots=True)
class Place:
    """Where the reference has an item: the name of its batch, and its row there."""

    batch: str
    row: int


@dataclass(frozen=True, slots=True)
class Script:
    """A script to be run in ``folder`` with ``arguments``, on one rank with ``reference`` ones, until its optimizers have made so many ``steps``.

    ``path`` is its file, and ``module`` its name where it is run by that (``-m``).  What it writes goes to ``scratch``.
    ``merged``: of so many batches of a loader one is made on one rank.  ``places`` say by rank and item which of the reference's items a rank's stands for, where that is not itself.
    ``loss``: whether losses are compared.  ``parts``: whether every rank has a part of the samples.  ``mesh``: whether the axes are those of the command line.
    """

    path: str
    folder: str
    arguments: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    module: str = ""
    steps: int = 1
    scratch: str = ""
    loss: bool = True
    merged: int = 1
    places: Mapping[int, Mapping[Item, Place]] = field(default_factory=dict)
    parts: bool = False
    mesh: bool = False

    @property
    def name(self) -> str:
        """What a report calls it."""
        return self.module or self.path.rpartition("/")[2]

    def given(self, *, alone: bool) -> tuple[str, ...]:
        """The arguments of a program."""
        return self.reference if alone else self.arguments

    def as_plain(self) -> dict[str, Any]:
        """As a request holds it: before anything was recorded."""
        plain = asdict(self)
        for name in ("merged", "places", "parts"):
            del plain[name]
        return plain


def script_of(plain: Mapping[str, Any]) -> Script:
    """What a request holds."""
    lists = {name: tuple(plain[name]) for name in ("arguments", "reference")}
    return Script(**{**plain, **lists})
