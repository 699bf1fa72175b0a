"""One finding per defect: the repair that a proof confirms tells what is wrong and where."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphguard.confirm.confirmation import Confirmation
from graphguard.diagnose.callers import by_parameter, told_at_caller
from graphguard.diagnose.earlier import Earlier, earlier
from graphguard.diagnose.left_out import with_left_out
from graphguard.diagnose.libraries import with_library
from graphguard.diagnose.localised import Localised
from graphguard.diagnose.makers import with_makers
from graphguard.diagnose.origins import given_to_shared, origin
from graphguard.diagnose.rereading import reread
from graphguard.ir import Capture, Var
from graphguard.ir.collection import without_collection
from graphguard.ir.fuel import LOOKS, SECOND, Fuel
from graphguard.ops import REDUCTIONS
from graphguard.refine.finding import Finding, Related
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import expanded, prove
from graphguard.refine.stages.shorter import Shorter
from graphguard.repair.backward.stopped import is_gradient, stopped_gradient
from graphguard.repair.drafting.bypassed import told_as_bypass
from graphguard.repair.findings.lost import lost_number, raises
from graphguard.repair.findings.messages import HELD
from graphguard.repair.findings.repaired import repaired
from graphguard.repair.findings.unchanged import unchanged_finding
from graphguard.repair.findings.undecided import left_open
from graphguard.repair.findings.unexplained import unexplained
from graphguard.repair.findings.unsent import unsent_finding
from graphguard.repair.findings.unwritten import unwritten_finding
from graphguard.repair.graph.alignment import align
from graphguard.repair.graph.edits import InsertReduction
from graphguard.repair.graph.neighbours import SCALING
from graphguard.repair.graph.opened import opened
from graphguard.repair.graph.slices import reached
from graphguard.repair.shards.packed import packed, packed_finding
from graphguard.repair.text.frames import Read, Sources
from graphguard.repair.trying.alike import alike, at_one_place, common_factor
from graphguard.repair.trying.diagnosed import Diagnosis
from graphguard.repair.trying.search import FURTHER, STEPS, Search, search
from graphguard.repair.trying.trials import Repair, Trials

_WIDER = 4 * SECOND
_WIDER_FURTHER = SECOND * 3 // 10  # steps were tried without it
STOPPED = SECOND // 10
_OF_COLLECTIVES = frozenset(("dead-collective", "missing-reduction", "wrong-group"))
_TINY = 1e-6  # of a number: a difference that is told as such


@without_collection()
def diagnose(capture: Capture, proof: Proof, numbers: Confirmation | None, read: Read) -> Diagnosis:
    """Explain a failed proof; ``numbers`` is what running the capture said, ``read`` gives the present source texts."""
    less, shallow = proof.shorter, proof.shallow
    differs = numbers is not None and numbers.status == "differs"
    if differs and (before := earlier(capture, proof.outcome.failing)) is not None:
        found = _diagnosed(before.capture, before.proof, before.numbers, read)
        found = replace(found, findings=tuple(_of_all_steps(found.findings, before)))
    elif less is None or shallow is None or not differs:
        found = _diagnosed(capture, proof, numbers, read)
    else:
        found = _diagnosed(less.capture, shallow, numbers, read)
        found = replace(found, findings=tuple(_of_all_layers(finding, capture, less) for finding in found.findings))
    sources = Sources.of(capture, read)
    return replace(found, findings=tuple(with_makers(finding, capture, sources) for finding in found.findings))


def _of_all_steps(findings: Sequence[Finding], before: Earlier) -> Iterator[Finding]:
    """Findings in the first step that goes wrong, with what it spoils later."""
    for finding in findings:
        alone = len(findings) == 1
        later = [name for name in before.follow if alone and name not in finding.promises]
        yield replace(finding, promises=(*finding.promises, *later)) if finding.promises else finding


def _of_all_layers(finding: Finding, capture: Capture, less: Shorter) -> Finding:
    """A finding in a program with fewer layers, with what it spoils in the others."""
    spoilt = {other for name in finding.promises for other in (name, *less.stands_for.get(name, ()))}
    return replace(finding, promises=tuple(one.name for one in capture.promises if one.name in spoilt))


def _diagnosed(capture: Capture, proof: Proof, numbers: Confirmation | None, read: Read) -> Diagnosis:
    sources = Sources.of(capture, read)
    outcome = proof.outcome
    if numbers is None or numbers.status != "differs":
        found_open = tuple(left_open(capture, outcome, numbers, sources))
        return Diagnosis(found_open, (None,) * len(found_open))
    lost = lost_number(capture, numbers, sources)
    if lost is not None and outcome.proved:
        return Diagnosis((lost,), (None,))
    whole = capture
    capture, proof = opened(capture, proof)
    unproved = outcome.failing
    broken = tuple(name for name in unproved if name in numbers.differing) or unproved
    trials = Trials.of(capture)
    stopped = _stopped(trials, proof, broken)
    limits = (STOPPED, 0) if stopped else (STEPS, FURTHER)
    found = search(capture, proof, broken, numbers.ratios or {}, sources, *limits, trials)
    first = found
    in_steps = len({repair.mends for repair in found.repairs}) < len(found.repairs)
    if (not found.repairs or in_steps) and trials.doubtful and not stopped:
        untouched = Search((), broken, False, capture, proof, trials)
        wider = _wider(untouched, broken, numbers, sources)
        shorter = not found.repairs or len(wider.repairs) < len(found.repairs)
        found = wider if wider.repairs and shorter else found
    if lost is not None and not found.repairs and raises(whole, numbers):
        return Diagnosis((lost,), (None,))
    place = Localised(capture, proof, trials.alignment, broken, sources, numbers.ratios or {})
    memory = unwritten_finding(whole, numbers, sources)
    if memory is None and found.repairs and place.makes_up(found.repairs[0]) and (shown := place.findings()):
        return Diagnosis(tuple(shown), (None,) * len(shown))
    own = frozenset() if whole.spec is None else frozenset(whole.spec.types)
    findings, repairs = told_as_bypass(
        capture, _mended(found, broken, numbers, own, sources, found is not first), list(found.repairs), sources
    )
    several = len({finding.alike or number for number, finding in enumerate(findings)}) > 1 and not in_steps
    in_part = bool(found.left) and bool(findings) and findings[0].rule == "wrong-scale"
    if memory is None and (several or in_part) and place.explains_all_at_one_line(broken):
        shown = place.findings()
        return Diagnosis(tuple(shown), (None,) * len(shown))
    findings = [
        finding if repair is None else _named_and_placed(finding, repair, broken, sources)
        for finding, repair in zip(findings, repairs, strict=True)
    ]
    steps_apart = in_steps and len({finding.span and finding.span.line for finding in findings}) > 1
    unnamed = all(finding.rule == "wrong-relation" for finding in findings)  # steps that only make up for each other
    if memory is None and steps_apart and unnamed and place.explains_at_once(broken):
        shown = place.findings()
        return Diagnosis(tuple(shown), (None,) * len(shown))
    if len(findings) == 1 and _handed_out_partial(repairs[0]) and place.explains_all(broken):
        findings = _where_else(findings[0], place.findings()[0])
    if found.left and found.stale and all(is_gradient(found.capture, name) for name in found.left):
        findings[0] = replace(findings[0], related=(*findings[0].related, _outdated(capture, found.left)))
    elif found.left:
        unmended = [with_left_out(finding, capture) for finding in _without_repair(found, place, sources, numbers)]
        findings += unmended
        repairs += [None] * len(unmended)
    if memory is not None and not _says_who_writes(findings, found, sources):
        return Diagnosis((memory,), (None,))
    findings = [
        finding if repair is None else replace(finding, touched=_touched(repair.before, broken, finding))
        for finding, repair in zip(findings, repairs, strict=True)
    ]
    each_repair = zip(findings, repairs, strict=True)
    findings = [finding if repair is not None else given_to_shared(finding, sources) for finding, repair in each_repair]
    findings = at_one_place(findings)
    if (small := _small(numbers)) and findings:
        findings[0] = replace(findings[0], headline=f"{findings[0].headline}{small}")
    return Diagnosis(tuple(findings), tuple(repairs))


def _where_else(finding: Finding, placed: Finding) -> list[Finding]:
    """What a place tells, if the finding does not name that line already: then it says more, for it names all gradients."""
    spans = (finding.span, *(each.span for each in finding.related))
    known = {(span.file, span.line) for span in spans if span is not None}
    kept = finding.seen or placed.span is None or (placed.span.file, placed.span.line) in known
    return [finding if kept else placed]


def _handed_out_partial(repair: Repair | None) -> bool:
    """Whether several gradients are reduced as they are handed out, and not to an optimizer: what all of them come through may be a sum already."""
    if repair is None or repair.hypothesis.rule != "gradient-not-reduced":
        return False
    if any(node.phase == "step" for node in repair.before.ranks[min(repair.hypothesis.site.position)].nodes):
        return False
    return bool(repair.hypothesis.others) and all(isinstance(edit, InsertReduction) for edit in repair.hypothesis.edits)


def _mended(
    found: Search, broken: tuple[str, ...], numbers: Confirmation, own: frozenset[Var], sources: Sources, wider: bool
) -> list[Finding]:
    """The findings of what repairs mend; ``own`` are the tensors of the specification as it is written."""
    factor = common_factor(broken, numbers.ratios or {})
    steps = Counter(repair.mends for repair in found.repairs)
    told: list[Finding] = []
    for place, repair in enumerate(found.repairs):
        said = repaired(repair.before, repair, sources)
        told.append(
            replace(
                said,
                headline=_resting_on(said.headline, repair, list(zip(found.repairs[:place], told, strict=True))),
                alike=alike(found.repairs[0].before, repair, said, factor, steps[repair.mends] > 1),
                written_out=wider,
                regains=tuple(var.id for var in repair.regains if var in own),
            )
        )
    return told


def _resting_on(headline: str, repair: Repair, earlier: Sequence[tuple[Repair, Finding]]) -> str:
    """What is said of a superfluous reduction, with what must be mended first for it to be one: what it reduces is whole afterwards only."""
    if HELD not in headline:
        return headline
    rank = min(repair.hypothesis.site.position)
    graph, makers = repair.before.ranks[rank], repair.before.ranks[rank].producers()
    waiting = [repair.hypothesis.site.position[rank]]
    seen = set(waiting)
    while waiting:
        node = graph.nodes[waiting.pop()]
        found = {makers[var] for var in node.reads if var in makers} - seen
        seen |= found
        waiting += found
    stacks = {graph.nodes[index].stack for index in seen} - {-1}
    mended = (said.tensor for one, said in earlier if one.hypothesis.site.node.stack in stacks and said.tensor)
    names = [f"'{name}'" for name in dict.fromkeys(mended)]
    once = f"{HELD.replace('already ', '')} once {' and '.join(names)} {'is' if len(names) == 1 else 'are'} mended"
    return headline.replace(HELD, once) if names else headline


def _touched(capture: Capture, broken: tuple[str, ...], finding: Finding) -> tuple[str, ...]:
    """The other broken outputs that rest on what the line of a finding computes."""
    span = finding.span
    if span is None:
        return ()
    alignment = align(capture)
    here = {
        alignment.number[rank, index]
        for rank, graph in enumerate(capture.ranks)
        for index, node in enumerate(graph.nodes)
        for stack in (node.stack, node.forward)
        if stack >= 0 and any((f.span.file, f.span.line) == (span.file, span.line) for f in graph.stack_of(stack)[:1])
    }
    others = (name for name in broken if name not in finding.promises)
    return tuple(name for name in others if not here.isdisjoint(reached(capture, alignment, (name,))))


def _named_and_placed(finding: Finding, repair: Repair, broken: tuple[str, ...], sources: Sources) -> Finding:
    """A finding by the name of what is wrong, where the helper is called that computes it if that serves others well."""
    named = by_parameter(repair.before, finding, repair)
    told = told_at_caller(repair.before, align(repair.before), broken, named, repair, sources)
    site = repair.hypothesis.site
    if finding.rule == "wrong-scale" and finding.span is not None:
        if site.node.op not in SCALING | REDUCTIONS:
            told = given_to_shared(told, sources)
        elif (given := origin(repair.before.ranks[min(site.position)], site.node, sources)) is not None:
            inner = Related(finding.span, "what is computed with it")
            told = replace(told, span=given, related=(inner, *told.related))
    return with_library(told, repair.before.ranks[min(site.position)], site.node, sources)


def _says_who_writes(findings: list[Finding], found: Search, sources: Sources) -> bool:
    """Whether what is told is a collective that would have written to memory: it is missing, or gives its result elsewhere."""
    collective = any(finding.rule in _OF_COLLECTIVES for finding in findings)
    return collective or bool(found.left and unsent_finding(found, sources))


def _small(numbers: Confirmation) -> str:
    """How small a difference is that is easily taken for rounding, behind what is wrong; empty where it is larger, or there is none."""
    shown = numbers.counterexample
    if shown is None or not all(map(math.isfinite, (shown.found, shown.expected))):
        return ""
    size = abs(shown.found - shown.expected) / max(abs(shown.found), abs(shown.expected), 1e-300)
    return f"; the numbers differ by {size:.0e} of their size" if 0 < size < _TINY else ""


def _outdated(capture: Capture, gradients: tuple[str, ...]) -> Related:
    """The gradients that are wrong as well where a result is, of which they are computed: what they would be of the right one was not recorded."""
    names = ", ".join(gradients[:6]) + (", ..." if len(gradients) > 6 else "")
    return Related(capture.check.span, f"wrong as well, for they are computed of it: {names}")


def _stopped(trials: Trials, proof: Proof, broken: tuple[str, ...]) -> bool:
    """Whether a gradient that is not computed at all explains what is broken: no edit of what was recorded makes up for it, so one is looked for briefly."""
    gradients = all(is_gradient(trials.capture, name) for name in broken)
    return gradients and stopped_gradient(trials.capture, proof, trials.alignment) is not None


def _wider(found: Search, broken: tuple[str, ...], numbers: Confirmation, sources: Sources) -> Search:
    """The search on the attempt that writes out products of sums: the repaired program may be one that only this one proves."""
    proof = expanded(found.proof, Fuel("the proof with products written out", _WIDER, LOOKS))
    if not proof.failing or not proof.names():  # it came to no end
        return found
    left = tuple(name for name in broken if name in proof.failing)
    wider = search(found.capture, proof, left, numbers.ratios or {}, sources, _WIDER, _WIDER_FURTHER, found.trials)
    if not wider.repairs or left != broken:
        return found
    known = proof.failing - found.proof.failing  # what only the other attempt proves, it must still prove
    return found if known and known & prove(wider.capture, effort="hasty").failing else wider


def _without_repair(found: Search, place: Localised, sources: Sources, numbers: Confirmation) -> list[Finding]:
    """What no hypothesis explains: parameters that are cut in another way than the program reads them, what interventions show, or both frontiers."""
    cut = packed(found.capture, found.proof, found.left)
    if cut is not None:
        return [packed_finding(found.capture, cut, sources)]
    told = unsent_finding(found, sources) or unchanged_finding(found, sources)
    if told is not None:
        return [told]
    last = unexplained(found, sources, numbers)
    if found.repairs:
        place = Localised(found.capture, found.proof, found.alignment, found.left, sources)
    if not (last.is_vague or last.is_unread or place.explains_by_a_factor(found.left)):
        return [last.finding]
    if last.is_unread:
        return place.findings() if place.computes_wrongly() else [last.finding]
    if not place.explains_all(found.left) and (other := reread(found, sources)) is not None:
        return [repaired(found.capture, other, sources)]
    return place.findings() or [_of_another_shape(last.finding, numbers)]


def _of_another_shape(finding: Finding, numbers: Confirmation) -> Finding:
    """A finding that says no more than where the programs part, with both shapes where these differ."""
    shown = numbers.counterexample
    if shown is None or shown.found_shape is None or shown.promise not in finding.promises:
        return finding
    has, needs = list(shown.found_shape), list(shown.expected_shape or ())
    return replace(
        finding, headline=f"'{finding.tensor}' makes '{shown.promise}' of shape {has}, where {needs} is needed"
    )
