"""Where to point when no repair is known: the likeliest node that a broken output rests on, and the rule that fits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphguard.ir import Capture, Graph, Node, Placement, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ops import REDUCTIONS, aten, gg
from graphguard.refine.evaluation.exposed import ROUNDED, is_unmeant
from graphguard.refine.found.lookup import GroupRelation
from graphguard.refine.outcome import SPECIFICATION, Location
from graphguard.repair.backward.lost_gradients import cut_gather, unread_gradient, without_gradients
from graphguard.repair.backward.stopped import is_gradient, stopped_gradient
from graphguard.repair.graph.alignment import family
from graphguard.repair.graph.edits import Tensors, group_of
from graphguard.repair.graph.holding import holds_operand
from graphguard.repair.graph.neighbours import Neighbours
from graphguard.repair.graph.parts import split_dim
from graphguard.repair.graph.retyping import CASTS
from graphguard.repair.graph.slices import JOINING, LAYOUT, SPLITS, Site, backward_slice
from graphguard.repair.numbers.truths import other_truths
from graphguard.repair.numbers.unread import unread
from graphguard.repair.operators.guesses import is_nonlinear, narrows
from graphguard.repair.shards.attention import meant_attention, seen_keys
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.settings import other_settings
from graphguard.repair.trying.parted_divisors import divided_by_parts
from graphguard.repair.trying.search import Search
from graphguard.repair.trying.summands import unevenly_summed
from graphguard.repair.writing.dead import dead_everywhere

STOPPED = "no gradient comes back through '{what}' to what it is computed from: the specification computes one, and no rank does"
TRAINED = "'{parameter}' gets a gradient, and in the specification it gets none"
UNREAD = "a gradient that is worked out here is read nowhere: it is neither reduced nor added to what other passes give"
NOT_PASSED_ON = "'{what}' is gathered without a gradient: what is worked out for it does not come back to the ranks that its parts are from"
CUT_GATHER = "what is gathered here carries no gradient: what the other ranks compute with this rank's part does not come back to it"
CUT = "'{what}' carries no gradient: none comes back through it to what the ranks put in, and what is computed of it has none at all"
SWITCHED = "gradients that are worked out while this call has their reduction switched off are read nowhere: no rank gets their sum"
SOME_PASSES = "of what is computed here in {passes} passes, only that of {used} reaches anything that is compared"
_EMPTY = frozenset({aten.empty.memory_format, aten.full.default})  # what is written to later
_MOVING = LAYOUT | JOINING | (COLLECTIVES - REDUCTIONS)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rule and a place; ``meant`` is the specification's operator that reads another tensor where the ranks' ``reader`` reads that of the place.

    ``reason`` says what is wrong with ``{what}`` there, as far as relations tell; ``summed`` are the first rank's tensor and the specification's whose terms it counts otherwise.
    """

    rule: str
    where: Location | None
    meant: Location | None = None
    reader: Location | None = None
    reason: str = ""
    summed: tuple[Var, Var] | None = None


def suspect(found: Search, promise: str, sources: Sources) -> Suspect:
    """A rounding that the specification has nowhere, or a collective without effect; else the first site off the relation whose operands are on it, or the one
    operand that it should not read.

    Without any it is the node that makes the output.  A gather of the backward pass that nobody reads explains nothing: sharded parameters are gathered for gradients that do
    not ask for them.
    """
    sites = backward_slice(found.capture, found.proof, found.alignment, (promise,))
    around = Neighbours.of(found.capture, sites)
    return _certain(found, promise, around, sources) or _at_frontier(found, promise, sites, around)


def _certain(found: Search, promise: str, around: Neighbours, sources: Sources) -> Suspect | None:
    """What is wrong wherever it stands: a foreign rounding, a gradient that stops, a mean of means, a collective without effect."""
    capture = found.capture
    if (rounding := _foreign_rounding(around)) is not None:
        return Suspect("lower-precision", _location(rounding))
    stopped = stopped_gradient(capture, found.proof, found.alignment) if is_gradient(capture, promise) else None
    if stopped is not None:
        return Suspect("wrong-relation", stopped[0], stopped[1], reason=STOPPED)
    if (trained := _trained(capture, promise)) is not None:
        return trained
    if is_gradient(capture, promise) and (lost := unread_gradient(capture, sources)) is not None:
        return Suspect("gradient-not-reduced", lost, reason=UNREAD)
    if is_gradient(capture, promise) and (cut := without_gradients(capture, promise)) is not None:
        return Suspect("gradient-not-reduced", cut, reason=CUT)
    if (parted := divided_by_parts(found, around)) is not None:
        return Suspect("wrong-scale", parted[0], reason=parted[1])
    for node in () if found.repairs else dead_everywhere(capture):  # an edit may have left one without a reader
        # nor does what spreads initial values, before the program itself
        if node.phase != "prelude" and (node.op != gg.all_gather or node.phase != "backward"):
            where = Location(0, capture.ranks[0].nodes.index(node))
            used, passes = _used_passes(capture, node)
            if not used:
                return Suspect("dead-collective", where)
            told = SOME_PASSES.format(used=f"pass {' and '.join(map(str, used))}", passes=passes)
            return Suspect("wrong-relation", where, reason=told)
    return None


