"""What the relation explorer shows: one row a tensor, the tree of modules above the rows, and the expressions that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphguard.ir import Span

State = Literal["proved", "broken", "off"]
"""In relation; off it though its operands are on it; off it because they are."""
Kind = Literal["input", "operator", "collective"]


@dataclass(frozen=True, slots=True)
class Site:
    """An expression of the source: its span and those of the calls around it, innermost first, and the operators that it comes to.

    Layers that share their code share their sites.
    """

    kind: Kind
    operators: tuple[str, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one program computes in a row: ``site`` is an index; ``text`` says what a rank's tensor is of the specification, empty where nothing is known."""

    site: int
    name: str
    shape: tuple[int, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor: what the specification computes, and what each rank does.

    ``relation`` is how it is rebuilt from the ranks' tensors, ``layout`` the same in DTensor's words.  ``reads`` are the rows that it is made of.
    """

    module: str
    phase: str
    state: State
    layout: str
    relation: str
    cells: tuple[Cell | None, ...]
    reads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A module's rows, from ``start`` up to ``end``, and how many of them are ``proved``; ``depth`` counts the groups around it."""

    name: str
    depth: int
    start: int
    end: int
    proved: int


@dataclass(frozen=True, slots=True)
class Picture:
    """The rows in order of execution with the specification's cell first; ``ranks`` are the classes of ranks that compute the same throughout."""

    sites: tuple[Site, ...]
    ranks: tuple[tuple[int, ...], ...]
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
