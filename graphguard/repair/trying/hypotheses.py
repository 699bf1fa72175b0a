"""Guesses about a whole slice, joined where one change of the source would make several edits, the likeliest first.

A hypothesis is only a guess: it counts once the edited program is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction

from graphguard.ir import Capture
from graphguard.ir.graph import COLLECTIVES
from graphguard.ops import REDUCTIONS
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.alignment import outputs_of
from graphguard.repair.graph.edits import (
    Bypass,
    ChangeCall,
    Edit,
    InsertCall,
    InsertReduction,
    OtherCalls,
    Scale,
    SetArgument,
    Tensors,
)
from graphguard.repair.graph.meanings import Sending
from graphguard.repair.graph.neighbours import SCALING, Guess, Neighbours
from graphguard.repair.graph.places import places as own_places
from graphguard.repair.graph.slices import ADDING, JOINING, LAYOUT, Site, partial_axes
from graphguard.repair.operators.called import called
from graphguard.repair.operators.coded import coded
from graphguard.repair.operators.crossed import crossed
from graphguard.repair.operators.guesses import axis_factors, guesses_at
from graphguard.repair.operators.guided import guided
from graphguard.repair.operators.parameters import parameters
from graphguard.repair.operators.siblings import siblings
from graphguard.repair.scales.accumulation import only_added_to
from graphguard.repair.scales.constants import constants
from graphguard.repair.scales.counted_targets import counted_targets
from graphguard.repair.scales.means import means
from graphguard.repair.scales.norms import norms, own_norms
from graphguard.repair.scales.passes import dropped_passes
from graphguard.repair.scales.rescaled import rescaled
from graphguard.repair.shards.attention import attention
from graphguard.repair.shards.masks import masks
from graphguard.repair.shards.offsets import offsets
from graphguard.repair.shards.triangles import triangles
from graphguard.repair.shards.unlike import unlike

COUNTED = 5  # how much less likely it is that a count should not be summed over the ranks
REDUCED = 3  # how much less likely a factor is within autograd than at a reduction that explains it
ALONE = 3  # how much less likely it is that only one pass through a source line is wrong
SUMMED = 2  # how much less likely it is that a summand of a gradient is to be reduced, and not the sum
_WHERE = frozenset({"tensors", "others", "position", "addition", "reduction", "earlier", "masks", "readers"})


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """An edit, the rule that it would be a repair of, and the site where it applies; lower ``cost`` is tried first.

    ``others`` are the same edit at the other sites of the same source place: a loop, or a module that is called several times.  ``own_pass`` says that it is only one of
    several gradients that a function computes which is wrong: what is wrong is said where that function was called in the forward pass.
    """

    rule: str
    edit: Edit
    site: Site
    cost: int
    others: tuple[Edit, ...] = ()
    own_pass: bool = False

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits that one change of the source would make, the last in the program first, so that indices stay valid."""
        return (*reversed(self.others), self.edit)


def hypotheses(
    proof: Proof,
    sites: Mapping[int, Site],
    ratios: Mapping[str, float],
    promises: tuple[str, ...],
    places: Callable[[Site], Iterable[Hashable]],
    named: Callable[[Site], bool],
    passes: Callable[[Site], Hashable],
    literal: Callable[[Site], bool],
) -> list[Hypothesis]:
    """Every guess about a slice, cheapest first; sites that share one of their ``places`` in the source are guessed about together first.

    A reduction is likelier of what the author gave a name (``named``) than of a part of an expression.  ``passes`` gives the forward call of a gradient,
    ``literal`` says whether a factor is written as a number.
    """
    capture = proof.capture
    around = Neighbours.of(capture, sites)
    found = [guess for site in sites.values() for guess in guesses_at(site, around)]
    found.extend(guided(proof, around))
    found.extend(dropped_passes(around))
    found.extend(coded(around))
    found.extend(constants(around))
    found.extend(attention(proof, around))
    found.extend(means(around))
    found.extend(counted_targets(around))
    found.extend(norms(around))
    found.extend(own_norms(around))
    found.extend(rescaled(around))
    found.extend(masks(around))
    found.extend(triangles(around))
    found.extend(own_places(around))
    found.extend(parameters(around))
    found.extend(offsets(around))
    found.extend(unlike(around))
    found.extend(crossed(around))
    found.extend(siblings(around))
    found.extend(called(around))
    found.extend(_of_other_results(sites.values(), proof))
    found.extend(_at_outputs(around, ratios, promises))
    found = list(_of_other_numbers(found, literal))
    found.extend(_at_other_passes(found, sites.values(), capture))
    reduced = {(site.number, edit.axis, edit.reduce) for _, edit, site, _ in found if isinstance(edit, InsertReduction)}
    found = [
        (
            rule,
            edit,
            site,
            cost
            + _unlikely(edit, site, cost, proof, named)
            + _within_autograd(edit, site, around)
            + _summand(edit, site, reduced, around),
        )
        for rule, edit, site, cost in found
        if not _multiplies(edit, site, proof)
        and not _stays_the_same(edit, proof)
        and not (isinstance(edit, InsertReduction) and only_added_to(site, around))
    ]
    return sorted(_families(found, places, passes), key=lambda guess: (guess.cost, guess.site.number))


