"""The drafts near a finding, the likeliest first: by what kind of mistake they are of, and by how far from the finding they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from graphguard.ir import Span
from graphguard.refine.finding import Finding
from graphguard.repair.drafting.candidates import Candidate
from graphguard.repair.nearby.alike import inverses, marks, operators, orders, places
from graphguard.repair.nearby.arguments import as_another_call, as_sibling, flags, left_out
from graphguard.repair.nearby.decisions import cleared, undone
from graphguard.repair.nearby.left_over import discarded, idle, kept_from_loop, uncalled, unread_parameters
from graphguard.repair.nearby.order import earlier, moved
from graphguard.repair.nearby.scene import FAR, Kind, Mistake, Scene
from graphguard.repair.text.frames import Sources
from graphguard.repair.writing.applied import apart, applied
from graphguard.report.diagnostics import Fix, TextEdit

MOST: Final = 24  # drafts of a finding: each is recorded anew
FEW: Final = 16  # statements of one that are not run
_FAR: Final = 4  # calls from the finding after which it does not matter how many more there are


class Asked(NamedTuple):
    """A kind of mistake, how unlikely it is, and how many calls from the finding it is looked for."""

    kind: Kind
    cost: int
    within: int = FAR


# What is left over or left out is seldom meant; another order, flag or operator is tried of what is near alone.
KINDS: Final = (
    Asked(discarded, 0),
    Asked(idle, 0),
    Asked(left_out, 0),
    Asked(unread_parameters, 0),
    Asked(uncalled, 0),
    Asked(kept_from_loop, 0),
    Asked(marks, 0),
    Asked(as_another_call, 1, 4),
    Asked(as_sibling, 1, 4),
    Asked(moved, 1, 3),
    Asked(earlier, 1, 3),
    Asked(flags, 1, 4),
    Asked(places, 2, 4),
    Asked(orders, 2, 3),
    Asked(operators, 2, 3),
    Asked(inverses, 2, 1),
)
# Whatever these mend, no fix is made of them; the less one changes, the earlier it is tried.
DECISIONS: Final = (
    Asked(undone, 0, 4),
    Asked(cleared, 1, 4),
)
_FORGOTTEN: Final = frozenset((left_out, unread_parameters))
_WANTED: Final[dict[str, tuple[Asked, ...]]] = {
    "texts": KINDS,
    "forgotten": tuple(asked for asked in KINDS if asked.kind in _FORGOTTEN),
    "decisions": DECISIONS,
}


def nearby(
    finding: Finding, sources: Sources, before: tuple[TextEdit, ...] = (), wanted: str = "texts"
) -> list[Candidate]:
    """Edited sources, each with one draft on top of the edits that were made ``before``; ``wanted`` are all ``texts``, only what is ``forgotten`` (callers do not give it, or functions do not read it), or ``decisions``."""
    found = []
    most = MOST if wanted in ("texts", "forgotten") else FEW
    for mistake in near(finding, sources, _WANTED[wanted])[:most]:
        texts = applied((*before, *mistake.edits), sources) if apart(before, mistake.edits) else None
        if texts is not None:
            fix = Fix(mistake.title, mistake.edits, proved=False, place=mistake.place)
            found.append(Candidate(fix, texts, mistake.told))
    return found


def scene_of(finding: Finding, sources: Sources) -> Scene:
    """The functions of the project as they lie to a finding."""
    return Scene.of(sources.programs(), places_of(finding, sources), sources.capture)


def places_of(finding: Finding, sources: Sources) -> list[Span]:
    """Where a finding is, its own place first, then those that it was called from."""
    around = [each.span for each in finding.related if each.span != sources.capture.check.span]
    return [] if finding.span is None else [finding.span, *around]


def near(finding: Finding, sources: Sources, kinds: Sequence[Asked] = KINDS) -> list[Mistake]:
    """What may be wrong with the project's files."""
    scene = scene_of(finding, sources)
    found: dict[tuple[TextEdit, ...], tuple[int, Mistake]] = {}
    for asked in kinds:
        for scope in scene.scopes:
            for mistake in asked.kind(scope, scene) if scope.away <= asked.within else ():
                found.setdefault(mistake.edits, (asked.cost + min(scope.away, _FAR), mistake))
    return [mistake for _, mistake in sorted(found.values(), key=lambda row: row[0])][:MOST]