def _used_passes(capture: Capture, dead: Node) -> tuple[list[int], int]:
    """The passes of a call, counted from one, in which its result reaches an output; and how many there are."""
    graph = capture.ranks[0]
    unused = {id(node) for node in dead_everywhere(capture)}
    passes = [node for node in graph.nodes if node.op == dead.op and node.stack == dead.stack]
    return [number for number, node in enumerate(passes, 1) if id(node) not in unused], len(passes)


def _trained(capture: Capture, promise: str) -> Suspect | None:
    """A parameter that has a gradient on the ranks and none in the specification, where the first rank works the gradient out."""
    parameter = promise.removeprefix("grad(").removesuffix(")")
    known = any(leaf.name == parameter and leaf.kind == "parameter" for leaf in capture.leaves)
    if capture.spec is None or promise in capture.spec.outputs or not known:
        return None
    graph = capture.ranks[0]
    index = graph.producers().get(graph.outputs[promise]) if promise in graph.outputs else None
    where = None if index is None else Location(0, index)
    return Suspect("wrong-relation", where, reason=TRAINED.format(parameter=parameter))


def _at_frontier(found: Search, promise: str, sites: Mapping[int, Site], around: Neighbours) -> Suspect:
    capture = found.capture
    frontier = [site for site in sites.values() if around.at_frontier(site) and site.node.op not in _EMPTY]
    known = set(found.proof.outcome.implementation_frontier)
    frontier = [site for site in frontier if _location(site) in known] or frontier
    for site in frontier:
        rounding = site if narrows(site, capture) else _rounded_by_arithmetic(site, around)
        if rounding is not None:
            return Suspect("lower-precision", _location(rounding))
    for site in frontier:
        operands = [sites[number] for number in site.operands if number in sites]
        if is_nonlinear(site) and any(operand.state == "partial" for operand in operands):
            return Suspect("nonlinear-on-partial", _location(site))
    if (weighed := unevenly_summed(found, around, promise)) is not None:
        where, rule, text, whole = weighed
        own = where.tensors.get(0)
        return Suspect(rule, _location(where), reason=text, summed=None if own is None else (own, whole))
    if (less := _unread(found, promise, around)) is not None:
        return less
    if is_gradient(capture, promise) and (gather := cut_gather(capture)) is not None:
        return Suspect("gradient-not-reduced", gather, reason=CUT_GATHER)
    for site in _computing(frontier, around):
        if (foreign := _foreign_operand(site, found, around)) is not None:
            return foreign
    for site in _computing(frontier, around):
        if (split := _split_again(site, found, around)) is not None:
            return split
    if frontier and _only_rearranged(frontier[0], sites):
        return Suspect("wrong-shard", _location(frontier[0]))
    for site in _computing(frontier, around) or frontier:
        return Suspect("wrong-relation", _location(site), reason=reason(site, found, around))
    last = max(sites, default=None)
    return Suspect("wrong-relation", None if last is None else _location(sites[last]))


def _rounded_by_arithmetic(site: Site, around: Neighbours) -> Site | None:
    """What a site reads in a narrow type, cast or rearranged since, of which the specification has the numbers in a wide one as well."""
    for operand in around.operands(site):
        while operand.node.op in LAYOUT | CASTS and operand.node.op != ROUNDED and (made := around.operands(operand)):
            operand = made[0]
        if operand.node.op == ROUNDED:
            return operand
    return None


def _unread(found: Search, promise: str, around: Neighbours) -> Suspect | None:
    """Where a rank computes with other rows of an input than those that the output should depend on, and with these nowhere."""
    refuter = found.trials.refuter
    less = unread(refuter.point, promise, around) if refuter is not None else None
    if less is None:
        return None
    rows = f"row {less.rows.start}" if len(less.rows) == 1 else f"rows {less.rows.start}..{less.rows.stop - 1}"
    text = f"'{{what}}' is all that rank {less.rank} computes of {leaf_text(found.capture, less.leaf)}: {rows} of it, on which {promise} depends there, {'is' if len(less.rows) == 1 else 'are'} read nowhere"
    return Suspect("wrong-relation", _location(less.site), reason=text)


