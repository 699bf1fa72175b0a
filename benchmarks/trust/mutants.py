"""Single changes to the ranks' graphs of a correct capture: what people get wrong, and what they never would."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from graphguard.ir import Capture, DType, Graph, Node, Var
from graphguard.ir.graph import Arg
from graphguard.ir.joining import join


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed capture, and the change in words."""

    capture: Capture
    change: str


_REDUCTIONS = ("sum", "avg", "max", "min", "product")
# What is inserted after results of a type.
_INSERTED = {
    "float32": ("sum", "avg", "max", "bfloat16", "float16"),
    "float64": ("sum", "avg", "min", "float32", "bfloat16"),
    "int64": ("sum", "max", "int8", "uint8"),
}
Change = tuple[Node, str] | None
# A kind of change to one node of one rank: the rank is told, so that it can use what is there.
Mutator = Callable[[random.Random, Graph, int, int], Change]


def mutants(capture: Capture, rng: random.Random, count: int) -> Iterator[Mutant]:
    """Up to ``count`` different mutants; those whose collectives no longer meet are left out, as they would hang."""
    seen: set[str] = set()
    tries = 0
    while len(seen) < count and tries < 20 * count:
        tries += 1
        mutant = _inserted(capture, rng) if rng.random() < 0.1 else _mutant(capture, rng)
        if mutant is None or mutant.change in seen or join(mutant.capture.ranks).mismatches:
            continue
        seen.add(mutant.change)
        yield mutant


def _mutant(capture: Capture, rng: random.Random) -> Mutant | None:
    rank = rng.randrange(len(capture.ranks))
    graph = capture.ranks[rank]
    own = [index for index, node in enumerate(graph.nodes) if node.phase != "prelude"]
    if not own:
        return None
    index = rng.choice(own)
    name = rng.choice(list(MUTATORS))
    everywhere = rng.random() < 0.5 and _alike(capture, index)
    state = rng.random()
    graphs = list(capture.ranks)
    words = ""
    for which in range(len(graphs)) if everywhere else [rank]:
        # The same choices on every rank: the change is to the program's text, not to one run of it.
        change = MUTATORS[name](random.Random(state), graphs[which], index, which)
        if change is None:
            return None
        node, words = change
        graphs[which] = _with(graphs[which], index, node)
    place = "all ranks" if everywhere else f"rank {rank}"
    return Mutant(replace(capture, ranks=tuple(graphs)), f"{place}, node {index}: {words}")


def _inserted(capture: Capture, rng: random.Random) -> Mutant | None:
    """On every rank, an all-reduce or a narrowing cast there and back of a result where there was none."""
    index = rng.randrange(len(capture.ranks[0].nodes))
    if not _alike(capture, index):
        return None
    outs = capture.ranks[0].nodes[index].outs
    kind = capture.ranks[0].types[outs[0]].dtype if len(outs) == 1 else ""
    if kind not in _INSERTED:
        return None
    how = rng.choice(_INSERTED[kind])
    world = tuple(range(len(capture.ranks)))
    graphs = []
    for graph in capture.ranks:
        node = graph.nodes[index]
        if len(node.outs) != 1 or graph.types[node.outs[0]].dtype != kind or node.phase == "prelude":
            return None
        graphs.append(_after(graph, index, how, world))
    words = f"all-reduce ({how})" if how in _REDUCTIONS else f"cast to {how}"
    change = f"all ranks, node {index}: {words} after {capture.ranks[0].nodes[index].op}"
    return Mutant(replace(capture, ranks=tuple(graphs)), change)


def _after(graph: Graph, index: int, how: str, world: tuple[int, ...]) -> Graph:
    """The graph with the result of a node reduced over the world, or cast there and back."""
    node = graph.nodes[index]
    out = node.outs[0]
    kind = graph.types[out]
    fresh, narrow = (Var(number + max(var.id for var in graph.types)) for number in (1, 2))
    if how in _REDUCTIONS:
        calls = [Node("gg.all_reduce", (fresh, how, world), {}, node.outs, phase=node.phase)]
    else:
        calls = [
            Node("aten._to_copy.default", (fresh,), {"dtype": DType(how)}, (narrow,), phase=node.phase),
            Node("aten._to_copy.default", (narrow,), {"dtype": DType(kind.dtype)}, node.outs, phase=node.phase),
        ]
    nodes = (*graph.nodes[:index], replace(node, outs=(fresh,)), *calls, *graph.nodes[index + 1 :])
    types = {**graph.types, fresh: kind, **({} if len(calls) == 1 else {narrow: replace(kind, dtype=how)})}
    return replace(graph, nodes=nodes, types=types)


def _alike(capture: Capture, index: int) -> bool:
    """Whether every rank runs the same operator at an index."""
    return all(index < len(g.nodes) and g.nodes[index].op == capture.ranks[0].nodes[index].op for g in capture.ranks)


