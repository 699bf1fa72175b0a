"""Attention that masks otherwise than the specification's: a causal mask that counts its rows anew on every rank, no mask, or another one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from graphguard.ir import Capture, DType, Graph, Node, Span, TensorType, Var
from graphguard.ops import aten
from graphguard.refine.proving.proof import Proof
from graphguard.relations.numbers import Array, Number
from graphguard.repair.graph.editing import fresh, renamed
from graphguard.repair.graph.edits import OtherCalls, Tensors
from graphguard.repair.graph.holding import holds_operand
from graphguard.repair.graph.meanings import Masking
from graphguard.repair.graph.neighbours import Guess, Neighbours
from graphguard.repair.graph.slices import Site
from graphguard.repair.numbers.point import Point
from graphguard.repair.numbers.truths import told_places
from graphguard.repair.text.program import Program
from graphguard.repair.text.vocabulary import rank_expressions
from graphguard.repair.writing.source import Draft
from graphguard.report.diagnostics import TextEdit

SDPA: Final = "gg.sdpa"
_OPERANDS: Final = 3
_MASK, _CAUSAL = 3, 5
_BOOL: Final = "bool"
_STEPS: Final = 16  # calls of the specification that a mask is made by
_LIKELY, _POSSIBLE = 1, 4
_OTHER: Final = "'{name}' is computed {mine}, the specification's {its}"


@dataclass(frozen=True, slots=True)
class _Copied:
    """Calls of the specification that are made anew of what every rank holds, and what stands on each rank for the specification's tensors."""

    nodes: tuple[Node, ...]
    held: Mapping[Var, Tensors]


def attention(proof: Proof, around: Neighbours) -> Iterator[Guess]:
    """A guess for each attention whose queries, keys and values are the specification's and whose mask is not."""
    for site in around.sites.values():
        if site.node.op != SDPA or site.node.phase != "forward":
            continue
        meant = meant_attention(site.node, site.position, proof, around.capture)
        if meant is not None and set(site.position) == set(range(around.capture.world_size)):
            yield from _from_own_row(site, meant, around.capture)
            yield from _as_specified(site, meant, proof, around.capture)


def meant_attention(node: Node, position: Mapping[int, int], proof: Proof, capture: Capture) -> Node | None:
    """The specification's attention of the same queries, keys and values, of which no rank holds the result."""
    spec = capture.spec
    for its in spec.nodes if spec is not None and node.op == SDPA else ():
        if its.op != SDPA or proof.relation(its.outs[0]) is not None:
            continue
        for place in range(_OPERANDS):
            read: Tensors = {}
            for rank, index in position.items():
                operand = capture.ranks[rank].nodes[index].args[place]
                assert isinstance(operand, Var)
                read[rank] = operand
            meant = its.args[place]
            if not isinstance(meant, Var) or not holds_operand(proof, meant, read):
                break
        else:
            return its
    return None


def _from_own_row(site: Site, meant: Node, capture: Capture) -> Iterator[Guess]:
    """A rank's queries are a part of all, and its causal mask lets the first of them see the first key alone."""
    if not (_is_causal(site.node) and _is_causal(meant)):
        return
    for axis, rows in _query_axes(site, meant, capture):
        calls: dict[int, Mapping[int, tuple[Node, ...]]] = {}
        types: dict[int, Mapping[Var, TensorType]] = {}
        for rank, index in site.position.items():
            graph = capture.ranks[rank]
            columns = _sizes(graph, graph.nodes[index])[1]
            first = rows * capture.coordinates(rank)[axis]
            calls[rank], types[rank] = _masked_from(graph, index, rows, columns, first)
        last = max(site.position, key=lambda rank: capture.coordinates(rank)[axis])
        low = rows * capture.coordinates(last)[axis]
        told = (
            f"'{{name}}' is causal from the first of each rank's own queries: rank {last} has queries {low}..{low + rows - 1}"
            f" along axis '{axis}', and its first sees key 0 alone instead of keys 0..{low}"
        )
        yield (
            "wrong-shard",
            OtherCalls(calls, types, told, Masking(axis, rows, columns)),
            site,
            _LIKELY,
        )


def _query_axes(site: Site, meant: Node, capture: Capture) -> Iterator[tuple[str, int]]:
    """The axes that split the queries and not the keys, with the queries of a rank."""
    rank = min(site.position)
    graph, node = capture.ranks[rank], site.node
    rows, columns = _sizes(graph, node)
    assert capture.spec is not None
    whole, keys = _sizes(capture.spec, meant)
    if not rows or columns != keys or whole <= rows:
        return
    for axis, size in capture.mesh.items():
        if size > 1 and size * rows == whole:
            yield axis, rows