def leaf_text(capture: Capture, leaf: str) -> str:
    """What the author calls an input or a parameter."""
    spec = capture.spec
    names = {name: spec.labels.get(var, "") for var, name in spec.inputs.items()} if spec is not None else {}
    return f"'{names.get(leaf) or leaf}'"


def _foreign_rounding(around: Neighbours) -> Site | None:
    """The first rounding to a type of fewer bits in which the specification computes nothing, or not this: what rests on it cannot be what is meant."""
    capture, spec = around.capture, around.capture.spec
    known = {kind.dtype for kind in spec.types.values()} if spec is not None else set()
    for site in around.sites.values():
        if is_unmeant(site.node):
            return site
        if narrows(site, capture) and capture.ranks[min(site.position)].types[site.node.outs[0]].dtype not in known:
            return site
    return None


def reason(site: Site, found: Search, around: Neighbours) -> str:
    """Why a site's result is off although its operands are not: what is computed of shards as if they were whole, or draws of its own."""
    if site.node.draw is not None:
        return "'{what}' draws random numbers on every rank that are not those of the specification"
    groups = [found.proof.group(tensors) for tensors in _operands(site, around)]
    held = [related for related in (*groups, *(_related(each, around) for each in around.operands(site))) if related]
    shards = [(axis, place.dim) for relation in held for axis, place in _shards(relation)]
    if site.node.op in REDUCTIONS:
        group = site.node.args[2]
        over = next((axis for axis, _ in shards if group_of(around.capture, min(site.position), axis) == group), "")
        return (
            f"'{{what}}' adds up the parts of one tensor that axis '{over}' splits: they are to be gathered, not summed"
            if over
            else ""
        )
    if told := _masked(site, found):
        return told
    meant = _meant(site, found, around)
    if meant is not None and (other := other_settings(site.node, meant)):
        return other
    if shards and meant is not None:
        axis, dim = shards[0]
        return (
            f"'{{what}}' is computed of each rank's own part of dim {dim}, which axis '{axis}' splits;"
            " the specification computes it of the whole"
        )
    return _padded(site, found)


def _masked(site: Site, found: Search) -> str:
    """That an attention masks otherwise than the specification's, as far as no input decides it."""
    refuter = found.trials.refuter
    meant = meant_attention(site.node, site.position, found.proof, found.capture)
    if refuter is None or meant is None:
        return ""
    return seen_keys(site, meant, refuter.point, found.capture)


def _padded(site: Site, found: Search) -> str:
    """That a rank's operand is longer than that of the specification's only operator that can be meant: no part of it is, so the rows that pad it are not left out."""
    rank, spec, proof = min(site.position), found.capture.spec, found.proof
    meant = (
        [node for node in spec.nodes if node.op == site.node.op and proof.relation(node.outs[0]) is None]
        if spec
        else []
    )
    if spec is None or len(meant) != 1:
        return ""
    for mine, its in zip(site.node.operands(), meant[0].operands(), strict=False):
        shape, whole = found.capture.ranks[rank].types[mine].shape, spec.types[its].shape
        for dim, (size, wanted) in enumerate(zip(shape, whole, strict=False)):
            if not isinstance(size, int) or not isinstance(wanted, int) or len(shape) != len(whole):
                continue
            if size > wanted > 1 and size % wanted and size not in whole:
                return (
                    f"'{{what}}' is computed of a tensor with {size} elements along dim {dim}, the specification's has {wanted}:"
                    " what pads it is not left out"
                )
    return ""


def _split_again(site: Site, found: Search, around: Neighbours) -> Suspect | None:
    """A split of what the specification splits as well, along a dim that the ranks have cut before: queries, keys and values in one."""
    spec, proof, capture = found.capture.spec, found.proof, around.capture
    for split in around.operands(site):
        if split.node.op not in SPLITS or spec is None:
            continue
        whole = {rank: next(capture.ranks[rank].nodes[index].operands()) for rank, index in split.position.items()}
        meant = (next(node.operands()) for node in spec.nodes if node.op in SPLITS)
        relation = proof.group(whole) if any(holds_operand(proof, var, whole) for var in meant) else None
        dim = split_dim(capture.ranks[min(split.position)], split.node)
        for axis, place in _shards(relation) if relation is not None else ():
            if place.dim == dim:
                text = f"'{{what}}' splits dim {dim}, of which axis '{axis}' gives every rank a consecutive part: its pieces are not the rank's parts of the specification's pieces"
                return Suspect("wrong-shard", _location(split), reason=text)
    return None


def _related(site: Site, around: Neighbours) -> GroupRelation | None:
    """How a site's tensor, or what it was rearranged from, stands to the specification."""
    while site.relation is None and site.node.op in LAYOUT and (operands := around.operands(site)):
        site = operands[0]
    return site.relation


