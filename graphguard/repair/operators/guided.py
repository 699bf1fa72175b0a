"""What could be wrong, told by the specification: its first operators without a relation say what should have been computed.

An operator that the ranks forget, one that they add, a wrong constant, another operator on the same operands, two operands in each
other's place, or a tensor that is read although another one, which nobody reads, was meant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from itertools import combinations, product

from graphguard.ir import Capture, Node, Placement, Span, Var
from graphguard.ir.graph import COLLECTIVES, Arg
from graphguard.ops import aten, operators
from graphguard.refine.outcome import SPECIFICATION
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.alignment import FAMILIES
from graphguard.repair.graph.editing import substituted
from graphguard.repair.graph.edits import (
    Bypass,
    Call,
    ChangeCall,
    InsertCall,
    Reread,
    Scale,
    SetArgument,
    SwapTensors,
    Tensors,
)
from graphguard.repair.graph.holding import held, holds_operand
from graphguard.repair.graph.neighbours import SCALING, Guess, Neighbours
from graphguard.repair.graph.slices import JOINING, LAYOUT, SPLITS, Site
from graphguard.repair.operators.chains import chains
from graphguard.repair.operators.guesses import axis_factors
from graphguard.repair.operators.lacking import lacking
from graphguard.repair.operators.unapplied import unapplied

RULE = "wrong-relation"
LIKELY, POSSIBLE = 2, 3
_ADDING_UP = operators(lambda op: op.reduces in ("sum", "mean"))  # which differ by a number
_FRONTIER = 4  # operators of the specification that are looked at
_HOLDERS = 3  # tensors of the ranks that are tried for one operand
_PAIRS = 12  # pairs of tensors that are tried in each other's place
_STEPS = 3  # operators between a frontier and two tensors that were mistaken for each other
_DEPTH = 5  # rearrangements between an operator and the tensor that it reads by a wrong name

Held = tuple[Tensors, Mapping[str, Placement]]


def guided(proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """Every guess that the specification's frontier suggests."""
    frontier = [site for site in around.sites.values() if around.at_frontier(site)]
    missing = _missing(proof)
    for site in frontier:
        yield from _superfluous(site, around)
        for node in missing:
            yield from _another(site, node, proof, around)
            yield from _mistaken(site, node, proof, around)
        yield from _misnamed(site, around)
    if not frontier:  # everything is a tensor of the specification, so another one was meant
        for number in sorted(around.exposed):
            yield from _misnamed(around.sites[number], around, collectives=True)
    for node in (*missing, *_missing_norms(proof)):
        yield from _forgotten(node, proof, around)
    yield from unapplied([*missing, *_missing_norms(proof)], proof, around)
    yield from chains(missing, proof, around)
    yield from lacking(missing, proof, around)
    yield from _exchanged(frontier, around)
    yield from _unknown(missing, proof, around)
    yield from _absent(proof.capture, around)


