"""Puts a graph together, node by node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch

from graphguard.ir.graph import Arg, Constant, DType, Graph, Node, Size, Sym, TensorType, Var
from graphguard.ir.spans import Frame
from graphguard.ir.written import written
from graphguard.trace.events import Event, Members, Opaque

_NOWHERE = Event("none", (), {}, None, -1, None, "", "prelude")


class Builder:
    """Fresh variables, their types, and nodes that carry the provenance of the event being translated (``at``)."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.types: dict[Var, TensorType] = {}
        self.inputs: dict[Var, str] = {}
        self.constants: dict[Var, Constant] = {}
        self.outputs: dict[str, Var] = {}
        self.labels: dict[Var, str] = {}
        self.symbols: dict[str, Var] = {}
        self.at: Event = _NOWHERE
        self._kinds: dict[tuple[tuple[Size, ...], str], TensorType] = {}
        self._bits: dict[Var, Var] = {}

    def new(self, shape: tuple[Size, ...], dtype: str) -> Var:
        """A variable of this type."""
        var = Var(len(self.types))
        kind = self._kinds.get((shape, dtype))
        if kind is None:
            kind = self._kinds[shape, dtype] = TensorType(shape, dtype)
        self.types[var] = kind
        return var

    def emit(
        self, op: str, args: tuple[Any, ...], outs: list[tuple[tuple[Size, ...], str]], /, **kwargs: Any
    ) -> tuple[Var, ...]:
        """Append a node with results of these types."""
        results = tuple(self.new(shape, dtype) for shape, dtype in outs)
        self.append(op, args, kwargs, results)
        return results

    def one(self, op: str, args: tuple[Any, ...], shape: tuple[Size, ...], dtype: str, /, **kwargs: Any) -> Var:
        """Append a node with one result; bits that are read as another type and back are what they were."""
        if op != "aten.view.dtype":
            return self.emit(op, args, [(shape, dtype)], **kwargs)[0]
        before = self.bits_of(args[0])
        if before is not None and self.types[before] == TensorType(shape, dtype):
            return before
        result = self.emit(op, args, [(shape, dtype)], **kwargs)[0]
        self._bits[result] = args[0]
        return result

    def bits_of(self, value: Var) -> Var | None:
        """The value of another type whose bits a value shows, if it does."""
        return self._bits.get(value)

    def append(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], results: tuple[Var, ...]) -> None:
        """Append a node whose results exist already."""
        at = self.at
        plain = {key: plain_argument(value) for key, value in kwargs.items()}
        node = Node(
            op, tuple(map(plain_argument, args)), plain, results, at.stack, at.forward, at.module, at.phase, at.draw
        )
        self.nodes.append(self._as_written(node) if op.endswith(".Scalar") else node)

    def _as_written(self, node: Node) -> Node:
        """The call with its numbers as somebody wrote them: operators that are made of others in C++ round theirs to the type of their tensors."""
        if any(self.types[var].dtype in DOUBLE for var in (*node.operands(), *node.outs)):
            return node
        return replace(node, args=tuple(written(arg) if isinstance(arg, float) else arg for arg in node.args))

    def reshaped(self, value: Var, shape: tuple[Size, ...]) -> Var:
        """The same elements in row-major order."""
        kind = self.types[value]
        return value if kind.shape == shape else self.one("aten.view.default", (value, shape), shape, kind.dtype)

    def shaped(self, value: Var, shape: tuple[Size, ...], dtype: str) -> Var:
        """``value`` cast and broadcast, as ``copy_`` does."""
        kind = self.types[value]
        if kind.dtype != dtype:
            value = self.one("aten._to_copy.default", (value,), kind.shape, dtype, dtype=DType(dtype))
        if kind.shape == shape:
            return value
        if may_be_equal(kind.shape, shape):
            return self.reshaped(value, shape)
        return self.one("aten.expand.default", (value, shape), shape, dtype)

    def joined(self, parts: tuple[Var, ...], shape: tuple[Size, ...], dtype: str) -> Var:
        """The parts one after the other in memory, in one shape."""
        part = self.types[parts[0]]
        if len(shape) == len(part.shape) and shape[1:] == part.shape[1:] and part.shape:
            return self.one("aten.cat.default", (parts, 0), shape, dtype)
        if shape == (len(parts), *part.shape):
            return self.one("aten.stack.default", (parts, 0), shape, dtype)
        flat = tuple(self.flattened(value) for value in parts)
        total = sum(elements(self.types[value]) for value in flat)
        return self.reshaped(self.one("aten.cat.default", (flat, 0), (total,), dtype), shape)

    def flattened(self, value: Var) -> Var:
        """The elements in row-major order along one dim."""
        return self.reshaped(value, (elements(self.types[value]),))

    def graph(self, frames: tuple[Frame, ...], stacks: tuple[tuple[int, ...], ...]) -> Graph:
        """What was built, without the rearrangements and uninitialised memory that nothing reads."""
        nodes = self._live_nodes()
        # by number: variables are hashed in Python
        used = {var.id for node in nodes for group in (node.reads, node.outs) for var in group}
        used.update(var.id for group in (self.outputs.values(), self.symbols.values(), self.inputs) for var in group)
        return Graph(
            inputs=self.inputs,
            constants={var: constant for var, constant in self.constants.items() if var.id in used},
            nodes=nodes,
            types={var: kind for var, kind in self.types.items() if var.id in used},
            outputs=self.outputs,
            labels={var: name for var, name in self.labels.items() if var.id in used},
            symbols=self.symbols,
            frames=frames,
            stacks=stacks,
        )

    def _live_nodes(self) -> tuple[Node, ...]:
        wanted = {var.id for group in (self.outputs.values(), self.symbols.values(), self.labels) for var in group}
        kept = []
        for node in reversed(self.nodes):
            silent = (node.phase == "prelude" and not node.op.startswith("gg.")) or node.op in _BOOKKEEPING
            if silent and not any(out.id in wanted for out in node.outs):
                continue
            wanted.update([var.id for var in node.reads])
            kept.append(node)
        return tuple(reversed(kept))


