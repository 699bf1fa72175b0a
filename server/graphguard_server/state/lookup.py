"""From a position of the client to the tensors of the last results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lsprotocol import types

from graphguard_server.state.checks import Run
from graphguard_server.state.session import Session
from graphguard_server.texts.places import Place, places_at
from graphguard_server.texts.shifts import shift


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """The tensors of one run that a position is about."""

    run: Run
    places: tuple[Place, ...]


def at(session: Session, path: str, position: types.Position) -> Iterator[FoundPlaces]:
    """The tensors at a position of the text as it is now, run by run; stale runs are looked up in the text they are of."""
    now = session.documents.text(path)
    if now is None:
        return
    point = session.documents.ruler(path).place(position)
    for run in session.runs_in(path):
        text = run.snapshot[path]
        places = places_at(run.places or (), path, text, shift(now, text)(*point))
        if places:
            yield FoundPlaces(run, tuple(places))
