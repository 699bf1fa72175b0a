"""Guesses about a whole slice, joined where one change of the source would make several edits, the likeliest first.

A hypothesis is only a guess: it counts once the edited program is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction

from graphguard.ir import Capture
from graphguard.repair.alignment import Position, outputs_of
from graphguard.repair.edits import Edit, InsertReduction, Scale
from graphguard.repair.guesses import Guess, Neighbours, axis_factors, guesses_at
from graphguard.repair.slices import Site

ALONE = 3  # how much less likely it is that only one pass through a source line is wrong
_WHERE = frozenset({"tensors", "position", "addition", "reduction", "product"})


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """An edit, the rule that it would be a repair of, and the site where it applies; lower ``cost`` is tried first.

    ``others`` are the same edit at the other sites of the same source place: a loop, or a module that is called several times.
    """

    rule: str
    edit: Edit
    site: Site
    cost: int
    others: tuple[Edit, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits that one change of the source would make, the last in the program first, so that indices stay valid."""
        return (*reversed(self.others), self.edit)


def hypotheses(
    capture: Capture,
    sites: Mapping[int, Site],
    ratios: Mapping[str, float],
    promises: tuple[str, ...],
    places: Callable[[Site], Iterable[Hashable]],
) -> list[Hypothesis]:
    """Every guess about a slice, cheapest first; sites that share one of their ``places`` in the source are guessed about together first."""
    around = Neighbours.of(capture, sites)
    found = [guess for site in sites.values() for guess in guesses_at(site, around)]
    found.extend(_at_outputs(capture, sites, ratios, promises))
    return sorted(_families(found, places), key=lambda guess: (guess.cost, guess.site.number))


def _families(guesses: list[Guess], places: Callable[[Site], Iterable[Hashable]]) -> list[Hypothesis]:
    """Guesses that one change of the source would make at once, joined; each of them alone comes later."""
    families: dict[Hashable, dict[int, Hypothesis]] = {}
    for rule, edit, site, cost in guesses:
        for place in places(site):
            key = (rule, cost, place, site.node.op, _kind(edit))
            families.setdefault(key, {}).setdefault(site.number, Hypothesis(rule, edit, site, cost))
    joined: dict[Hashable, Hypothesis] = {}
    for family in families.values():
        first, *rest = family.values()
        whole = replace(first, others=tuple(guess.edit for guess in rest))
        joined.setdefault((whole.rule, _kind(whole.edit), *family), whole)
        for number, guess in family.items():
            if rest:
                joined.setdefault((guess.rule, _kind(guess.edit), number), replace(guess, cost=guess.cost + ALONE))
    return list(joined.values())


def _kind(edit: Edit) -> Hashable:
    """What an edit does, apart from where."""
    what = ((field.name, getattr(edit, field.name)) for field in fields(edit) if field.name not in _WHERE)
    return (type(edit), *((name, str(value)) for name, value in what))


def _at_outputs(
    capture: Capture, sites: Mapping[int, Site], ratios: Mapping[str, float], promises: Iterable[str]
) -> Iterator[Guess]:
    for name in promises:
        site = _producer(capture, sites, name)
        if site is None:
            continue
        factors = axis_factors(capture)
        if ratio := ratios.get(name):
            factors = list(dict.fromkeys([1 / Fraction(ratio).limit_denominator(1 << 20), *factors]))
        for factor in factors:
            yield "wrong-scale", Scale(site.tensors, factor), site, 4
        for axis in capture.mesh:
            rule = "gradient-not-reduced" if name.startswith("grad(") else "missing-reduction"
            yield rule, InsertReduction(site.tensors, axis), site, 3


def _producer(capture: Capture, sites: Mapping[int, Site], name: str) -> Site | None:
    for site in reversed(list(sites.values())):
        for rank, graph in enumerate(capture.ranks):
            if graph.outputs.get(name) in outputs_of(capture, _only(site.position, rank)).values():
                return site
    return None


def _only(position: Position, rank: int) -> Position:
    return {rank: position[rank]} if rank in position else {}
