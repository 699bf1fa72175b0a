"""How a tensor lies on the ranks, in DTensor's words, from what it is on each of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

_FORM: Final = re.compile(
    r"(?P<factor>\S+ \* )?(?P<partial>partial sum of )?(?P<name>[^\s\"]+?)(\[(?P<slices>[^\]\"]*:[^\]]*)\])?"
)


def layout_of(texts: Mapping[int, str], mesh: Mapping[str, int]) -> str:
    """Such as ``Shard(1) over tp``; empty where these words do not say it.

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
    sharded = [
        f"Shard({dim}) over {', '.join(_axes(column, mesh))}"
        for dim, column in enumerate(columns)
        if len(set(column)) > 1
    ]
    words = [*(["Partial"] if found[0]["partial"] else []), *sharded] or ["Replicate"]
    return (found[0]["factor"] or "") + ", ".join(words)


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