def _of_other_results(sites: Iterable[Site], proof: Proof) -> Iterator[Guess]:
    """Gradients that one operator gives beside its first, such as those of a normalisation's weight and bias, of which ranks hold summands, or their own means."""
    capture = proof.capture
    for site in sites:
        if site.node.phase != "backward" or site.node.op in COLLECTIVES:
            continue
        for slot in range(1, len(site.node.outs)):
            tensors = outputs_of(capture, site.position, slot)
            relation = proof.group(tensors) if tensors else None
            for axis in () if relation is None else partial_axes(relation):
                yield "gradient-not-reduced", InsertReduction(tensors, axis), site, 0
                if relation is not None and relation.factor == capture.mesh[axis]:
                    yield "gradient-not-reduced", InsertReduction(tensors, axis, "avg"), site, 1


def _at_other_passes(guesses: list[Guess], sites: Iterable[Site], capture: Capture) -> list[Guess]:
    """Gradients that are to be averaged in one pass through a step are to be averaged in the others, in which what comes of them is another value already, so that no factor shows."""
    producers = {rank: capture.ranks[rank].producers() for rank in {min(site.position) for site in sites}}

    def written_as(site: Site) -> Hashable:
        """The place of a call in the source, and what it is called on: the gradients of both operands of a product are products there."""
        node, rank = site.node, min(site.position)
        graph, made = capture.ranks[rank], producers[rank]
        given = tuple((graph.types[var], graph.nodes[made[var]].op if var in made else "") for var in node.operands())
        return node.op, node.stack, node.forward, node.module, node.phase, given

    alike: dict[Hashable, list[Site]] = {}
    for site in sites:
        alike.setdefault(written_as(site), []).append(site)

    def key(edit: InsertReduction) -> Hashable:
        return min(edit.tensors), _target(edit), edit.reduce

    known = {key(edit) for _, edit, _, _ in guesses if isinstance(edit, InsertReduction)}
    found: list[Guess] = []
    for rule, edit, site, cost in guesses:
        if not isinstance(edit, InsertReduction) or edit.reduce != "avg" or site.node.phase != "backward":
            continue
        rank, var = next(iter(edit.tensors.items()))
        outs = capture.ranks[rank].nodes[site.position[rank]].outs if rank in site.position else ()
        for other in alike[written_as(site)] if var in outs else ():
            again = replace(edit, tensors=outputs_of(capture, other.position, outs.index(var)))
            if again.tensors.keys() == edit.tensors.keys() and key(again) not in known:
                known.add(key(again))
                found.append((rule, again, other, cost))
    return found


def _of_other_numbers(guesses: list[Guess], literal: Callable[[Site], bool]) -> Iterator[Guess]:
    """Guesses about factors: one that is written as a number is another number than the specification's, any other one is off by a number of ranks."""
    changed = {site.number for _, edit, site, _ in guesses if isinstance(edit, ChangeCall) and site.node.op in SCALING}
    numbers = {site.number: site for _, _, site, _ in guesses if site.number in changed}
    written = {number for number, site in numbers.items() if literal(site)}
    scaled = {site.number for _, edit, site, cost in guesses if isinstance(edit, Scale) and cost <= 1}
    for rule, edit, site, cost in guesses:
        if isinstance(edit, Scale) and site.number in written and site.node.op in SCALING:
            continue
        if isinstance(edit, ChangeCall) and site.number in (changed & scaled) - written:
            continue
        likely = isinstance(edit, ChangeCall) and edit.call.op in SCALING and site.number in written
        yield rule, edit, site, min(cost, 1) if likely else cost


