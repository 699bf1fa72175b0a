"""What is wrong with what a helper computes is told where the helper is called if it serves other calls well, and a parameter's gradient by the parameter's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphguard.ir import Capture, Span, Var
from graphguard.ops import operators
from graphguard.refine.finding import Finding, Related
from graphguard.repair.graph.alignment import Alignment
from graphguard.repair.graph.slices import reached
from graphguard.repair.text.frames import Sources
from graphguard.repair.trying.trials import Repair

_MOVES = operators(lambda op: bool(op.moves))


def told_at_caller(
    capture: Capture, alignment: Alignment, broken: Sequence[str], finding: Finding, repair: Repair, sources: Sources
) -> Finding:
    """The finding at the innermost place through which no call goes that does the same, with as many tensors, and that no broken promise rests on."""
    site, span = repair.hypothesis.site, finding.span
    rank = min(site.position)
    graph = capture.ranks[rank]
    frames = [frame.span for frame in sources.forward_frames(graph, site.node)]
    alone = finding.rule == "gradient-not-reduced" and not (repair.hypothesis.others or repair.hypothesis.own_pass)
    if span is None or span not in frames[:-1] or not alone:
        return finding
    spoiled = reached(capture, alignment, tuple(broken))
    others: set[Span] = set()
    for index, node in enumerate(graph.nodes):
        same = node.op == site.node.op and node.phase == site.node.phase
        if same and len(node.reads) == len(site.node.reads) and alignment.number[rank, index] not in spoiled:
            spans = [frame.span for frame in sources.forward_frames(graph, node)]
            others.update(spans if spans != frames else ())  # of the same call, it says nothing of others
    outer = frames[frames.index(span) :]
    place = next((each for each in outer if each not in others), None)
    if place is None or place == span:
        return finding
    name = _name(finding, place, sources)
    inner = Related(span, f"what is called there: '{finding.tensor}'" if finding.tensor else "what is called there")
    related = (inner, *(each for each in finding.related if each.span != place))
    return replace(_renamed(finding, name), span=place, related=related)


def by_parameter(capture: Capture, finding: Finding, repair: Repair) -> Finding:
    """The finding of gradients that are handed out as they are, named after the parameters that they are of where it is named after another operand."""
    site = repair.hypothesis.site
    if finding.rule != "gradient-not-reduced" or site.node.phase != "backward" or repair.hypothesis.others:
        return finding
    rank = min(site.position)
    graph = capture.ranks[rank]
    held = {site.tensors[rank]} if rank in site.tensors else set[Var]()
    for node in graph.nodes:
        if node.op in _MOVES and held.intersection(node.reads):
            held.update(node.outs)
    parameters = {leaf.name for leaf in capture.leaves if leaf.kind == "parameter"}
    names = [name[5:-1] for name, var in graph.outputs.items() if var in held and name.startswith("grad(")]
    same = [name for name in names if finding.tensor.split(".")[-1] == name.split(".")[-1]]
    asked = set(names) <= parameters and {f"grad({name})" for name in names} == set(finding.promises)
    return _renamed(finding, names[0]) if len(names) == 1 and asked and not same else finding


def _name(finding: Finding, place: Span, sources: Sources) -> str:
    """What the value is called there: of gradients, what they are of."""
    gradients = [name.removeprefix("grad(").removesuffix(")") for name in finding.promises if name.startswith("grad(")]
    if len(gradients) == len(finding.promises) == 1:
        return gradients[0]
    return sources.tensor_at(place) or finding.tensor


def _renamed(finding: Finding, name: str) -> Finding:
    old = finding.tensor
    if not old or not name:
        return finding
    return replace(
        finding,
        tensor=name,
        headline=finding.headline.replace(f"'{old}'", f"'{name}'"),
        needed=finding.needed.replace(old, name),
        found=finding.found.replace(old, name),
    )
