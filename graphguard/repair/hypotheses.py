"""What could be wrong at a site, as edits worth trying, the idiomatic ones first.

A hypothesis is only a guess: it counts once the edited program is proved.  Guesses are made from how the site's operands stand to
the specification, from the kind of operator, and from constant ratios that numbers showed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from graphguard.ir import Capture, Var
from graphguard.repair.alignment import Position, outputs_of
from graphguard.repair.edits import (
    AddAfterReduction,
    Bypass,
    Edit,
    InsertGather,
    InsertReduction,
    Scale,
    SetArgument,
    group_of,
)
from graphguard.repair.slices import Site

REDUCING = frozenset({"gg.all_reduce", "gg.reduce_scatter", "gg.reduce"})
SCALING = frozenset({"aten.mul.Tensor", "aten.mul.Scalar", "aten.div.Tensor", "aten.div.Scalar"})
CASTS = frozenset({"aten._to_copy.default"})
ALONE = 4  # how much less likely it is that only one pass through a source line is wrong


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
    place: Callable[[Site], Hashable],
) -> list[Hypothesis]:
    """Every guess about a slice, cheapest first; sites with one ``place`` in the source are guessed about together first."""
    found: list[Hypothesis] = []
    for site in sites.values():
        found.extend(_at(capture, site, sites))
    found.extend(_at_outputs(capture, sites, ratios, promises))
    found = _families(found, place)
    return sorted(found, key=lambda guess: (guess.cost, guess.site.number))


def _families(guesses: list[Hypothesis], place: Callable[[Site], Hashable]) -> list[Hypothesis]:
    """Guesses that one change of the source would make at once, joined; each of them alone comes later."""
    families: dict[Hashable, dict[int, Hypothesis]] = {}
    for guess in guesses:
        key = (guess.rule, guess.cost, place(guess.site), guess.site.node.op, kind_of(guess.edit))
        families.setdefault(key, {}).setdefault(guess.site.number, guess)
    joined = []
    for family in families.values():
        first, *rest = family.values()
        if rest:
            joined.append(replace(first, others=tuple(guess.edit for guess in rest)))
            joined.extend(replace(guess, cost=guess.cost + ALONE) for guess in family.values())
        else:
            joined.append(first)
    return joined


def kind_of(edit: Edit) -> Hashable:
    """What an edit does, apart from where."""
    match edit:
        case InsertReduction(axis=axis, reduce=reduce):
            return ("reduce", axis, reduce)
        case InsertGather(axis=axis, dim=dim):
            return ("gather", axis, dim)
        case Scale(factor=factor):
            return ("scale", factor)
        case Bypass():
            return ("bypass",)
        case SetArgument(index=index, values=values, what=what):
            return ("set", index, what, tuple(sorted(values.items())))
        case AddAfterReduction(moved=moved):
            return ("move", moved)


def _at(capture: Capture, site: Site, sites: Mapping[int, Site]) -> Iterator[Hypothesis]:
    operands = [sites[number] for number in site.operands if number in sites]
    born = site.state == "partial" and all(operand.state != "partial" for operand in operands)
    if born:
        yield from _reductions(site, 0)
    elif site.state == "partial":
        yield from _reductions(site, 3)
    if site.node.op in REDUCING:
        yield from _at_reduction(capture, site, operands)
    if site.state == "off" and all(operand.state != "off" for operand in operands):
        yield from _at_frontier(capture, site, operands)
    if site.node.op in SCALING:
        yield from _other_scalars(capture, site)


def _reductions(site: Site, cost: int) -> Iterator[Hypothesis]:
    rule = "gradient-not-reduced" if site.node.phase == "backward" else "missing-reduction"
    for axis in site.partial_axes:
        yield Hypothesis(rule, InsertReduction(site.tensors, axis), site, cost)


def _at_reduction(capture: Capture, site: Site, operands: list[Site]) -> Iterator[Hypothesis]:
    rank = min(site.position)
    _, reduce, group = site.node.args[:3]
    if site.node.op == "gg.all_reduce":
        yield Hypothesis("extra-reduction", Bypass(site.position), site, 1)
    for other in ("sum", "avg"):
        if other != reduce:
            values = dict.fromkeys(site.position, other)
            yield Hypothesis("wrong-scale", SetArgument(site.position, 1, values, "reduce"), site, 1)
    for axis in capture.mesh:
        groups = {member: group_of(capture, member, axis) for member in site.position}
        if groups[rank] != group and len(capture.mesh) > 1:
            yield Hypothesis("wrong-group", SetArgument(site.position, 2, dict(groups), axis), site, 2)
    for operand in operands:
        if operand.node.op == "aten.add.Tensor" and len(operand.node.args) == 2:
            for moved in (1, 0):
                edit = AddAfterReduction(operand.position, site.position, moved)
                yield Hypothesis("extra-reduction", edit, operand, 1)


def _at_frontier(capture: Capture, site: Site, operands: list[Site]) -> Iterator[Hypothesis]:
    for operand in operands:
        if operand.state == "partial":
            yield from _reductions(operand, 1)
        yield from _gathers(operand)
    if site.node.op in CASTS:
        yield Hypothesis("lower-precision", Bypass(site.position), site, 1)
    yield from _slices(capture, site)
    for factor in axis_factors(capture):
        yield Hypothesis("wrong-scale", Scale(site.tensors, factor), site, 5)


def _gathers(site: Site) -> Iterator[Hypothesis]:
    for axis, place in (site.relation.placements or {}).items() if site.relation else ():
        if place.kind == "shard":
            yield Hypothesis("missing-reduction", InsertGather(site.tensors, axis, place.dim), site, 4)


def _slices(capture: Capture, site: Site) -> Iterator[Hypothesis]:
    """Slices that should start where the rank's shard starts: offsets in units of the slice's own length, per mesh axis."""
    if site.node.op not in {"aten.slice.Tensor", "aten.select.int", "aten.narrow.default"}:
        return
    nodes = {rank: capture.ranks[rank].nodes[index] for rank, index in site.position.items()}
    for axis in capture.mesh:
        starts: dict[int, int] = {}
        stops: dict[int, int] = {}
        for rank, node in nodes.items():
            dim = int(str(node.args[1])) if len(node.args) > 1 else 0
            out = capture.ranks[rank].types[node.outs[0]].shape
            length = 1 if node.op == "aten.select.int" else out[dim]
            if not isinstance(length, int):
                return
            starts[rank] = capture.coordinates(rank)[axis] * length
            stops[rank] = starts[rank] + length
        yield Hypothesis("wrong-shard", _moved_slice(site, nodes, starts, stops), site, 2)


def _moved_slice(site: Site, nodes: Mapping[int, object], starts: dict[int, int], stops: dict[int, int]) -> Edit:
    if site.node.op == "aten.slice.Tensor" and len(site.node.args) >= 4:
        return SetArgument(site.position, 2, {rank: starts[rank] for rank in nodes}, f"start:{max(stops.values())}")
    return SetArgument(site.position, 2, {rank: starts[rank] for rank in nodes}, "start")


def _other_scalars(capture: Capture, site: Site) -> Iterator[Hypothesis]:
    """A constant factor that is off by the size of a mesh axis."""
    if len(site.node.args) < 2 or isinstance(site.node.args[1], Var | tuple | str) or site.node.args[1] is None:
        return
    for factor in axis_factors(capture):
        yield Hypothesis("wrong-scale", Scale(site.tensors, factor), site, 2)


def axis_factors(capture: Capture) -> list[Fraction]:
    """The sizes of the mesh axes and of the whole mesh, and their reciprocals."""
    sizes = {size for size in (*capture.mesh.values(), capture.world_size) if size > 1}
    return [factor for size in sorted(sizes) for factor in (Fraction(1, size), Fraction(size))]


def _at_outputs(
    capture: Capture, sites: Mapping[int, Site], ratios: Mapping[str, float], promises: Iterable[str]
) -> Iterator[Hypothesis]:
    for name in promises:
        site = _producer(capture, sites, name)
        if site is None:
            continue
        ratio = ratios.get(name)
        factors = axis_factors(capture)
        if ratio:
            factors = list(dict.fromkeys([1 / Fraction(ratio).limit_denominator(1 << 20), *factors]))
        for factor in factors:
            yield Hypothesis("wrong-scale", Scale(site.tensors, factor), site, 4)
        for axis in capture.mesh:
            rule = "gradient-not-reduced" if name.startswith("grad(") else "missing-reduction"
            yield Hypothesis(rule, InsertReduction(site.tensors, axis), site, 3)


def _producer(capture: Capture, sites: Mapping[int, Site], name: str) -> Site | None:
    for site in reversed(list(sites.values())):
        for rank, graph in enumerate(capture.ranks):
            if graph.outputs.get(name) in outputs_of(capture, _only(site.position, rank)).values():
                return site
    return None


def _only(position: Position, rank: int) -> Position:
    return {rank: position[rank]} if rank in position else {}