def _masked_from(
    graph: Graph, index: int, rows: int, columns: int, first: int
) -> tuple[Mapping[int, tuple[Node, ...]], Mapping[Var, TensorType]]:
    """The calls of an attention with the mask of a causal one whose first query has number ``first``."""
    node = graph.nodes[index]
    number = fresh(graph)
    ones, mask = Var(number), Var(number + 1)
    kind = TensorType((rows, columns), _BOOL)
    made = (
        replace(node, op=aten.full.default, args=((rows, columns), True), kwargs={"dtype": DType(_BOOL)}, outs=(ones,)),
        replace(node, op=aten.tril.default, args=(ones, first), kwargs={}, outs=(mask,)),
        _with_mask(node, mask, causal=False),
    )
    return {index: made}, {ones: kind, mask: kind}


def _with_mask(node: Node, mask: Var | None, causal: bool) -> Node:
    args = list(node.args)
    args[_MASK], args[_CAUSAL] = mask, causal
    return replace(node, args=tuple(args))


def _as_specified(site: Site, meant: Node, proof: Proof, capture: Capture) -> Iterator[Guess]:
    """The specification's mask, made of what every rank holds, in place of the ranks' own."""
    spec, mask, causal = capture.spec, meant.args[_MASK], meant.args[_CAUSAL] is True
    assert spec is not None
    copied = _copied(mask, proof, spec) if isinstance(mask, Var) else _Copied((), {})
    mine = site.node.args[_MASK]
    if copied is None or (mask is None and mine is None):
        return
    calls: dict[int, Mapping[int, tuple[Node, ...]]] = {}
    types: dict[int, Mapping[Var, TensorType]] = {}
    for rank, index in site.position.items():
        graph = capture.ranks[rank]
        producers, node, number = graph.producers(), graph.nodes[index], fresh(graph)
        names = {var: tensors[rank] for var, tensors in copied.held.items()}
        if any(producers.get(held, -1) >= index for held in names.values()):
            return
        made: list[Node] = []
        kinds: dict[Var, TensorType] = {}
        for each in copied.nodes:
            outs = tuple(Var(number + place) for place in range(len(each.outs)))
            number += len(outs)
            kinds.update((new, spec.types[old]) for new, old in zip(outs, each.outs, strict=True))
            made.append(replace(renamed(each, names), outs=outs, stack=node.stack, module=node.module))
            names.update(zip(each.outs, outs, strict=True))
        own = names[mask] if isinstance(mask, Var) else None
        calls[rank], types[rank] = {index: (*made, _with_mask(node, own, causal))}, kinds
    shared = isinstance(mask, Var) and isinstance(mine, Var) and _made_alike(mine, mask, site, capture)
    cost = _LIKELY if mine is None or mask is None or shared else _POSSIBLE
    frames = spec.stack_of(meant.stack) if meant.stack >= 0 else ()
    written = frames[0].span if frames else None
    yield "wrong-relation", OtherCalls(calls, types, _OTHER, Masking(written=written)), site, cost


def _made_alike(mine: Var, its: Var, site: Site, capture: Capture) -> bool:
    """Whether two masks are made by the same line, such as that of a function that both programs call: then what it was called with is wrong."""
    assert capture.spec is not None
    graph, spec = capture.ranks[min(site.position)], capture.spec
    places = [
        frames[0].span
        for held, var in ((graph, mine), (spec, its))
        if (index := held.producers().get(var)) is not None and (frames := held.stack_of(held.nodes[index].stack))
    ]
    return len(places) == 2 and places[0] == places[1]


def _copied(mask: Var, proof: Proof, spec: Graph) -> _Copied | None:
    """How the specification makes a mask of what every rank holds whole; None where it makes it of anything else."""
    producers = spec.producers()
    held: dict[Var, Tensors] = {}
    needed: set[int] = set()
    waiting = [mask]
    while waiting:
        var = waiting.pop()
        if var in held:
            continue
        group = next((group for group, places in proof.holders(var) if _is_whole(places)), None)
        if group is not None:
            held[var] = group
        elif (index := producers.get(var)) is not None and spec.nodes[index].draw is None and len(needed) < _STEPS:
            needed.add(index)
            waiting.extend(spec.nodes[index].operands())
        else:
            return None
    return _Copied(tuple(spec.nodes[index] for index in sorted(needed)), held)


