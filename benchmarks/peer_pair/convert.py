"""A peer-pair task as a capture: one graph for the sequential program, one for every rank, and what must hold.

Related placeholders become windows of the sequential ones (nodes of phase ``prelude``).  A relation that the task states of an *intermediate* tensor is
not trusted where its definition can be followed down to related placeholders; where it cannot, the tensor becomes an input and the
capture's ``assumed`` says so.  Every output of the sequential program is promised, not only those that the task names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.peer_pair.document import PeerGraph, PeerNode, Ref, Task, Tensor, Term, tensors
from benchmarks.peer_pair.layouts import Layout, Layouts, Window, layouts_of
from benchmarks.peer_pair.operators import Call, ConversionError, Results, convert_item, convert_node
from benchmarks.peer_pair.promises import Pledge, pledges_of
from graphguard.ir import Capture, CheckRef, Leaf, Promise, Span, TensorType, Var
from graphguard.ir.building import Builder

_COLLECTIVES = {
    "_c10d_functional.all_reduce.default": "all_reduce",
    "_c10d_functional.all_gather_into_tensor.default": "all_gather",
    "_c10d_functional.reduce_scatter_tensor.default": "reduce_scatter",
    "_c10d_functional.all_to_all_single.default": "all_to_all",
    "_c10d_functional.broadcast.default": "broadcast",
    "vllm.all_reduce.default": "all_reduce",
}
_GETITEM = "<built-in function getitem>"
_ASSUMED = {
    "vllm.unified_attention_with_output.default": "attention is causal over all tokens as one sequence",
    "aten.native_dropout.default": "dropout masks agree per logical element",
}


@dataclass(frozen=True, slots=True)
class Converted:
    """A task ready to be proved.

    ``conflicts`` are contradictions of its input relation; ``unchecked`` are outputs that are not in the capture because an operator has no
    counterpart: without them nothing is proved of the whole.
    """

    capture: Capture
    conflicts: tuple[str, ...]
    unchecked: tuple[str, ...] = ()


def convert(task: Task) -> Converted:
    """The capture of a task; raises :class:`ConversionError` for what has no counterpart."""
    graphs = _Graphs(task)
    trusted, assumed = _relation(graphs)
    layouts = layouts_of(task, trusted)
    cut = {tensor for terms in trusted for term in terms for tensor in tensors(term)} | task.forced
    pledges = pledges_of(task, lambda chosen: not graphs.unrelated(chosen, cut, set(layouts.of)))
    spec = _Converter(graphs, None, cut, layouts)
    ranks = [_Converter(graphs, rank, cut, layouts) for rank in range(len(task.dist))]
    needed = graphs.needed([tensor for pledge in pledges.made for tensor in pledge.tensors()], cut)
    for converter in (spec, *ranks):
        converter.run(needed)
    kept = [pledge for pledge in pledges.made if _promise(pledge, spec, ranks)]
    missing = tuple(f"'{pledge.name}': {_reason(pledge, spec, ranks)}" for pledge in pledges.made if pledge not in kept)
    if not kept:
        raise ConversionError("; ".join(missing) or "the task promises nothing")
    used = {node.op if node.op != "auto_functionalized" else str(node.args[0]) for _, node in graphs.of(needed)}
    leaves: dict[str, Leaf] = {}
    for converter in (spec, *ranks):
        leaves.update(converter.leaves)
    capture = Capture(
        check=CheckRef(task.name, task.name, Span(task.name, 1)),
        mesh={"tp": len(task.dist)},
        leaves=tuple(leaves.values()),
        spec=spec.builder.graph(),
        ranks=tuple(converter.builder.graph() for converter in ranks),
        promises=tuple(Promise(pledge.name, pledge.wanted) for pledge in kept),
        assumed=(*assumed, *pledges.assumed, *(text for op, text in _ASSUMED.items() if op in used)),
        traits={"peer.dropout": "elementwise"},
    )
    return Converted(capture, tuple(layouts.conflicts), missing)


class _Graphs:
    """All graphs of a task, and who reads what across ranks: ``None`` is the sequential program."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.nodes: dict[int | None, dict[str, PeerNode]] = {None: task.seq.by_id()}
        self.nodes.update((rank, graph.by_id()) for rank, graph in enumerate(task.dist))
        self._calls: dict[tuple[str, int, int], str] = {}
        self._place: dict[Tensor, tuple[str, int]] = {}
        for rank, graph in enumerate(task.dist):
            self._number(rank, graph)

    def _number(self, rank: int, graph: PeerGraph) -> None:
        """The i-th collective of a group on each member is one operation."""
        seen: Counter[str] = Counter()
        for node in graph.nodes:
            if node.op in _COLLECTIVES:
                name = str(node.args[-1])
                self._calls[name, seen[name], rank] = node.id
                self._place[Tensor(rank, node.id)] = (name, seen[name])
                seen[name] += 1

    def members(self, tensor: Tensor) -> tuple[int, ...]:
        """The ranks of a collective's group."""
        if tensor.rank is None:
            return (0,)
        name, _ = self._place[tensor]
        ranks = self.task.groups.get(name, tuple(range(len(self.task.dist))))
        return ranks if tensor.rank in ranks else (tensor.rank,)

    def partners(self, tensor: Tensor) -> list[Tensor]:
        """The calls of all members that are one operation with this one."""
        if tensor not in self._place:
            return [tensor]
        name, number = self._place[tensor]
        calls = ((rank, self._calls.get((name, number, rank))) for rank in self.members(tensor))
        return [Tensor(rank, node) for rank, node in calls if node is not None]

    def node(self, tensor: Tensor) -> PeerNode:
        """The node that makes a tensor."""
        try:
            return self.nodes[tensor.rank][tensor.node]
        except KeyError:
            raise ConversionError(f"no tensor '{tensor.node}' in the graph") from None

    def reads(self, tensor: Tensor) -> list[Tensor]:
        """What must be there before a tensor can be computed."""
        node = self.node(tensor)
        if node.op == "aten.copy.default":
            source = node.args[1]
            return [Tensor(tensor.rank, source.node)] if isinstance(source, Ref) else []
        if node.op == _GETITEM:
            node = self.node(Tensor(tensor.rank, next(node.reads())))
        if node.op == "aten.lift_fresh_copy.default" or is_leaf(node):
            return []
        written = {"result", "output", "out"} if node.op == "auto_functionalized" else set()
        values = (*node.args, *(value for key, value in node.kwargs.items() if key not in written))
        return [Tensor(tensor.rank, name) for value in values for name in _named(value)]

    def needed(self, roots: Iterable[Tensor], cut: set[Tensor]) -> set[Tensor]:
        """Everything that the roots rest on, down to leaves and cuts, across collectives."""
        found: set[Tensor] = set()
        todo = list(roots)
        while todo:
            tensor = todo.pop()
            if tensor in found:
                continue
            found.add(tensor)
            if tensor not in cut:
                todo.extend(self.reads(tensor))
                todo.extend(partner for partner in self.partners(tensor) if partner != tensor)
        return found

    def unrelated(self, roots: Iterable[Tensor], cut: set[Tensor], related: set[tuple[int, str]]) -> set[Tensor]:
        """The ranks' inputs below the roots that no relation speaks of."""
        return {
            tensor
            for tensor in self.needed(roots, cut)
            if tensor.rank is not None
            and (tensor.rank, tensor.node) not in related
            and (tensor in cut or (is_leaf(self.node(tensor)) and not _unwritten(self.node(tensor))))
        }

    def of(self, chosen: set[Tensor]) -> Iterable[tuple[Tensor, PeerNode]]:
        """The chosen tensors' nodes; an item of a node with several results stands for that node."""
        for tensor in chosen:
            node = self.node(tensor)
            yield tensor, (self.node(Tensor(tensor.rank, next(node.reads()))) if node.op == _GETITEM else node)


