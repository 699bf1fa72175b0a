"""The tree of modules above the rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from graphguard.checks.explorer.rows import Group, Row

FEWEST = 2


def outline(rows: Sequence[Row]) -> tuple[Group, ...]:
    """The groups in the order of their rows, each before those inside it: consecutive rows of one phase, then of one module.

    One row is no group, and a group of nothing but one other group is one with it.
    """
    phases = len({row.phase for row in rows}) > 1
    paths = [((row.phase,) if phases else ()) + tuple(filter(None, row.module.split("."))) for row in rows]
    found: list[Group] = []
    _divide(rows, paths, 0, len(rows), 0, 0, found)
    return tuple(found)


def _divide(
    rows: Sequence[Row],
    paths: Sequence[tuple[str, ...]],
    start: int,
    end: int,
    level: int,
    depth: int,
    found: list[Group],
) -> None:
    """Append the groups of some rows, by the names at ``level`` of their paths."""
    for name, members in itertools.groupby(range(start, end), lambda at: paths[at][level : level + 1]):
        first, *others = members
        last = others[-1] if others else first
        if not name or last - first + 1 < FEWEST:
            continue
        below = level + 1
        while len({path[below : below + 1] for path in paths[first : last + 1]}) == 1 and paths[first][below:]:
            below += 1
        proved = sum(row.state == "proved" for row in rows[first : last + 1])
        found.append(Group(".".join(paths[first][level:below]), depth, first, last + 1, proved))
        _divide(rows, paths, first, last + 1, below, depth + 1, found)