def _unlikely(edit: Edit, site: Site, cost: int, proof: Proof, named: Callable[[Site], bool]) -> int:
    """How much less likely a guess is by what it is about: a part of an expression, or the sum of a count that each rank has worked out."""
    if isinstance(edit, InsertReduction):
        return 1 if 1 <= cost <= 3 and site.node.phase != "backward" and not named(site) else 0
    if isinstance(edit, OtherCalls) and isinstance(edit.means, Sending):
        return 0 if edit.means.later or named(_maker(edit.means.tensors, site, proof.capture)) else 1
    if site.node.op not in REDUCTIONS or not isinstance(edit, Bypass | SetArgument):
        return 0
    nodes = ((rank, proof.capture.ranks[rank].nodes[index]) for rank, index in site.position.items())
    return COUNTED if _is_constant(proof, {rank: next(node.operands()) for rank, node in nodes}) else 0


def _maker(tensors: Tensors, reader: Site, capture: Capture) -> Site:
    """The site of a tensor, as far as its place goes, or of its reader where no call makes it."""
    rank = min(tensors)
    graph = capture.ranks[rank]
    index = graph.producers().get(tensors[rank])
    return reader if index is None else replace(reader, position={rank: index}, node=graph.nodes[index])


def _within_autograd(edit: Edit, site: Site, around: Neighbours) -> int:
    """How much less likely a factor within autograd is than one of the reduction behind it, which counts so many ranks."""
    if not isinstance(edit, Scale) or site.node.phase != "backward" or site.node.forward < 0:
        return 0
    groups = (later.node.args[2] for later in around.reductions_behind(site))
    counts = {len(group) for group in groups if isinstance(group, tuple)} | around.summed[site.number]
    return REDUCED if any(edit.factor * count == 1 for count in counts) else 0


def _summand(edit: Edit, site: Site, reduced: Collection[tuple[int, str, str]], around: Neighbours) -> int:
    """How much less likely a reduction of a gradient is than that of the sum which passes make of it and others: the latter is one exchange for all."""
    if not isinstance(edit, InsertReduction) or site.node.phase != "backward":
        return 0
    readers = around.through(around.readers_of(site), around.readers_of, LAYOUT | ADDING)
    sums = (each.number for each in readers if each.node.op in ADDING and each.node.phase == "backward")
    return SUMMED if any((number, edit.axis, edit.reduce) in reduced for number in sums) else 0


def _multiplies(edit: Edit, site: Site, proof: Proof) -> bool:
    """Whether a sum over ranks only multiplies, for all of them hold the same: a factor was forgotten, then, and no reduction."""
    if not isinstance(edit, InsertReduction) or edit.reduce != "sum" or site.state == "partial":
        return False
    return _is_replicated(edit.tensors, proof) and not _is_constant(proof, edit.tensors)


def _stays_the_same(edit: Edit, proof: Proof) -> bool:
    """Whether an edit exchanges what all ranks hold alike."""
    return (
        isinstance(edit, OtherCalls) and isinstance(edit.means, Sending) and _is_replicated(edit.means.tensors, proof)
    )


def _is_replicated(tensors: Tensors, proof: Proof) -> bool:
    """Whether several ranks hold the same."""
    values = [proof.value(rank, var) for rank, var in tensors.items()]
    keys = {None if value is None else value.key() for value in values}
    return len(values) > 1 and len(keys) == 1 and None not in keys


def _is_constant(proof: Proof, tensors: Tensors) -> bool:
    """Whether tensors are numbers that no input decides."""
    values = [proof.value(rank, var) for rank, var in tensors.items()]
    return bool(values) and all(value is not None and value.is_constant for value in values)


