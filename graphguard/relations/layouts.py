"""How a tensor lies on the ranks, in DTensor's words: ``Shard(1) over tp``, ``Partial(sum) over tp``, ``Replicate``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from graphguard.relations.relation import REPLICATE, Held, Relation, Same, Sliced, held, placed

_FORM: Final = re.compile(
    r"(?P<factor>\S+ \* )?(?P<partial>partial sum of )?(?P<name>[^\s\"]+?)(\[(?P<slices>[^\]\"]*:[^\]]*)\])?"
)


def layout_of(texts: Mapping[int, str], mesh: Mapping[str, int]) -> str:
    """The layout of a tensor, from what it is on each rank; empty where these words do not say it.

    ``texts`` maps every rank to what the tensor is there of the specification; ``mesh`` has its axes in order, the last varies fastest.
    """
    size = prod(mesh.values())
    forms = [_FORM.fullmatch(texts.get(rank, "")) for rank in range(size)]
    found = [form for form in forms if form is not None and "@" not in form[0]]
    if len(found) < size or len({(form["factor"], form["partial"], form["name"]) for form in found}) > 1:
        return ""
    slices = [[part.strip() for part in (form["slices"] or "").split(",")] for form in found]
    if len({len(each) for each in slices}) > 1:
        return ""
    columns = list(zip(*slices, strict=True))
    if any(len(set(column)) == 1 and column[0] not in ("", ":") for column in columns):
        return ""  # cut alike on every rank
    cut = [(dim, _axes(column, mesh)) for dim, column in enumerate(columns) if len(set(column)) > 1]
    words = [f"Shard({dim}) over {', '.join(axes)}" for dim, axes in cut]
    if found[0]["partial"]:
        words.insert(0, _partial([axis for axis, extent in mesh.items() if extent > 1 and not _among(axis, cut)]))
    return (found[0]["factor"] or "") + (", ".join(words) or REPLICATE)


def layout(relation: Relation) -> str:
    """The layout that a relation states; where it is none of a mesh, on which ranks the tensor is."""
    words = _of_ranks(relation) if relation.placements is None else placed(relation.placements)
    return words if relation.factor == 1 else f"{relation.factor} * {words}"


def _of_ranks(relation: Relation) -> str:
    expression = relation.expression
    ranks = sorted({part.rank for part in held(expression)})
    where = ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
    if isinstance(expression, Held):
        return f"whole on {where}"
    if isinstance(expression, Same) and all(isinstance(part, Held) for part in expression.parts):
        return f"the same on {where}"
    return f"part of {where}" if isinstance(expression, Sliced) else f"made of {where}"


def _partial(open_axes: Sequence[str]) -> str:
    """Over which axis is known where one alone is left."""
    return f"Partial(sum) over {open_axes[0]}" if len(open_axes) == 1 else "Partial(sum)"


def _among(axis: str, cut: Sequence[tuple[int, Sequence[str]]]) -> bool:
    return any(axis in axes for _, axes in cut)


def _axes(column: Sequence[str], mesh: Mapping[str, int]) -> list[str]:
    """The axes along which neighbouring ranks hold different parts."""
    places = list(itertools.product(*(range(extent) for extent in mesh.values())))
    ranks = {place: rank for rank, place in enumerate(places)}
    found = []
    for position, axis in enumerate(mesh):
        first = {place: (*place[:position], 0, *place[position + 1 :]) for place in places}
        if any(column[ranks[place]] != column[ranks[first[place]]] for place in places):
            found.append(axis)
    return found