def _with(graph: Graph, index: int, node: Node) -> Graph:
    return replace(graph, nodes=(*graph.nodes[:index], node, *graph.nodes[index + 1 :]))


def _before(graph: Graph, index: int, like: Var) -> list[Var]:
    """Other variables of the same type that exist at a node."""
    known = [*graph.inputs, *graph.constants, *(out for node in graph.nodes[:index] for out in node.outs)]
    return [var for var in known if var != like and graph.types[var] == graph.types[like]]


def _arg(node: Node, position: int, value: Arg) -> Node:
    return replace(node, args=(*node.args[:position], value, *node.args[position + 1 :]))


def operand(rng: random.Random, graph: Graph, index: int, _: int) -> Change:
    """Another tensor of the same type is read."""
    node = graph.nodes[index]
    places = [i for i, arg in enumerate(node.args) if isinstance(arg, Var)]
    if not places:
        return None
    place = rng.choice(places)
    old = node.args[place]
    assert isinstance(old, Var)
    others = _before(graph, index, old)
    if not others:
        return None
    # By position in the list: ranks that run one program have the same list.
    new = others[rng.randrange(len(others))]
    return _arg(node, place, new), f"{node.op} reads %{new.id} for %{old.id}"


def swapped(_: random.Random, graph: Graph, index: int, __: int) -> Change:
    """Two operands change places."""
    node = graph.nodes[index]
    places = [i for i, arg in enumerate(node.args[:2]) if isinstance(arg, Var)]
    a, b = (node.args[i] for i in places) if len(places) == 2 else (None, None)
    if not isinstance(a, Var) or not isinstance(b, Var) or a == b or graph.types[a] != graph.types[b]:
        return None
    return replace(node, args=(b, a, *node.args[2:])), f"{node.op} with its operands swapped"


def dropped(_: random.Random, graph: Graph, index: int, __: int) -> Change:
    """A collective or an elementwise operator is left out."""
    node = graph.nodes[index]
    first = node.args[0] if node.args else None
    if not isinstance(first, Var) or len(node.outs) != 1 or graph.types[first] != graph.types[node.outs[0]]:
        return None
    return replace(node, op="aten.clone.default", args=(first,), kwargs={}, draw=None), f"{node.op} dropped"


def reduction(rng: random.Random, graph: Graph, index: int, _: int) -> Change:
    """Another reduction."""
    node = graph.nodes[index]
    if node.op not in ("gg.all_reduce", "gg.reduce_scatter"):
        return None
    old = node.args[1]
    new = rng.choice([how for how in _REDUCTIONS if how != old])
    return _arg(node, 1, new), f"{node.op}: {new} for {old}"


