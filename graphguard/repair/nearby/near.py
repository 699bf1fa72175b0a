"""The drafts near a finding, the likeliest first: by what kind of mistake they are of, and by how far from the finding they stand."""

from __future__ import annotations

from typing import Final, NamedTuple

from graphguard.refine.finding import Finding
from graphguard.repair.drafting.candidates import Candidate
from graphguard.repair.nearby.alike import inverses, marks, operators, orders, places
from graphguard.repair.nearby.arguments import as_another_call, flags, left_out
from graphguard.repair.nearby.left_over import discarded, idle, uncalled, unread_parameters
from graphguard.repair.nearby.order import earlier, exchanged
from graphguard.repair.nearby.scene import FAR, Kind, Mistake, Scene
from graphguard.repair.text.frames import Sources
from graphguard.repair.writing.applied import apart, applied
from graphguard.report.diagnostics import Fix, TextEdit

MOST: Final = 24  # drafts of a finding: each is recorded anew
_FAR: Final = 4  # calls from the finding after which it does not matter how many more there are


class _Asked(NamedTuple):
    """A kind of mistake, how unlikely it is, and how many calls from the finding it is looked for."""

    kind: Kind
    cost: int
    within: int = FAR


# What is left over or left out is seldom meant; another order, flag or operator is tried of what is near alone.
KINDS: Final = (
    _Asked(discarded, 0),
    _Asked(idle, 0),
    _Asked(left_out, 0),
    _Asked(unread_parameters, 0),
    _Asked(uncalled, 0),
    _Asked(marks, 0),
    _Asked(as_another_call, 1, 4),
    _Asked(exchanged, 1, 3),
    _Asked(earlier, 1, 3),
    _Asked(flags, 1, 4),
    _Asked(places, 2, 4),
    _Asked(orders, 2, 3),
    _Asked(operators, 2, 3),
    _Asked(inverses, 2, 1),
)
_FORGOTTEN: Final = frozenset((left_out, unread_parameters))


def nearby(
    finding: Finding, sources: Sources, before: tuple[TextEdit, ...] = (), forgotten: bool = False
) -> list[Candidate]:
    """Edited sources, each with one draft on top of the edits that were made ``before``; ``forgotten``: only what callers do not give, or functions do not read."""
    found = []
    for mistake in near(finding, sources, forgotten):
        texts = applied((*before, *mistake.edits), sources) if apart(before, mistake.edits) else None
        if texts is not None:
            fix = Fix(mistake.title, mistake.edits, proved=False, place=mistake.place)
            found.append(Candidate(fix, texts, mistake.told))
    return found


def near(finding: Finding, sources: Sources, forgotten: bool = False) -> list[Mistake]:
    """What may be wrong with the project's files."""
    scene = Scene.of(sources.programs(), [finding.span] if finding.span is not None else [], sources.capture)
    found: dict[tuple[TextEdit, ...], tuple[int, Mistake]] = {}
    for asked in KINDS:
        for scope in scene.scopes if not forgotten or asked.kind in _FORGOTTEN else ():
            for mistake in asked.kind(scope, scene) if scope.away <= asked.within else ():
                found.setdefault(mistake.edits, (asked.cost + min(scope.away, _FAR), mistake))
    return [mistake for _, mistake in sorted(found.values(), key=lambda row: row[0])][:MOST]
