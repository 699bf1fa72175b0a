"""Forward passes that go round the wrapper that would reduce their gradients: ``model.module(x)``, or a call of the module that was wrapped."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from graphguard.ir import Capture, Span
from graphguard.ops import gg
from graphguard.refine.finding import Finding, Related
from graphguard.repair.graph.edits import InsertReduction, group_of
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Program
from graphguard.repair.trying.trials import Repair
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

_WRAPPER = "DistributedDataParallel"


@dataclass(frozen=True, slots=True)
class Bypass:
    """A call that should have been one of the wrapper: where it stands, what is called there, and what the author calls the wrapper."""

    span: Span
    called: Span
    wrapper: str


def bypass(capture: Capture, repair: Repair, sources: Sources) -> Bypass | None:
    """The call round a wrapper in which the forward pass of an unreduced gradient ran; None where there is none."""
    rank, node = min(repair.hypothesis.site.position), repair.hypothesis.site.node
    graph, edit = capture.ranks[rank], repair.hypothesis.edit
    if repair.hypothesis.rule != "gradient-not-reduced" or not isinstance(edit, InsertReduction) or node.forward < 0:
        return None
    group = group_of(capture, rank, edit.axis)
    if any(each.op == gg.all_reduce and each.phase == "backward" and each.args[-1] == group for each in graph.nodes):
        return None  # a wrapper over these ranks was called
    wrapped = _wrapped(sources, {frame.span for frame in graph.frames})
    for frame in graph.stack_of(node.forward) if wrapped else ():
        program = sources.program(frame.span.file) if sources.in_project(frame.span.file) else None
        call = program.expression(frame.span) if program is not None else None
        if program is None or not isinstance(call, ast.Call):
            continue
        wrapper = _wrapper(program, call.func, wrapped)
        if wrapper:
            return Bypass(frame.span, program.span(call.func), wrapper)
    return None


def told_as_bypass(
    capture: Capture, findings: list[Finding], repairs: list[Repair | None], sources: Sources
) -> tuple[list[Finding], list[Repair | None]]:
    """The findings, those of gradients that one call round a wrapper leaves unreduced as one, told at that call."""
    kept: list[tuple[Finding, Repair | None]] = []
    first: dict[Span, int] = {}
    for finding, repair in zip(findings, repairs, strict=True):
        found = bypass(capture, repair, sources) if repair is not None else None
        if found is None:
            kept.append((finding, repair))
        elif found.span in first:
            known, its = kept[first[found.span]]
            kept[first[found.span]] = replace(known, promises=(*known.promises, *finding.promises)), its
        else:
            first[found.span] = len(kept)
            kept.append((_told(finding, found), repair))
    return [finding for finding, _ in kept], [repair for _, repair in kept]


def through_wrapper(capture: Capture, repair: Repair, sources: Sources) -> Iterator[Draft]:
    """Call the wrapper instead."""
    found = bypass(capture, repair, sources)
    if found is not None:
        yield Draft(f"call {found.wrapper} instead", (TextEdit(found.called, found.wrapper),), found.span)


def _told(finding: Finding, found: Bypass) -> Finding:
    at_gradient = [Related(finding.span, "the gradients are asked for here")] if finding.span is not None else []
    return replace(
        finding,
        headline=f"this call goes round '{found.wrapper}', a {_WRAPPER}, which reduces gradients only where it is called itself: {finding.headline}",
        span=found.span,
        related=(*at_gradient, *finding.related),
        seen=True,
        tensor="",
        needed="",
        found="",
    )


def _wrapped(sources: Sources, run: Set[Span]) -> dict[str, str]:
    """What the project's files wrap, and what they call the wrapper, as text, of the calls that a program has ``run``: a wrapper sends parameters when it is made."""
    found: dict[str, str] = {}
    for program in sources.programs():
        names = _names(program)
        for statement in ast.walk(program.tree) if names else ():
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name | ast.Attribute):
                continue
            for call in ast.walk(statement.value):
                if isinstance(call, ast.Call) and call.args and _last(call.func) in names and program.span(call) in run:
                    found[program.source(call.args[0])] = program.source(statement.targets[0])
    return found


def _names(program: Program) -> frozenset[str]:
    """The names under which a file has the wrapper."""
    imported = (alias for node in ast.walk(program.tree) if isinstance(node, ast.ImportFrom) for alias in node.names)
    aliases = {alias.asname or alias.name for alias in imported if alias.name == _WRAPPER}
    return frozenset(aliases | {_WRAPPER}) if aliases or f".{_WRAPPER}(" in program.text else frozenset()


def _last(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _wrapper(program: Program, func: ast.expr, wrapped: dict[str, str]) -> str:
    """What a call should have called: of ``model.module`` the model, of what was wrapped the wrapper, if it has another name."""
    if isinstance(func, ast.Attribute) and func.attr == "module":
        return program.source(func.value)
    text = program.source(func)
    wrapper = wrapped.get(text, "")
    return wrapper if wrapper != text else ""