def group(rng: random.Random, graph: Graph, index: int, rank: int) -> Change:
    """A collective over another group of ranks."""
    node = graph.nodes[index]
    members = node.args[-1]
    if node.op != "gg.all_reduce" or not isinstance(members, tuple) or len(members) < 4:
        return None
    pairs = [members[i : i + 2] for i in range(0, len(members), 2)]
    stride = [(members[i], members[i + len(members) // 2]) for i in range(len(members) // 2)]
    chosen = rng.choice([pairs, stride])
    mine = next((part for part in chosen if rank in part), None)
    return None if mine is None else (_arg(node, len(node.args) - 1, tuple(mine)), f"{node.op} over {mine}")


def rotation(_: random.Random, graph: Graph, index: int, __: int) -> Change:
    """The members of a group in another order."""
    node = graph.nodes[index]
    members = node.args[-1] if node.args else None
    if node.op not in ("gg.all_gather", "gg.reduce_scatter", "gg.all_to_all") or not isinstance(members, tuple):
        return None
    moved = (*members[1:], members[0])
    return None if len(members) < 2 else (_arg(node, len(node.args) - 1, moved), f"{node.op} over {moved}")


def source(rng: random.Random, graph: Graph, index: int, _: int) -> Change:
    """Another rank's tensor is sent to all, or scattered."""
    node = graph.nodes[index]
    members = node.args[-1] if node.args else None
    if node.op not in ("gg.broadcast", "gg.reduce") or not isinstance(members, tuple) or len(members) < 2:
        return None
    new = rng.choice([member for member in members if member != node.args[1]])
    return _arg(node, 1, new), f"{node.op} with rank {new} for {node.args[1]}"


def order(rng: random.Random, graph: Graph, index: int, _: int) -> Change:
    """Two parts of a concatenation or of a scattered list change places."""
    node = graph.nodes[index]
    parts = node.args[0] if node.args else None
    if not isinstance(parts, tuple) or len(parts) < 2:
        return None
    i, j = rng.sample(range(len(parts)), 2)
    a, b = parts[i], parts[j]
    if not isinstance(a, Var) or not isinstance(b, Var) or a == b or graph.types[a] != graph.types[b]:
        return None
    moved = list(parts)
    moved[i], moved[j] = b, a
    return _arg(node, 0, tuple(moved)), f"{node.op} with parts {i} and {j} swapped"


def offset(rng: random.Random, graph: Graph, index: int, _: int) -> Change:
    """A slice or a selection starts elsewhere."""
    node = graph.nodes[index]
    source = node.args[0] if node.args else None
    if node.op not in ("aten.slice.Tensor", "aten.select.int") or not isinstance(source, Var) or len(node.args) < 3:
        return None
    dim, start = node.args[1], node.args[2]
    if not isinstance(dim, int) or not isinstance(start, int):
        return None
    extent = graph.types[source].shape[dim]
    width = 1 if node.op == "aten.select.int" else graph.types[node.outs[0]].shape[dim]
    if not isinstance(extent, int) or not isinstance(width, int) or (len(node.args) > 4 and node.args[4] != 1):
        return None
    places = [at for at in range(extent - width + 1) if at != start % max(extent, 1)]
    if not places:
        return None
    at = rng.choice(places)
    moved = _arg(node, 2, at)
    return (moved if node.op == "aten.select.int" else _arg(moved, 3, at + width)), f"{node.op} from {at} for {start}"


def dimension(rng: random.Random, graph: Graph, index: int, _: int) -> Change:
    """A reduction or a softmax over another dim of the same extent."""
    node = graph.nodes[index]
    source = node.args[0] if node.args else None
    if not isinstance(source, Var) or len(node.args) < 2:
        return None
    named = node.args[1]
    old = named[0] if isinstance(named, tuple) and len(named) == 1 else named
    if node.op.split(".")[1] not in ("sum", "mean", "amax", "_softmax", "cumsum", "logsumexp") or not isinstance(
        old, int
    ):
        return None
    shape = graph.types[source].shape
    others = [d for d in range(len(shape)) if d != old % len(shape) and shape[d] == shape[old]]
    if not others:
        return None
    new = rng.choice(others)
    return _arg(node, 1, (new,) if isinstance(named, tuple) else new), f"{node.op} over dim {new} for {old}"


def literal(rng: random.Random, graph: Graph, index: int, _: int) -> Change:
    """A number is another: a factor, a bound, an epsilon, a probability, a scale."""
    node = graph.nodes[index]
    kinds: tuple[type, ...] = (int, float) if node.op.split(".")[1] in _ARITHMETIC else (float,)
    places = [i for i, arg in enumerate(node.args[1:], 1) if isinstance(arg, kinds) and not isinstance(arg, bool)]
    if not places:
        return None
    place = rng.choice(places)
    old = node.args[place]
    assert isinstance(old, int | float)
    new = rng.choice([old * 2, -old, old / 2] if isinstance(old, float) else [old * 2, old + 1])
    return None if new == old else (_arg(node, place, new), f"{node.op}: {new} for {old}")


def flag(_: random.Random, graph: Graph, index: int, __: int) -> Change:
    """Attention is causal where it was not, or the other way round."""
    node = graph.nodes[index]
    place = {"gg.sdpa": 5, "gg.sdpa_backward": 7}.get(node.op)
    if place is None or place >= len(node.args) or not isinstance(node.args[place], bool):
        return None
    return _arg(node, place, not node.args[place]), f"{node.op}: causal {not node.args[place]}"


_ARITHMETIC = frozenset(
    ("add", "sub", "rsub", "mul", "div", "pow", "ge", "lt", "le", "gt", "eq", "ne", "masked_fill", "clamp")
)
_OTHER = {
    "aten.add.Tensor": "aten.sub.Tensor",
    "aten.sub.Tensor": "aten.add.Tensor",
    "aten.mul.Tensor": "aten.div.Tensor",
    "aten.div.Tensor": "aten.mul.Tensor",
    "aten.sum.dim_IntList": "aten.mean.dim",
    "aten.mean.dim": "aten.sum.dim_IntList",
    "aten.sum.default": "aten.mean.default",
    "aten.mean.default": "aten.sum.default",
    "aten.exp.default": "aten.tanh.default",
    "aten.tanh.default": "aten.sigmoid.default",
    "aten.silu.default": "aten.relu.default",
    "aten.cos.default": "aten.sin.default",
    "aten.sin.default": "aten.cos.default",
    "aten.rsqrt.default": "aten.sqrt.default",
}


def operator(_: random.Random, graph: Graph, index: int, __: int) -> Change:
    """Another operator of the same form."""
    node = graph.nodes[index]
    if node.op not in _OTHER or graph.types[node.outs[0]].dtype.startswith(("int", "bool")):
        return None
    return replace(node, op=_OTHER[node.op]), f"{_OTHER[node.op]} for {node.op}"


MUTATORS: dict[str, Mutator] = {
    "operand": operand,
    "swapped": swapped,
    "dropped": dropped,
    "reduction": reduction,
    "group": group,
    "rotation": rotation,
    "source": source,
    "order": order,
    "offset": offset,
    "dimension": dimension,
    "literal": literal,
    "flag": flag,
    "operator": operator,
}