def _shards(relation: GroupRelation) -> list[tuple[str, Placement]]:
    return [(axis, place) for axis, place in (relation.placements or {}).items() if place.kind == "shard"]


def _meant(site: Site, found: Search, around: Neighbours) -> Node | None:
    """The specification's operator that does the same to the same tensors, where the ranks hold no part of its result."""
    spec, read = found.capture.spec, _operands(site, around)
    for node in spec.nodes if spec is not None else ():
        meant = list(node.operands())
        alike = family(node) == family(site.node) and len(meant) == len(read)
        if not alike or found.proof.relation(node.outs[0]) is not None:
            continue
        if all(holds_operand(found.proof, var, tensors) for var, tensors in zip(meant, read, strict=True)):
            return node
    return None


def _computing(frontier: list[Site], around: Neighbours) -> list[Site]:
    """What computes first of tensors off the relation: rearrangements and exchanges before it may be as they should."""
    reached = around.through(frontier, around.readers_of, _MOVING)
    return sorted((site for site in reached if site.node.op not in _MOVING), key=lambda site: site.number)


def _foreign_operand(site: Site, found: Search, around: Neighbours) -> Suspect | None:
    """The one operand that is not what the specification's operator reads, where all others are: it is wrong, not what is made of it."""
    spec = found.capture.spec
    read = _operands(site, around)
    wrong: dict[int, Location] = {}
    for index, node in enumerate(spec.nodes if spec is not None else ()):
        meant = list(node.operands())
        if family(node) != family(site.node) or len(meant) != len(read) or len(read) < 2:
            continue
        held = [holds_operand(found.proof, var, tensors) for var, tensors in zip(meant, read, strict=True)]
        if held.count(False) == 1:
            wrong.setdefault(held.index(False), Location(SPECIFICATION, index))
    if len(wrong) != 1 or spec is None:
        return None
    (operand, where), *_ = wrong.items()
    made = _made(site, read[operand], around)
    if made is None:
        return None
    reader = _location(site)
    target = made.relation.target if made.relation is not None and made.state == "whole" else None
    if target is not None and target not in _behind(spec, list(spec.nodes[where.node].operands())[operand]):
        return Suspect("wrong-relation", reader, where, reader)  # too much was computed, or another tensor is read
    its, refuter = list(spec.nodes[where.node].operands())[operand], found.trials.refuter
    other = other_truths(read[operand], its, refuter.point, found.capture) if refuter is not None else ""
    return Suspect("wrong-relation", _location(made), where, reader, _masked(site, found) or other)


def _behind(graph: Graph, var: Var) -> set[Var]:
    """The tensors that one is computed from."""
    producers, found, waiting = graph.producers(), set[Var](), [var]
    while waiting:
        index = producers.get(waiting.pop())
        operands = set(graph.nodes[index].operands()) - found if index is not None else set[Var]()
        found |= operands
        waiting += operands
    return found


def _operands(site: Site, around: Neighbours) -> list[Tensors]:
    """What every rank reads, operand by operand."""
    read: list[Tensors] = []
    for rank, index in site.position.items():
        for place, var in enumerate(around.capture.ranks[rank].nodes[index].operands()):
            if place == len(read):
                read.append({})
            read[place][rank] = var
    return read


def _made(site: Site, tensors: Tensors, around: Neighbours) -> Site | None:
    """The site that makes a site's operand, behind what rearranges it on the very same line."""
    rank, graph = min(tensors), around.capture.ranks[min(tensors)]
    made = next((each for each in around.operands(site) if tensors[rank] in _outs(each, rank, around)), None)
    while made is not None and made.node.op in LAYOUT and _line(graph, made.node) == _line(graph, site.node):
        made = next(iter(around.operands(made)), None)
    return made


def _line(graph: Graph, node: Node) -> tuple[str, int]:
    frames = graph.stack_of(node.stack)
    return (frames[0].span.file, frames[0].span.line) if frames else ("", 0)


def _outs(site: Site, rank: int, around: Neighbours) -> tuple[object, ...]:
    return around.capture.ranks[rank].nodes[site.position[rank]].outs if rank in site.position else ()


def _only_rearranged(site: Site, sites: Mapping[int, Site]) -> bool:
    """Whether a site joins what was gathered, and all that happens from there on is rearrangement: then that is what is wrong."""
    gathers = (sites[number].node.op == gg.all_gather for number in site.operands if number in sites)
    later = (each for each in sites.values() if each.state == "off")
    return site.node.op in JOINING and any(gathers) and all(each.node.op in LAYOUT | JOINING for each in later)


def _location(site: Site) -> Location:
    rank = min(site.position)
    return Location(rank, site.position[rank])
