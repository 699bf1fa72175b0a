"""A term or a factor that the specification works out of other tensors and the ranks do not: weight decay, an auxiliary loss, a further square below a root."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from graphguard.ir import Capture, Graph, Node, Span, TensorType, Var
from graphguard.ir.graph import COLLECTIVES
from graphguard.ops import operators, traits_of
from graphguard.refine.proving.proof import Proof
from graphguard.repair.graph.editing import fresh, renamed
from graphguard.repair.graph.edits import OtherCalls, Tensors
from graphguard.repair.graph.holding import held
from graphguard.repair.graph.meanings import Term
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import LAYOUT, Site
from graphguard.repair.operators.chains import named_at
from graphguard.repair.operators.guided_source import bare, names_of
from graphguard.repair.text.frames import Sources
from graphguard.repair.text.program import Program, offset
from graphguard.repair.writing.source import Draft, line_after
from graphguard.report.diagnostics import TextEdit

_COST: Final = 2
_MOST: Final = 5  # operators that work a term out
_SYMMETRIC: Final = operators(lambda op: op.symbol in ("+", "*"))
_TOLD: Final = {
    "+": "'{name}' lacks {chain}, which the specification adds to it",
    "-": "'{name}' lacks {chain}, which the specification subtracts from it",
    "*": "'{name}' lacks {chain}, which the specification multiplies it by",
    "/": "'{name}' lacks {chain}, which the specification divides it by",
}
_Types = dict[int, dict[Var, TensorType]]


@dataclass(frozen=True, slots=True)
class _Lacking:
    """Operators of the specification that work something out, and the last one, which joins it to the ``whole`` that the ranks have; they read ``others``."""

    row: tuple[Node, ...]
    whole: Var
    others: tuple[Var, ...]

    @property
    def join(self) -> Node:
        """The operator that adds the term, or multiplies by it."""
        return self.row[-1]


def lacking(missing: list[Node], proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """A guess for every term that begins with an operator that no rank has, and for each way in which ranks hold what it is made of."""
    sites = {site.tensors[min(site.tensors)]: site for site in around.sites.values() if site.tensors}
    for first in missing:
        term = _term(first, proof, around.capture)
        if term is None:
            continue
        choices = [list(held(var, proof)) for var in (term.whole, *term.others)]
        for tensors, *others in product(*choices):
            site = sites.get(tensors[min(tensors)])
            if site is None or set(site.tensors) != set(tensors) or site.node.phase != "forward":
                continue
            if term.join.op not in _SYMMETRIC and _is_joined_there(term.join.op, site, around):
                continue  # another term is subtracted, or the other way round
            edit = _joined(term, tensors, dict(zip(term.others, others, strict=True)), around.capture)
            if edit is not None:
                yield "wrong-relation", edit, site, _COST


def _term(first: Node, proof: Proof, capture: Capture) -> _Lacking | None:
    """What begins with an operator and ends where it meets a tensor that the ranks have, which is of the type of the result."""
    spec = capture.spec
    assert spec is not None
    row: list[Node] = []
    made: set[Var] = set()
    others: list[Var] = []
    node = first
    while len(row) <= _MOST and _is_followed(node):
        read = [var for var in dict.fromkeys(node.operands()) if var not in made]
        whole = next((var for var in read if spec.types[var] == spec.types[node.outs[0]]), None)
        if (
            row
            and traits_of(node.op).symbol in _TOLD
            and len(read) == 1
            and whole == read[0]
            and _is_joined(node, whole, made)
        ):
            return _Lacking((*row, node), whole, tuple(dict.fromkeys(others)))
        others += read
        row.append(node)
        made.update(node.outs)
        readers = [each for each in spec.nodes if not made.isdisjoint(each.reads) and each not in row]
        readers = [each for each in readers if each.phase == "forward"]
        if len(readers) != 1 or any(proof.relation(out) is not None for out in readers[0].outs):
            return None
        node = readers[0]
    return None


def _is_joined_there(op: str, site: Site, around: Neighbours) -> bool:
    """Whether a site's tensor goes into an operator of a kind on the ranks, too."""
    return any(reader.node.op == op for reader in around.readers_of(site))


def _is_followed(node: Node) -> bool:
    return node.phase == "forward" and node.op not in COLLECTIVES and len(node.outs) == 1 and node.draw is None


def _is_joined(node: Node, whole: Var, made: set[Var]) -> bool:
    """Whether a term is what an operator joins to a whole: of a difference or a quotient it is the second."""
    first, second = node.args[:2]
    symmetric = node.op in _SYMMETRIC
    return not node.kwargs and (
        (first == whole and second in made) or (symmetric and second == whole and first in made)
    )


def _joined(term: _Lacking, tensors: Tensors, others: Mapping[Var, Tensors], capture: Capture) -> OtherCalls | None:
    """The term, worked out as soon as the ranks have all of it, and joined to what they have; None where the parts do not fit together."""
    spec = capture.spec
    assert spec is not None
    calls: dict[int, Mapping[int, tuple[Node, ...]]] = {}
    types: _Types = {}
    for rank, var in tensors.items():
        own = {other: held[rank] for other, held in others.items() if rank in held}
        made = _on_rank(term, var, own, capture.ranks[rank], spec) if len(own) == len(others) else None
        if made is None:
            return None
        calls[rank], types[rank] = made
    symbol, written = traits_of(term.join.op).symbol, _written(term, spec)
    meaning = Term(written, symbol, tensors, dict(others)) if written is not None else None
    return OtherCalls(calls, types, _TOLD[symbol], meaning)


def _written(term: _Lacking, spec: Graph) -> Span | None:
    """Where the specification writes a term: in the function that joins it to the whole."""
    last, join = (spec.stack_of(node.stack) if node.stack >= 0 else () for node in term.row[-2:])
    beside = (frame.span for frame in last if join and frame.function == join[0].function)
    return next(beside, last[0].span if last else None)