def _families(
    guesses: list[Guess], places: Callable[[Site], Iterable[Hashable]], passes: Callable[[Site], Hashable]
) -> list[Hypothesis]:
    """Guesses that one change of the source would make at once, joined; each of them alone comes later, unless a place or a likelihood is its own.

    A reduction that is missing at every pass through a line shows at the first of them alone: what comes behind it is off for that reason.
    """
    families: dict[Hashable, dict[Hashable, Hypothesis]] = {}
    for rule, edit, site, cost in guesses:
        op = "" if isinstance(edit, InsertReduction) else site.node.op  # one call may give several tensors
        alike = cost if isinstance(edit, InsertReduction) else None  # a tensor is reduced once, where that is likeliest
        keys = [(rule, alike, place, op, _kind(edit)) for place in places(site)]
        if isinstance(edit, InsertReduction):
            keys += [(rule, None, place, site.node.op, _kind(edit)) for *_, place, _, _ in keys]
        for key in keys:
            family, member = families.setdefault(key, {}), (site.number, _target(edit))
            if member not in family or cost < family[member].cost:
                family[member] = Hypothesis(rule, edit, site, cost)
    joined: dict[Hashable, Hypothesis] = {}

    def offer(key: Hashable, guess: Hypothesis) -> None:
        if key not in joined or guess.cost < joined[key].cost:
            joined[key] = guess

    for family in families.values():
        first, *rest = family.values()
        cost = min(guess.cost for guess in family.values())
        whole = replace(first, cost=cost, others=tuple(guess.edit for guess in rest))
        offer((whole.rule, _kind(whole.edit), *family), whole)
        for number, guess in family.items():
            if rest:
                own = _of_own_pass(guess, [other for other in family.values() if other is not guess], passes)
                equal = sum(other.cost == guess.cost for other in family.values()) > 1
                alone = replace(guess, cost=guess.cost + (0 if not equal else 1 if own else ALONE), own_pass=own)
                offer((guess.rule, _kind(guess.edit), number), alone)
    return list(joined.values())


def _of_own_pass(guess: Hypothesis, others: list[Hypothesis], passes: Callable[[Site], Hashable]) -> bool:
    """Whether a gradient's exchange, which a function makes, has a forward call that none of the others has."""
    if guess.site.node.op not in COLLECTIVES or guess.site.node.phase != "backward":
        return False
    own = passes(guess.site)
    return own is not None and bool(others) and all(passes(other.site) != own for other in others)


def _kind(edit: Edit) -> Hashable:
    """What an edit does, apart from where."""
    what = {field.name: getattr(edit, field.name) for field in fields(edit) if field.name not in _WHERE}
    if isinstance(edit, SetArgument) and edit.what in {"order", "parts"}:
        del what["values"]
    if isinstance(edit, InsertCall | ChangeCall):
        what["call"] = replace(edit.call, args={})
    return (type(edit), *((name, str(value)) for name, value in what.items()))


def _target(edit: Edit) -> Hashable:
    """The tensor of the first rank that an edit is about, where one operator gives several."""
    tensors = getattr(edit, "tensors", None)
    return tensors[min(tensors)] if tensors else None


def _at_outputs(around: Neighbours, ratios: Mapping[str, float], promises: Iterable[str]) -> Iterator[Guess]:
    capture, sites = around.capture, around.sites
    for name in promises:
        tensors = {rank: graph.outputs[name] for rank, graph in enumerate(capture.ranks) if name in graph.outputs}
        site = _producer(capture, sites, tensors)
        if site is None:
            continue
        factors = axis_factors(capture)
        ratio = Fraction(ratios.get(name) or 1).limit_denominator(1 << 20)
        if ratio not in (0, 1):
            factors = list(dict.fromkeys([1 / ratio, *factors]))
            yield from _scaled_before(around, name, 1 / ratio)
        made = around.made(site)
        for factor in factors:
            yield "wrong-scale", Scale(tensors if made is site else made.tensors, factor), made, 4
        for axis in capture.mesh:
            learnt = name.startswith("grad(") or site.node.phase == "backward"
            rule = "gradient-not-reduced" if learnt else "missing-reduction"
            yield rule, InsertReduction(tensors, axis), site, 3


def _scaled_before(around: Neighbours, name: str, factor: Fraction) -> Iterator[Guess]:
    """A constant factor of a whole result may have come in wherever the ranks compute what the specification does not."""
    if name.startswith("grad("):
        return
    for site in around.sites.values():
        computes = site.node.op not in LAYOUT | JOINING | COLLECTIVES and site.node.phase == "forward"
        if computes and site.state == "off" and site.number in around.exposed:
            yield "wrong-scale", Scale(site.tensors, factor), site, 3


def _producer(capture: Capture, sites: Mapping[int, Site], tensors: Tensors) -> Site | None:
    """The last site that gives one of some tensors."""
    for site in reversed(list(sites.values())):
        for rank, index in site.position.items():
            if tensors.get(rank) in capture.ranks[rank].nodes[index].outs:
                return site
    return None
