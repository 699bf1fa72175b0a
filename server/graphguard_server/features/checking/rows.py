"""``graphguard/rows``: some rows of a picture that ``graphguard/relations`` announced, as the explorer scrolls to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from graphguard.ir.spans import Span
from graphguard_server.features.checking.checks import plain_range
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Run
from graphguard_server.state.pictures import Picture

METHOD: Final = protocol.ROWS
COMMAND: Final = "graphguard.rows"

MOST: Final = 1000


def handle(server: GraphGuardServer, params: Any) -> dict[str, Any] | None:
    """The rows from ``first`` up to ``end`` with the cells of the named ranks; None where the picture is no longer kept."""
    values = params if isinstance(params, dict) else {}
    picture = server.pictures.named(str(values.get("picture", "")))
    first, end, columns = values.get("first"), values.get("end"), values.get("columns")
    if picture is None or not isinstance(first, int) or not isinstance(end, int) or not isinstance(columns, list):
        return None
    count = sum(map(len, picture.ranks))
    ranks = [rank for rank in columns if isinstance(rank, int) and 0 <= rank < count]
    first = max(0, first)
    return {"first": first, "rows": plain_rows(server, picture, first, min(end, first + MOST), ranks)}


def plain_rows(
    server: GraphGuardServer, picture: Picture, first: int, end: int, columns: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows as the client gets them: the specification's cell, then those of some ranks."""
    places: dict[int, dict[str, Any]] = {}

    def cell(plain: dict[str, Any] | None) -> dict[str, Any] | None:
        if plain is None:
            return None
        number = plain["site"]
        if number not in places:
            places[number] = _site(server, picture, number)
        return {**places[number], "name": plain["name"], "shape": plain["shape"], "text": plain["text"]}

    return [
        {
            **{key: row[key] for key in ("module", "phase", "state", "layout", "relation", "reads")},
            "cells": [cell(row["cells"][0]), *(cell(row["cells"][rank + 1]) for rank in columns)],
        }
        for row in picture.rows[first:end]
    ]


def location(server: GraphGuardServer, run: Run, span: Span) -> dict[str, Any]:
    """A span of a run as a location of the texts as they are now."""
    found = server.session.converter.location(run, span)
    return {"uri": found.uri, "range": plain_range(found.range)}


def _site(server: GraphGuardServer, picture: Picture, number: int) -> dict[str, Any]:
    site, spans = picture.sites[number], picture.spans[number]
    plain = {"kind": site["kind"], "operators": site["operators"], "code": picture.code[number]}
    return {**plain, "location": location(server, picture.run, spans[0])} if spans else plain