def _on_rank(
    term: _Lacking, var: Var, read: Mapping[Var, Var], graph: Graph, spec: Graph
) -> tuple[dict[int, tuple[Node, ...]], dict[Var, TensorType]] | None:
    producers = graph.producers()
    start = producers.get(var, -1)
    last = max(start, *(producers.get(each, -1) for each in read.values()))
    if start < 0 or graph.nodes[last].phase != "forward":
        return None
    held, number = Var(fresh(graph)), fresh(graph) + 1
    kinds = {held: graph.types[var]}
    names = {term.whole: held, **read}
    known = {**{meant: graph.types[mine] for meant, mine in read.items()}, term.whole: graph.types[var]}
    made: list[Node] = []
    for step, node in enumerate(term.row):
        kind = _kind(node, known, spec)
        if kind is None or (node is term.join and kind != graph.types[var]):
            return None
        new = var if node is term.join else Var(number + step)
        kinds[new] = known[node.outs[0]] = kind
        own = renamed(node, names)
        made.append(replace(graph.nodes[last], op=node.op, args=own.args, kwargs=own.kwargs, outs=(new,)))
        names[node.outs[0]] = new
    calls: dict[int, tuple[Node, ...]] = {
        index: (renamed(graph.nodes[index], {var: held}),)
        for index in range(start + 1, last + 1)
        if var in graph.nodes[index].reads
    }
    calls[start] = (
        replace(graph.nodes[start], outs=tuple(held if out == var else out for out in graph.nodes[start].outs)),
    )
    calls[last] = (*calls.get(last, (graph.nodes[last],)), *made)
    return calls, kinds


def _kind(node: Node, known: Mapping[Var, TensorType], spec: Graph) -> TensorType | None:
    """The type of a result on a rank: the specification's, or that of the operand that it is as large as there; None where neither is sure."""
    wanted = spec.types[node.outs[0]]
    operands = list(node.operands())
    if all(known[operand] == spec.types[operand] for operand in operands):
        return wanted
    alike = [known[operand] for operand in operands if spec.types[operand].shape == wanted.shape]
    single = all(known[operand] in alike or not spec.types[operand].shape for operand in operands)
    if node.op in LAYOUT or not alike or not single or any(kind.shape != alike[0].shape for kind in alike):
        return None
    return replace(wanted, shape=alike[0].shape)


def term_text(capture: Capture, term: Term, rank: int, program: Program, sources: Sources) -> str:
    """The specification's expression of a term, in the names that the ranks' program has for what it is made of; empty where it cannot be read."""
    specified = sources.program(term.written.file)
    value = specified.expression(term.written) if specified is not None else None
    if specified is None or value is None:
        return ""
    found: list[tuple[int, str, str]] = []
    for meant, tensors in term.others.items():
        own = names_of(capture, rank, tensors[rank], program, sources)
        for name in _spec_names(capture, meant, sources):
            places = _written_as(specified, value, name) if own else []
            if places and name not in own:
                found += [(offset(specified, value, node), name, own[0]) for node in places]
                break
    text = specified.source(value)
    for at, name, mine in sorted(found, reverse=True):
        text = text[:at] + mine + text[at + len(name) :]
    closer = term.symbol in "*/" or (
        term.symbol == "-" and isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub)
    )
    return f"({text})" if closer and isinstance(value, ast.BinOp) else text


def term_added(
    capture: Capture, term: Term, rank: int, program: Program, span: Span, sources: Sources
) -> Iterator[Draft]:
    """Join the term to the tensor behind the statement that makes the last of what it is made of, or to the expression at a place."""
    value = program.expression(span)
    statement = program.statement(value) if value is not None else None
    text = term_text(capture, term, rank, program, sources)
    if value is None or statement is None or not text:
        return
    if name := named_at(value, statement):
        line = f"{name} = {name} {term.symbol} {text}"
        behind = _last(capture, term, rank, program, statement, sources)
        yield Draft(line, (line_after(program, behind, line),))
    elif not isinstance(statement, ast.Expr):
        yield Draft(
            f"write {program.source(value)} {term.symbol} {text}",
            (TextEdit(program.span(value), f"{bare(program, value)} {term.symbol} {text}"),),
        )


def _last(capture: Capture, term: Term, rank: int, program: Program, statement: ast.stmt, sources: Sources) -> ast.stmt:
    """The statement of one function behind which a rank has all that a term is made of."""
    graph, function, found = capture.ranks[rank], program.function(statement), [statement]
    producers = graph.producers()
    for tensors in term.others.values():
        index = producers.get(tensors[rank])
        for frame in sources.frames(graph, graph.nodes[index]) if index is not None else ():
            value = program.expression(frame.span) if frame.span.file == program.file else None
            made = program.statement(value) if value is not None else None
            if made is not None and program.function(made) is function:
                found.append(made)
                break
    return max(found, key=lambda each: each.lineno)


def _written_as(program: Program, value: ast.expr, text: str) -> list[ast.expr]:
    """The parts of an expression that are written so."""
    return [node for node in ast.walk(value) if isinstance(node, ast.expr) and program.source(node) == text]


def _spec_names(capture: Capture, var: Var, sources: Sources) -> list[str]:
    """What the specification calls one of its tensors."""
    graph = capture.spec
    assert graph is not None
    index = graph.producers().get(var)
    found = [graph.labels.get(var, ""), graph.inputs.get(var, "")]
    if index is not None:
        found += [sources.tensor_at(frame.span) for frame in sources.frames(graph, graph.nodes[index])]
    return [name for name in dict.fromkeys(found) if name]