def _named(value: object) -> list[str]:
    if isinstance(value, Ref):
        return [value.node]
    if isinstance(value, tuple):
        return [name for item in value for name in _named(item)]
    if isinstance(value, dict):
        return [name for item in value.values() for name in _named(item)]
    return []


def is_leaf(node: PeerNode) -> bool:
    """Whether a node's value is not computed: an input, an attribute, or memory that nobody has written."""
    return node.kind != "call_function" or node.op.startswith(("aten.empty", "aten.new_empty"))


def _relation(graphs: _Graphs) -> tuple[list[tuple[Term, ...]], list[str]]:
    """The classes to trust, and sentences about those that had to be trusted of intermediate tensors."""
    task = graphs.task
    of_leaves, of_others = [], []
    for terms in task.relation:
        named = [tensor for term in terms for tensor in tensors(term)]
        (of_leaves if all(is_leaf(graphs.node(tensor)) for tensor in named) else of_others).append(terms)
    related = {(t.rank, t.node) for terms in of_leaves for term in terms for t in tensors(term) if t.rank is not None}
    cut = set(task.forced)
    assumed = []
    for terms in of_others:
        named = [tensor for term in terms for tensor in tensors(term)]
        if graphs.unrelated((tensor for tensor in named if tensor.rank is not None), cut, related):
            of_leaves.append(terms)
            assumed.append(f"the relation of the intermediate tensor '{named[0].node}', whose origin is not related")
    return of_leaves, assumed


