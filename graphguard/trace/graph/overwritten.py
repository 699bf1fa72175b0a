"""Calls of no account: what a program fills its parameters with before they are given the values that the check is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from graphguard.trace.calls.events import Event, Geometry, refs_in
from graphguard.trace.pure.harmless import identity

_COPY: Final = torch.ops.aten.copy_.default
_EMPTY: Final = frozenset((torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default))


def overwritten(events: Sequence[Event]) -> set[int]:
    """The calls of the prelude, by identity, that only give memory values that are overwritten, all of them, before anything else is done with it."""
    prelude = [event for event in events if event.phase == "prelude"]
    wholes = {event.outs.storage: event.outs.geometry for event in prelude if event.op in _EMPTY}
    covered: set[int] = set()
    found = set()
    for event in reversed(prelude):
        if _is_dead(event, wholes, covered):
            found.add(identity(event))
            continue
        covers = event.op is _COPY and event.args[0].geometry == wholes.get(event.args[0].storage)
        if covers:
            covered.add(event.args[0].storage)
        covered.difference_update([ref.storage for ref in refs_in((event.args[1 if covers else 0 :], event.kwargs))])
        if not covers:
            covered.difference_update([ref.storage for ref in refs_in(event.outs)])
    return found


def _is_dead(event: Event, wholes: dict[int, Geometry], covered: set[int]) -> bool:
    """Whether all that a call makes or changes is covered, as a whole."""
    if not covered or event.kind is None or event.kind.may_communicate or event.kind.is_foreign:
        return False
    made = [*event.written, *refs_in(event.outs)]
    return bool(made) and all(ref.storage in covered and ref.geometry == wholes[ref.storage] for ref in made)
