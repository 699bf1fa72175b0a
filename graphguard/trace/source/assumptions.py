"""What a program's comments say of operators that nobody else knows: ``y = mylib.gate(x)  # graphguard: assume elementwise``.

The comment stands on a line of the statement that calls the operator and holds for that operator in the whole check.  Every verdict lists it.  It is part of a
file's meaning: a capture recorded without it is another one.  The gradient of an elementwise function is elementwise as well, so that operators which autograd
runs for the statement are; any other trait says nothing of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from graphguard.ir import Capture, Graph, Node, Trouble
from graphguard.ir.spans import Frame, Span

#: The operators of PyTorch itself and of its collectives have rules; nothing is to be assumed of them.
PYTORCH = frozenset(
    (
        "aten",
        "prims",
        "prim",
        "gg",
        "c10d",
        "_c10d_functional",
        "_c10d_functional_autograd",
        "fsdp",
        "_dtensor",
        "symm_mem",
        "profiler",
    )
)
_COMMENT = re.compile(r"#\s*graphguard:\s*assume\s+(?P<trait>\w+(?:\s*\([^)#]*\))?)")


def assumptions(text: bytes) -> list[tuple[int, int, int, str]]:
    """The comments of a source that stand on simple statements: the statement's number, its first and its last line (from 1), and the words.

    Raises ``SyntaxError`` or ``ValueError`` where the text does not parse.
    """
    if b"graphguard:" not in text:
        return []
    decoded = text.decode("utf-8-sig", "replace")
    said = {
        number: match["trait"].strip()
        for number, line in enumerate(decoded.splitlines(), 1)
        if (match := _COMMENT.search(line)) is not None
    }
    if not said:
        return []
    simple = [node for node in ast.walk(ast.parse(decoded)) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    bounds = sorted((node.lineno, node.end_lineno or node.lineno) for node in simple)
    return [
        (number, first, last, trait)
        for number, (first, last) in enumerate(bounds)
        for line, trait in said.items()
        if first <= line <= last
    ]


def assuming(capture: Capture, sources: Mapping[str, bytes]) -> Capture:
    """The capture with the traits that its sources declare, each listed among what is assumed."""
    declared = {path: found for path, text in sources.items() if (found := assumptions(text))}
    if not declared:
        return capture
    traits: dict[str, str] = {}
    assumed: list[str] = []
    for graph, node in _unknown(capture):
        for place, trait in _said(graph, node, declared):
            known = traits.setdefault(node.op, trait)
            if known != trait:
                message = f"{node.op} is assumed to be {known} and, here, {trait}\nfix: say one of them"
                return replace(capture, troubles=(*capture.troubles, Trouble("trace-error", message, place)))
            assumed.append(f"{node.op} is {trait}, as a comment says")
    return replace(
        capture,
        traits={**capture.traits, **traits},
        assumed=tuple(dict.fromkeys((*capture.assumed, *assumed))),
    )


def _unknown(capture: Capture) -> Iterator[tuple[Graph, Node]]:
    for graph in (capture.spec, *capture.ranks):
        for node in graph.nodes if graph is not None else ():
            if node.op.partition(".")[0] not in PYTORCH:
                yield graph, node  # type: ignore[misc]


def _said(
    graph: Graph, node: Node, declared: Mapping[str, list[tuple[int, int, int, str]]]
) -> Iterator[tuple[Span, str]]:
    """What is said of an operator where it is called, or of the function whose gradient it is."""
    forward = graph.stack_of(node.forward) if node.phase == "backward" else ()
    found = said(graph.stack_of(node.stack), forward, declared)
    if found is not None:
        yield found


def said(
    stack: Iterable[Frame], forward: Iterable[Frame], declared: Mapping[str, list[tuple[int, int, int, str]]]
) -> tuple[Span, str] | None:
    """What is said of an operator that is called here, or as the gradient of what was called at ``forward``; frames innermost first."""
    own = _on_statement(stack, declared)
    if own is not None:
        return own
    function = _on_statement(forward, declared)
    return function if function is not None and function[1] == "elementwise" else None


def _on_statement(
    stack: Iterable[Frame], declared: Mapping[str, list[tuple[int, int, int, str]]]
) -> tuple[Span, str] | None:
    """What is said on the statement of the innermost frame of which anything is said."""
    for frame in stack:
        for _, first, last, trait in declared.get(frame.span.file, ()):
            if first <= frame.span.line <= last:
                return frame.span, trait
    return None