def _unwritten(node: PeerNode) -> bool:
    return node.kind == "call_function" and is_leaf(node)


class _Converter:
    """One graph on its way to the product's form."""

    def __init__(self, graphs: _Graphs, rank: int | None, cut: set[Tensor], layouts: Layouts) -> None:
        self.graphs = graphs
        self.rank = rank
        self.cut = cut
        self.layouts = layouts
        self.builder = Builder()
        self.leaves: dict[str, Leaf] = {}
        self.values: dict[str, Var] = {}
        self.failed: dict[str, str] = {}
        self._items: dict[str, Results] = {}

    def run(self, needed: set[Tensor]) -> None:
        """Convert what is needed, inputs first."""
        graph = self.graphs.task.seq if self.rank is None else self.graphs.task.dist[self.rank]
        chosen = [node for node in graph.nodes if Tensor(self.rank, node.id) in needed]
        self.builder.phase = "prelude"
        for node in chosen:
            if is_leaf(node) or Tensor(self.rank, node.id) in self.cut:
                self._try(node, self._leaf)
        self.builder.phase = "forward"
        for node in chosen:
            if node.id not in self.values and node.shape is not None:
                self._try(node, self._convert)

    def _try(self, node: PeerNode, convert_one: Callable[[PeerNode], Var]) -> None:
        """Convert a node, or keep why it has no counterpart: what reads it has none either, the rest of the program has."""
        reason = next((self.failed[name] for name in node.reads() if name in self.failed), None)
        try:
            if reason is None:
                self.values[node.id] = convert_one(node)
        except ConversionError as error:
            reason = str(error)
        if reason is not None:
            self.failed[node.id] = reason

    def _convert(self, node: PeerNode) -> Var:
        call = Call(node, self.builder, self.values, self.graphs.nodes[self.rank])
        if node.op in _COLLECTIVES:
            return self._collective(call)
        if node.op == _GETITEM:
            source, index = node.args
            if not isinstance(source, Ref) or not isinstance(index, int):
                raise ConversionError(f"'{node.id}' takes an item of something else")
            return convert_item(call, call.nodes[source.node], index, self._items)
        return convert_node(call)

    # -- inputs
    def _leaf(self, node: PeerNode) -> Var:
        if node.shape is None or node.dtype is None:
            raise ConversionError(f"the input '{node.id}' has no type")
        if self.rank is None:
            return self._sequential(node)
        layout = self.layouts.of.get((self.rank, node.id))
        if layout is None:
            return self._input(f"{node.id}@{self.rank}", node.shape, node.dtype)
        made = self.laid_out(layout)
        call = Call(node, self.builder, self.values, {})
        if call.shape(made) != node.shape:
            raise ConversionError(f"the relation of '{node.id}' has shape {call.shape(made)}, the tensor {node.shape}")
        if call.dtype(made) == node.dtype:
            return made
        return call.emit("aten._to_copy.default", made, shape=node.shape, dtype=node.dtype, typed=True)

    def _sequential(self, node: PeerNode) -> Var:
        assert node.shape is not None
        assert node.dtype is not None
        summands = self.layouts.sums.get(node.id)
        if summands is None:
            return self._input(self.layouts.same.get(node.id, node.id), node.shape, node.dtype)
        call = Call(node, self.builder, self.values, {})
        parts = [self._input(f"{tensor.node}@{tensor.rank}", node.shape, node.dtype) for tensor in summands]
        total = parts[0]
        for item in parts[1:]:
            total = call.binary("aten.add.Tensor", total, item)
        return total

    def _input(self, name: str, shape: tuple[int, ...], dtype: str) -> Var:
        self.leaves.setdefault(name, Leaf(name, "input", TensorType(shape, dtype)))
        return self.builder.input(name, shape, dtype)

    def laid_out(self, layout: Layout) -> Var:
        """The variable of a layout of sequential tensors."""
        if isinstance(layout, Window):
            node = self.graphs.node(Tensor(None, layout.leaf))
            assert node.shape is not None
            assert node.dtype is not None
            name = self.layouts.same.get(layout.leaf, layout.leaf)
            return self.window(self._input(name, node.shape, node.dtype), layout)
        parts = tuple(self.laid_out(item) for item in layout.parts)
        call = Call(_NOTHING, self.builder, self.values, {})
        sizes = list(call.shape(parts[0]))
        sizes[layout.dim] = sum(call.shape(item)[layout.dim] for item in parts)
        return call.emit("aten.cat.default", parts, layout.dim, shape=sizes, dtype=call.dtype(parts[0]))

    def window(self, x: Var, window: Window) -> Var:
        """A box of a variable."""
        call = Call(_NOTHING, self.builder, self.values, {})
        for dim, (start, size) in enumerate(zip(window.starts, window.shape, strict=True)):
            if size != call.shape(x)[dim]:
                x = call.slice(x, dim, start, start + size)
        return x

    # -- collectives
    def _collective(self, call: Call) -> Var:
        node, kind = call.node, _COLLECTIVES[call.node.op]
        tensor = Tensor(self.rank, node.id)
        group, x = self.graphs.members(tensor), call.tensor(node.args[0])
        if self.rank is None or len(group) == 1:
            return x
        shape, dtype = call.out
        reduce = str(node.args[1]) if len(node.args) > 1 and isinstance(node.args[1], str) else "sum"
        if kind == "all_reduce":
            how = "sum" if node.op.startswith("vllm.") else reduce
            return self.builder.call("gg.all_reduce", x, how, group, out=(shape, dtype))
        if kind == "broadcast":
            return self.builder.call("gg.broadcast", x, call.arg(node.args[1]), group, out=(shape, dtype))
        if kind == "all_gather":
            own = call.shape(x)
            self.builder.call("gg.all_gather", x, group, out=[(own, dtype)] * len(group))
            return call.emit("aten.cat.default", self.builder.nodes[-1].outs, 0, shape=shape, dtype=dtype)
        if kind == "reduce_scatter":
            pieces = self._pieces(call, x, [shape[0]] * len(group))
            return self.builder.call("gg.reduce_scatter", pieces, reduce, group, out=(shape, dtype))
        return self._all_to_all(call, x, group)

    def _all_to_all(self, call: Call, x: Var, group: tuple[int, ...]) -> Var:
        received, sent = (_sizes(value) for value in call.node.args[1:3])
        shape, dtype = call.out
        pieces = self._pieces(call, x, sent)
        kinds = [((size, *shape[1:]), dtype) for size in received]
        self.builder.call("gg.all_to_all", pieces, group, out=kinds)
        return call.emit("aten.cat.default", self.builder.nodes[-1].outs, 0, shape=shape, dtype=dtype)

    def _pieces(self, call: Call, x: Var, sizes: list[int]) -> tuple[Var, ...]:
        if sum(sizes) != call.shape(x)[0]:
            raise ConversionError(f"'{call.node.op}' at '{call.node.id}' does not split its operand evenly")
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        return tuple(call.slice(x, 0, start, start + size) for start, size in zip(starts, sizes, strict=True))


_NOTHING = PeerNode("", "call_function", "", (), {}, None, None)


def _sizes(value: object) -> list[int]:
    if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
        raise ConversionError("an all-to-all with sizes that are not numbers")
    return [item for item in value if isinstance(item, int)]


def _promise(pledge: Pledge, spec: _Converter, ranks: list[_Converter]) -> bool:
    """Name the tensors of a pledge as outputs of their graphs; whether all of them are there."""
    holders = [(spec, pledge.seq, pledge.window), *((ranks[rank], *held) for rank, held in pledge.ranks.items())]
    if any(tensor.node not in converter.values for converter, tensor, _ in holders):
        return False
    for converter, tensor, window in holders:
        found = converter.values[tensor.node]
        converter.builder.outputs[pledge.name] = found if window is None else converter.window(found, window)
    return True


def _reason(pledge: Pledge, spec: _Converter, ranks: list[_Converter]) -> str:
    failed = [(spec, pledge.seq), *((ranks[rank], tensor) for rank, (tensor, _) in pledge.ranks.items())]
    return next((c.failed[t.node] for c, t in failed if t.node in c.failed), "a tensor of unknown shape")
