"""Puts the recorded programs of a check together: what they promise each other, and what is wrong between them."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

from graphguard.ir import Capture, Leaf, Promise, Trouble
from graphguard.ir.capture import Like, Wanted
from graphguard.ir.graph import COLLECTIVES, Graph, Var
from graphguard.ir.ignored import marked
from graphguard.ir.joining import span_of
from graphguard.ir.kept import compared_states, is_kept
from graphguard.ir.left import without_notes
from graphguard.ir.pruning import prune_alone, prune_prelude
from graphguard.ops import traits_of
from graphguard.trace.calls.communicators import disagreement
from graphguard.trace.claims.parameters import plain_name
from graphguard.trace.claims.program import Claims
from graphguard.trace.claims.same import unlike_claims
from graphguard.trace.graph.meetings import among, in_step, parted, plainly_named
from graphguard.trace.graph.unlike import unlike_layouts
from graphguard.trace.programs.compared import Program, compared
from graphguard.trace.programs.drawn import drawn_elsewhere
from graphguard.trace.programs.job import Job, Recorded
from graphguard.trace.programs.left_behind import left_behind
from graphguard.trace.programs.sampling import sampling_cautions, sampling_told, wrong_samples
from graphguard.trace.programs.script_runs import decided_apart
from graphguard.trace.programs.standing import standing, with_standing
from graphguard.trace.programs.starts import unlike_starts, without_starts
from graphguard.trace.programs.unwritten import unwritten
from graphguard.trace.worlds import machines


def assembled(job: Job, specification: Recorded, ranks: list[Recorded]) -> Capture:
    """The capture of all programs; what is wrong with any of them, or with all together, is among its troubles.

    Its seconds are those that it took to relate states and results to parameters.
    """
    # where the specification failed, what the ranks say may only follow from that
    failed = (specification,) if specification.troubles else ranks
    troubles = _distinct([trouble for program in failed for trouble in program.troubles])
    if specification.troubles:  # there is nothing that it should be
        troubles = [replace(each, rule="trace-error") if each.rule == "wrong-relation" else each for each in troubles]
    if not troubles:
        troubles += [_unlike(job, rank) for rank, program in enumerate(ranks) if program.same != specification.same][:1]
    traces = [program.trace for program in ranks]
    troubles = troubles or wrong_samples(job, specification, ranks) or [*decided_apart(specification, ranks)][:1]
    disagreed = disagreement([() if trace is None else trace.groups for trace in traces]) if not troubles else None
    if disagreed is not None:
        troubles.append(disagreed)
    if not troubles:
        troubles += [_unanswered(job, rank) for rank, program in enumerate(ranks) if program.waiting][:1]
    if specification.waiting and not troubles:
        troubles.append(_dependent(job))
    unshared = dict.fromkeys(one for program in (specification, *ranks) for one in program.unshared)
    bare = Capture(
        job.check, job.mesh, (), None, (), (), tuple(troubles), unshared=tuple(unshared), same=job.alone is not None
    )
    if troubles or specification.trace is None or specification.trace.graph is None or specification.claims is None:
        return bare
    promises, missing = _promises(job, specification.claims, [program.claims for program in ranks])
    whole, noted = without_notes(specification.trace.graph)
    traced = [trace for trace in traces if trace is not None and trace.graph is not None]
    bare_ranks = [without_notes(trace.graph) for trace in traced if trace.graph is not None]
    recorded, starts = without_starts(plainly_named(tuple(graph for graph, _ in bare_ranks)))
    apart_from_start, start_alike = unlike_starts(recorded, starts)
    doubts, recorded = unlike_layouts(among(recorded, [trace.stops for trace in traced]))
    recorded, stops = parted(recorded)
    recorded, apart = in_step(recorded, stops)
    spec_program = Program(whole, specification.claims, noted)
    claimed = [program.claims for program in ranks if program.claims is not None]
    programs = [*map(Program, recorded, claimed, (left for _, left in bare_ranks))]
    told = compared(job, spec_program, programs)
    leaves = _leaves([specification.claims, *(program.claims for program in ranks)])
    inputs = {leaf.name for leaf in leaves if leaf.kind in ("input", "partial")}
    untraced = {name for one in (spec_program, *programs) for name in one.untraced}
    promises = tuple(one for one in promises if one.name not in untraced)
    began = time.perf_counter()
    stand = tuple(standing(spec_program, programs, leaves))
    whole, recorded, promises = with_standing(stand, whole, recorded, promises, job.mesh)
    kept = compared_states(whole, recorded, inputs, plain_name)
    whole, recorded, related = kept.spec, kept.ranks, time.perf_counter() - began
    held = {name for graph in recorded for name in graph.outputs}
    promises = tuple(one for one in promises if one.name in held or not is_kept(one.name))
    graphs = prune_prelude(recorded, {one.wanted.leaf for one in promises if isinstance(one.wanted, Like)})
    spec = prune_alone(whole)
    assumed = [line for program in (specification.trace, *traces) if program is not None for line in program.assumed]
    sampled, unsampled = sampling_told(job, specification, ranks, start_alike=start_alike)
    assumed += sampled
    if job.machines == 1 and len(graphs) > 1 and job.script is None:
        assumed += machines.assumed(read for trace in traced for read in trace.reads)
    capture = replace(
        bare,
        leaves=leaves,
        spec=spec,
        ranks=graphs,
        promises=promises,
        troubles=(
            *(missing or apart_from_start or told.wrong),
            *_collectives_in(spec),
            *(_not_loaded(job, graphs, [program.claims for program in ranks]) or unwritten(job, spec, graphs)),
            *apart,
            *(drawn_elsewhere(spec, graphs) if job.script is not None else ()),
        ),
        assumed=tuple(dict.fromkeys((*assumed, *kept.assumed))),
        not_compared=(*told.not_compared, *kept.not_compared, *unsampled, *left_behind(spec_program, programs)),
        cautions=(*told.cautions, *sampling_cautions(job, specification, ranks)),
        doubts=doubts,
        seconds={"relate": related},
        made={name: frames for one in reversed(claimed) for name, frames in one.made.items()},
    )
    return marked(capture)


def _collectives_in(spec: Graph) -> tuple[Trouble, ...]:
    """A specification is one process's program."""
    for index, node in enumerate(spec.nodes):
        if node.op in COLLECTIVES:
            message = f"the specification calls {node.op.removeprefix('gg.')}; it is the sequential program, without collectives"
            return (Trouble("trace-error", message, span_of(spec, index)),)
    return ()