def _unknown(missing: list[Node], proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """An operator that the specification has nowhere, such as one that puts rows in another order, may be one too many, or stand for another one."""
    spec = proof.capture.spec
    known = {node.op for node in spec.nodes} if spec is not None else set()
    for site in around.sites.values():
        if site.node.op not in known and site.node.phase == "forward" and not around.at_frontier(site):
            yield from ((rule, edit, at, POSSIBLE) for rule, edit, at, _ in _superfluous(site, around))
            for node in missing:
                if node.op not in LAYOUT:
                    yield from _another(site, node, proof, around)


def _absent(capture: Capture, around: Neighbours) -> Iterator[Guess]:
    """An operator of the specification that no rank has may have been forgotten of any tensor."""
    spec = capture.spec
    present = {node.op for graph in capture.ranks for node in graph.nodes}
    for node in spec.nodes if spec is not None else ():
        operands = list(node.operands())
        if spec is None or node.op in present or node.phase != "forward" or len(operands) != 1 or len(node.outs) != 1:
            continue
        if spec.types[operands[0]] != spec.types[node.outs[0]]:
            continue
        for site in around.sites.values():
            if site.node.phase == "forward" and site.node.op not in COLLECTIVES | LAYOUT | JOINING and site.tensors:
                if _levels(node, site, capture):
                    continue
                args = {
                    rank: tuple(substituted(arg, {operands[0]: var}) for arg in node.args)
                    for rank, var in site.tensors.items()
                }
                call = Call(node.op, args, node.kwargs, specified_at(capture, node))
                yield _rule_of(node), InsertCall(site.tensors, call), site, POSSIBLE


def _levels(node: Node, site: Site, capture: Capture) -> bool:
    """Whether an operator would make all elements of a site's tensor the same number: a softmax along a dim of one element."""
    dim = node.args[1] if len(node.args) > 1 else None
    shapes = [capture.ranks[rank].types[var].shape for rank, var in site.tensors.items()]
    return (
        "softmax" in node.op and isinstance(dim, int) and any(-len(s) <= dim < len(s) and s[dim] == 1 for s in shapes)
    )


def _missing(proof: Proof) -> list[Node]:
    return [node for node in _first_missing(proof) if len(node.outs) == 1]


def _missing_norms(proof: Proof) -> Iterator[Node]:
    """Norms, whose statistics are further results, that the specification takes of something of the same type."""
    types = proof.capture.spec.types if proof.capture.spec is not None else {}
    for node in _first_missing(proof):
        operand = next(node.operands(), None)
        if len(node.outs) > 1 and operand is not None and types[operand] == types[node.outs[0]]:
            yield node


def _first_missing(proof: Proof) -> list[Node]:
    spec = proof.capture.spec
    places = [place for place in proof.outcome.specification_frontier if place.graph == SPECIFICATION]
    return [spec.nodes[place.node] for place in places[:_FRONTIER]] if spec is not None else []


def _superfluous(site: Site, around: Neighbours) -> Iterator[Guess]:
    """An operator that the specification does not have: its operand would do."""
    if site.node.op in COLLECTIVES or site.node.op in LAYOUT:
        return
    graph = around.capture.ranks[min(site.position)]
    operands = list(site.node.operands())
    if site.node.op == aten.add.Tensor and len(operands) == 2 and operands[0] == operands[1]:
        yield "wrong-scale", Bypass(site.position), site, LIKELY  # twice the same
        return
    for kept, operand in enumerate(operands):
        if len(site.node.outs) == 1 and graph.types[operand] == graph.types[site.node.outs[0]]:
            yield RULE, Bypass(site.position, kept), site, LIKELY


def _another(site: Site, wanted: Node, proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """The same operands, another constant or another operator."""
    scaling = wanted.op == site.node.op and site.node.op in SCALING
    if scaling:
        yield from _factor(site, wanted, axis_factors(proof.capture))
    operands, meant = list(site.node.operands()), list(wanted.operands())
    if site.node.op in COLLECTIVES or len(operands) != len(meant) or len(site.node.outs) != 1:
        return
    args: dict[int, tuple[Arg, ...]] = {}
    read: list[Tensors] = [{} for _ in meant]
    for rank, index in site.position.items():
        own = list(around.capture.ranks[rank].nodes[index].operands())
        names = dict(zip(meant, own, strict=False))
        args[rank] = tuple(substituted(arg, names) for arg in wanted.args)
        for tensors, operand in zip(read, own, strict=False):
            tensors[rank] = operand
    if all(holds_operand(proof, var, tensors) for var, tensors in zip(meant, read, strict=True)):
        same = all(tuple(site.node.args) == found for found in list(args.values())[:1]) and wanted.op == site.node.op
        same = same and dict(site.node.kwargs) == dict(wanted.kwargs)
        if not same:
            span = specified_at(proof.capture, wanted)
            rule = "wrong-scale" if (scaling and len(meant) == 1) or {wanted.op, site.node.op} <= _ADDING_UP else RULE
            yield rule, ChangeCall(site.position, Call(wanted.op, args, wanted.kwargs, span)), site, LIKELY


def _mistaken(site: Site, wanted: Node, proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """The specification's operator, of which all operands but one are read: a tensor that the ranks have is meant in the place of that one."""
    operands = [place for place, arg in enumerate(site.node.args) if isinstance(arg, Var)]
    meant = [arg for arg in wanted.args if isinstance(arg, Var)]
    if (
        FAMILIES.get(site.node.op, site.node.op) != FAMILIES.get(wanted.op, wanted.op)
        or len(operands) != len(meant)
        or (len(meant) < 2 and not _is_same_but_for_operand(site.node, wanted))
    ):
        return
    nodes = {rank: around.capture.ranks[rank].nodes[index] for rank, index in site.position.items()}
    read = [
        {rank: var for rank, node in nodes.items() if isinstance(var := node.args[place], Var)} for place in operands
    ]
    wrong = [index for index, tensors in enumerate(read) if not holds_operand(proof, meant[index], tensors)]
    if len(wrong) != 1:
        return
    (index,) = wrong
    for tensors in held(meant[index], proof):
        types = [around.capture.ranks[rank].types for rank in nodes]
        if set(tensors) >= set(nodes) and all(
            own[tensors[rank]] == own[read[index][rank]] for rank, own in zip(nodes, types, strict=True)
        ):
            yield RULE, SetArgument(site.position, operands[index], tensors, "operand"), site, LIKELY


def _is_same_but_for_operand(node: Node, wanted: Node) -> bool:
    """Whether two calls of one operator on one tensor have the same numbers, and there are some."""
    numbers = [[arg for arg in each.args if not isinstance(arg, Var)] for each in (node, wanted)]
    same = node.op == wanted.op and numbers[0] == numbers[1] and dict(node.kwargs) == dict(wanted.kwargs)
    return same and node.op in SCALING and bool(numbers[0])


def _factor(site: Site, wanted: Node, sizes: Collection[Fraction]) -> Iterator[Guess]:
    """Another factor, where the two stand in a ratio of small numbers."""
    mine, other = site.node.args[1], wanted.args[1]
    if not isinstance(mine, int | float) or not isinstance(other, int | float) or mine in (0, other) or other == 0:
        return
    ratio = Fraction(other).limit_denominator(1 << 20) / Fraction(mine).limit_denominator(1 << 20)
    if ratio not in sizes:
        return  # another number is meant, not another number of ranks
    if abs(ratio * Fraction(mine) - Fraction(other)) > abs(Fraction(other)) / (1 << 46):
        return  # a root, say: no ratio is as exact as the numbers
    if ".div" in site.node.op:
        ratio = 1 / ratio
    if ratio:
        yield "wrong-scale", Scale(site.tensors, ratio), site, 1


def _misnamed(site: Site, around: Neighbours, collectives: bool = False) -> Iterator[Guess]:
    """A tensor of the same type that nobody reads may have been meant where another is read."""
    spare = _unread(around.capture)
    edge = [site]
    if site.relation is not None:  # right but for a factor: what reads it may have meant another one
        edge += around.readers_of(site)
    readers = COLLECTIVES if not collectives else frozenset[str]()
    through = LAYOUT | JOINING | COLLECTIVES if collectives else LAYOUT
    for _ in range(_DEPTH):
        for reader in edge:
            if reader.node.op in readers:
                continue
            rank = min(reader.position)
            graph = around.capture.ranks[rank]
            for index, arg in enumerate(reader.node.args):
                if not isinstance(arg, Var):
                    continue
                for tensors in spare:
                    fits = rank in tensors and graph.types[tensors[rank]] == graph.types[arg]
                    if fits and set(tensors) >= set(reader.position):
                        where = site if reader.node.op in LAYOUT else reader
                        yield RULE, SetArgument(reader.position, index, tensors, "operand"), where, 1
        edge = [below for reader in edge for below in around.operands(reader) if below.node.op in through]
    yield from _reread(site, spare, around)


def _reread(site: Site, spare: list[Tensors], around: Neighbours) -> Iterator[Guess]:
    """The same, of what reaches a reader through rearrangements that others read as well."""
    rank = min(site.position)
    graph, producers = around.capture.ranks[rank], around.producers[rank]
    for index, arg in enumerate(site.node.args if site.node.op not in COLLECTIVES else ()):
        steps = 0
        while isinstance(arg, Var) and arg in producers and graph.nodes[producers[arg]].op in LAYOUT and steps < _DEPTH:
            arg, steps = next(graph.nodes[producers[arg]].operands()), steps + 1
            for tensors in spare:
                if rank in tensors and graph.types[tensors[rank]] == graph.types[arg]:
                    yield RULE, Reread(site.tensors, index, steps, tensors), site, 1


def _unread(capture: Capture) -> list[Tensors]:
    """Tensors of the programs that nothing reads, one a rank; a part that only other ranks read is no such tensor."""
    dead = []
    for graph in capture.ranks:
        read = {operand for node in graph.nodes for operand in node.operands()} | set(graph.outputs.values())
        computed = (node for node in graph.nodes if node.phase == "forward" and node.op not in SPLITS)
        made = [out for node in computed for out in node.outs if out not in read]
        dead.append([*made, *(var for var in graph.labels if var not in read)])
    return [dict(enumerate(row)) for row in zip(*dead, strict=False)]


def _forgotten(node: Node, proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """The specification's operator, applied to the ranks' tensors that hold its operands."""
    spec, capture = proof.capture.spec, proof.capture
    operands = list(dict.fromkeys(node.operands()))
    if spec is None or node.op in LAYOUT or not 1 <= len(operands) <= (2 if len(node.outs) == 1 else 3):
        return
    shape = spec.types[node.outs[0]].shape
    choices = [proof.holders(operand)[:_HOLDERS] for operand in operands]
    sites = {(rank, var): site for site in around.sites.values() for rank, var in site.tensors.items()}
    for groups in product(*choices):
        for place, operand in enumerate(operands):
            made = _made(groups[place][0], sites)
            if spec.types[operand].shape != shape or not made or not _fit(groups):
                continue
            rule = _rule_of(node)
            cost = LIKELY if place == 0 and rule == RULE else POSSIBLE
            for site in made:
                args = _calls(node, operands, groups, site.tensors)
                further = tuple(spec.types[out] for out in node.outs[1:])
                call = Call(node.op, args, node.kwargs, specified_at(capture, node), further)
                yield rule, InsertCall(dict(site.tensors), call), site, cost
            break


def _made(tensors: Tensors, sites: Mapping[tuple[int, Var], Site]) -> list[Site]:
    """Where all of the ranks' tensors are made: at one site, or, in a pipeline, at one of some ranks each."""
    found = {site.number: site for held in tensors.items() if (site := sites.get(held)) is not None}
    held = sum(len(site.tensors) for site in found.values())
    whole = held == len(tensors) and all(tensors.get(r) == v for s in found.values() for r, v in s.tensors.items())
    return [site for site in found.values() if site.node.phase != "prelude"] if whole else []


def _rule_of(forgotten: Node) -> str:
    """The rule that names an operator of the specification that the ranks forget."""
    return "wrong-scale" if forgotten.op in SCALING and len(list(forgotten.operands())) == 1 else RULE


def _fit(groups: tuple[Held, ...]) -> bool:
    """Whether the operands lie alike on the ranks, or one of them is the same on all."""
    first, *others = (
        {axis: place for axis, place in places.items() if place.kind != "replicate"} for _, places in groups
    )
    return all(other == first or not other or not first for other in others)


def _calls(
    node: Node, operands: list[Var], groups: tuple[Held, ...], ranks: Collection[int]
) -> dict[int, tuple[Arg, ...]]:
    calls = {}
    for rank in ranks:
        names = {operand: tensors[rank] for operand, (tensors, _) in zip(operands, groups, strict=True)}
        calls[rank] = tuple(substituted(arg, names) for arg in node.args)
    return calls


def _exchanged(frontier: list[Site], around: Neighbours) -> Iterator[Guess]:
    """Two tensors of one kind in each other's place."""
    graphs, pairs = around.capture.ranks, 0
    for first, second in combinations(_near(frontier, around), 2):
        rank = min(first.position)
        alike = first.node.op == second.node.op and set(first.tensors) == set(second.tensors)
        if not alike or not first.tensors or first.number in second.operands or first.node.phase != "forward":
            continue
        if graphs[rank].types[first.tensors[rank]] == graphs[rank].types[second.tensors[rank]]:
            pairs += 1
            yield RULE, SwapTensors(first.tensors, second.tensors), second, LIKELY
        if pairs >= _PAIRS:
            return


def _near(frontier: list[Site], around: Neighbours) -> list[Site]:
    """What the frontier and what follows are computed from within a few operators, rearrangements not counted, in order."""
    edge = {site.number for site in frontier}
    for _ in range(_DEPTH):
        edge |= {reader for number in edge for reader in around.readers.get(number, ())}
    near: dict[int, Site] = {}
    for _ in range(_STEPS):
        edge = {site.number for number in edge for site in _computed(around.sites[number], around)}
        near.update({number: around.sites[number] for number in edge})
    kept = (near[number] for number in sorted(near))
    return [site for site in kept if site.state != "off" and site.node.op not in COLLECTIVES]


def _computed(site: Site, around: Neighbours) -> list[Site]:
    """What a site reads, behind rearrangements and joinings."""
    found: list[Site] = []
    below, seen = around.operands(site), set[int]()
    while below:
        each = below.pop()
        if each.number not in seen:
            seen.add(each.number)
            if each.node.op in LAYOUT | JOINING:
                below += around.operands(each)
            else:
                found.append(each)
    return found


def specified_at(capture: Capture, node: Node) -> Span | None:
    """Where the specification's operator stands in the source."""
    assert capture.spec is not None
    frames = capture.spec.stack_of(node.stack) if node.stack >= 0 else ()
    return frames[0].span if frames else None