DOUBLE: Final = frozenset(("float64", "complex128"))
_BOOKKEEPING = frozenset(
    "aten." + name
    for name in (
        "as_strided.default",
        "as_strided_scatter.default",
        "diagonal_scatter.default",
        "empty.memory_format",
        "empty_strided.default",
        "full.default",
        "permute.default",
        "select.int",
        "select_scatter.default",
        "slice.Tensor",
        "slice_scatter.default",
        "split.Tensor",
        "split_with_sizes.default",
        "squeeze.dim",
        "t.default",
        "transpose.int",
        "unbind.int",
        "unsqueeze.default",
        "view.default",
        "view.dtype",
    )
)


_PLAIN: Final = frozenset((type(None), bool, int, float, str, Var, DType, Sym))


def plain_argument(value: Any) -> Arg:
    """An argument as the graph holds it; what only says where a tensor lives has none and becomes None."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return tuple([plain_argument(item) for item in value])
    if isinstance(value, Members):
        return value.ranks
    if isinstance(value, Opaque):
        return value.text
    if isinstance(value, torch.device | torch.layout | torch.memory_format):
        return None
    if isinstance(value, torch.dtype):
        return DType(str(value).removeprefix("torch."))
    return str(value)


def may_be_equal(a: tuple[Size, ...], b: tuple[Size, ...]) -> bool:
    """Whether shapes differ only in what the data decides."""
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(m == n or isinstance(m, Sym) or isinstance(n, Sym) for m, n in pairs)


def elements(kind: TensorType) -> int:
    """Number of elements, where all sizes are numbers."""
    total = 1
    for size in kind.shape:
        assert isinstance(size, int)
        total *= size
    return total