def _not_loaded(job: Job, graphs: tuple[Graph, ...], claims: list[Claims | None]) -> tuple[Trouble, ...]:
    """A parameter that still holds its random initial value after ``load``: nothing can be said about it."""
    for rank, (graph, one) in enumerate(zip(graphs, claims, strict=True)):
        labelled = {name: var for var, name in graph.labels.items()}
        for name in () if one is None else one.loaded:
            if name in labelled and _is_initial(graph, labelled[name]):
                message = (
                    f"load does not write parameter '{name}' of the implementation: it still has its initial value\n"
                    "fix: copy into it what the specification's state_dict holds for it"
                )
                return (Trouble("ambiguous-parameter", message, job.check.span, rank),)
    return ()


def _is_initial(graph: Graph, var: Var) -> bool:
    """Whether a value comes from random draws or memory that nobody wrote, and from no leaf."""
    producers = graph.producers()
    pending, seen, drawn = [var], set(), False
    while pending:
        current = pending.pop()
        if current in graph.inputs:
            return False
        if current in seen or current not in producers:
            continue
        seen.add(current)
        node = graph.nodes[producers[current]]
        drawn = drawn or node.draw is not None or traits_of(node.op).makes == "empty"
        pending.extend(node.operands())
    return drawn


def _distinct(troubles: list[Trouble]) -> list[Trouble]:
    """The same trouble of many ranks once, as the first of them has it; each rank's own device has its number."""
    first: dict[Any, Trouble] = {}
    for trouble in troubles:
        headline = re.sub(r"\bcuda:\d+", "cuda", trouble.message.partition("\n")[0])
        first.setdefault((trouble.rule, headline, trouble.span), trouble)
    return list(first.values())


def _unanswered(job: Job, rank: int) -> Trouble:
    message = (
        "the program branches on a value that other ranks send and that is not constant on all of them\n"
        f"while recording {job.title(rank)}"
    )
    return Trouble("trace-error", message, job.check.span, rank)


def _unlike(job: Job, rank: int) -> Trouble:
    error = unlike_claims(f"rank {rank}" if job.alone is not None else "rank 0")
    return Trouble(error.rule, error.message, job.check.span, rank)


def _dependent(job: Job) -> Trouble:
    message = (
        "the specification needs a value that other ranks send; it is the sequential program, without collectives\n"
        "fix: exchange it where the check builds both programs, or in the implementation"
    )
    return Trouble("trace-error", message, job.check.span)


def _leaves(claims: list[Claims | None]) -> tuple[Leaf, ...]:
    leaves: dict[str, Leaf] = {}
    for one in claims:
        for leaf in () if one is None else one.leaves:
            leaves.setdefault(leaf.name, leaf)
    return tuple(leaves.values())


def _promises(
    job: Job, specification: Claims, ranks: list[Claims | None]
) -> tuple[tuple[Promise, ...], tuple[Trouble, ...]]:
    """What must hold: every output of the specification, every gradient; and a trouble where no rank returns an output."""
    wanted: dict[str, Wanted] = dict(specification.wanted)
    recorded = [claims for claims in ranks if claims is not None]
    for claims in recorded:
        wanted.update(claims.wanted)
    held = {name for claims in recorded for name in claims.results}
    known = held | {_plain_gradient(name) for name in held}
    absent = {one.name: one for one in specification.outputs if one.name not in known}
    closed = {name for claims in recorded for name in claims.told.opaque}
    missing = [name for name, one in absent.items() if not one.absent and name not in closed]
    numbers = {one.name for one in specification.outputs if one.is_number}
    rule = "wrong-relation" if numbers.issuperset(missing) else "trace-error"
    troubles = (_absent(job, rule, missing, sorted(held)),) if missing else ()
    return tuple(Promise(name, relation) for name, relation in wanted.items() if name not in absent), troubles


def _plain_gradient(name: str) -> str:
    """The name of a gradient without what wrappers add to that of its parameter."""
    return f"grad({plain_name(name[5:-1])})" if name.startswith("grad(") else name


def _absent(job: Job, rule: str, names: list[str], held: list[str]) -> Trouble:
    message = (
        f"the specification returns {_listed(names)} and no rank of the implementation does; "
        f"the ranks return {_listed(held)}"
    )
    return Trouble(rule, message, job.check.span)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:4]) or "nothing"
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