def _is_whole(places: Mapping[str, object]) -> bool:
    return all(getattr(place, "kind", "") == "replicate" for place in places.values())


def _is_causal(node: Node) -> bool:
    return node.args[_MASK] is None and node.args[_CAUSAL] is True


def _sizes(graph: Graph, node: Node) -> tuple[int, int]:
    """The numbers of queries and of keys; 0 where the data decides them."""
    sizes = [graph.types[var].shape[-2] for var in node.args[:2] if isinstance(var, Var)]
    rows, columns = (size if isinstance(size, int) else 0 for size in sizes)
    return rows, columns


def masking_text(node: Node, span: Span | None, program: Program | None) -> str:
    """How a call of attention masks, in the words of its author: ``with attn_mask=keep``."""
    if _is_causal(node):
        return "with is_causal=True"
    if node.args[_MASK] is None:
        return "without a mask"
    call = program.expression(span) if program is not None and span is not None else None
    words = {word.arg: word.value for word in call.keywords} if isinstance(call, ast.Call) else {}
    given = words.get("attn_mask") or (
        call.args[_MASK] if isinstance(call, ast.Call) and len(call.args) > _MASK else None
    )
    if given is None or program is None:
        return "with a mask"
    return f"with attn_mask={program.source(given)}"


def seen_keys(site: Site, meant: Node, point: Point, capture: Capture) -> str:
    """The first query that sees other keys than in the specification, where no input decides that; empty where there is none, or that cannot be told."""
    assert capture.spec is not None
    whole = _sees(meant, capture.spec, point.spec)
    axis, length = next(_query_axes(site, meant, capture), ("", 0))
    for rank, index in sorted(site.position.items()):
        mine = _sees(capture.ranks[rank].nodes[index], capture.ranks[rank], point.ranks[rank])
        first = length * capture.coordinates(rank)[axis] if axis else 0
        its = whole[first : first + length] if whole is not None and axis else whole
        if mine is None or its is None or mine.shape != its.shape:
            return ""
        rows = np.nonzero((mine != its).any(axis=-1))[0]
        if len(rows):
            who = f"query {rows[0]} of rank {rank}" if axis else f"query {rows[0]}"
            return f"'{{what}}' masks otherwise than the specification: {who} sees {_keys(mine[rows[0]])} and should see {_keys(its[rows[0]])}"
    return ""


def _sees(node: Node, graph: Graph, values: Mapping[Var, Number]) -> Array | None:
    """Which keys each query sees; None where an input decides that."""
    rows, columns = _sizes(graph, node)
    mask = node.args[_MASK]
    if not isinstance(mask, Var):
        return np.tril(np.ones((rows, columns), bool)) if node.args[_CAUSAL] is True else np.ones((rows, columns), bool)
    number = values.get(mask)
    if number is None or not number.literal or graph.types[mask].dtype != _BOOL:
        return None
    array = number.array != 0
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return array if array.shape == (rows, columns) else None


def _keys(row: Array) -> str:
    return told_places(row, "key") or "no key"


def causal_from(program: Program, span: Span, masking: Masking) -> Iterator[Draft]:
    """``is_causal=True`` as a mask that starts at the rank's first query."""
    call = program.expression(span)
    if not isinstance(call, ast.Call):
        return
    word = next((word for word in call.keywords if word.arg == "is_causal"), None)
    if word is None or len(call.args) < 2:
        return
    rows, columns = (
        _size(program, arg, size) for arg, size in zip(call.args, (masking.rows, masking.columns), strict=False)
    )
    at = replace(program.span(word.value), column=program.span(word.value).column - len("is_causal="))
    for rank in rank_expressions(program, call, masking.axis):
        mask = f"torch.ones({rows}, {columns}, dtype=torch.bool{_device(program, call.args[0])}).tril({rank} * {rows})"
        yield Draft(f"mask from this rank's first query along '{masking.axis}'", (TextEdit(at, f"attn_mask={mask}"),))


def _size(program: Program, arg: ast.expr, size: int) -> str:
    return f"{program.source(arg)}.size(-2)" if isinstance(arg, ast.Name | ast.Attribute) else str(size)


def _device(program: Program, arg: ast.expr) -> str:
    return f", device={program.source(arg)}.device" if isinstance(arg, ast.Name | ast.Attribute) else ""
