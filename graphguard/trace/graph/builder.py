"""Puts a graph together, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from graphguard.ir.graph import Arg, Constant, DType, Graph, Node, Size, Sym, TensorType, Var
from graphguard.ir.spans import Frame
from graphguard.ir.written import written
from graphguard.ops import aten
from graphguard.trace.calls.events import Event, Members, Opaque
from graphguard.trace.graph.liveness import Liveness, Stretch
from graphguard.trace.graph.patterns import Pattern, Place

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
        self._stretches: list[Stretch] = []
        self.count = 0
        """How many variables there were, those included that no node of the graph makes."""

    def new(self, shape: tuple[Size, ...], dtype: str) -> Var:
        """A variable of this type."""
        var = Var(self.count)
        self.count += 1
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
        before = self.bits_of(args[0]) if op == aten.view.dtype else None
        if before is not None and self.types[before] == TensorType(shape, dtype):
            return before
        result = self.new(shape, dtype)
        self.append(op, args, kwargs, (result,))
        if op == aten.view.dtype:
            self._bits[result] = args[0]
        return result

    def bits_of(self, value: Var) -> Var | None:
        """The value of another type whose bits a value shows, if it does."""
        return self._bits.get(value) if self._bits else None

    def append(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], results: tuple[Var, ...]) -> None:
        """Append a node whose results exist already."""
        at = self.at
        plain = {key: plain_argument(value) for key, value in kwargs.items()} if kwargs else {}
        places = at.stack, at.forward, at.module, at.phase, at.draw
        node = Node(op, tuple([plain_argument(arg) for arg in args]), plain, results, *places)
        self.nodes.append(self._as_written(node) if op.endswith(".Scalar") else node)

    def _as_written(self, node: Node) -> Node:
        """The call with its numbers as somebody wrote them: operators that are made of others in C++ round theirs to the type of their tensors."""
        if any(self.types[var].dtype in DOUBLE for var in (*node.operands(), *node.outs)):
            return node
        return replace(node, args=tuple(written(arg) if isinstance(arg, float) else arg for arg in node.args))

    def reshaped(self, value: Var, shape: tuple[Size, ...]) -> Var:
        """The same elements in row-major order."""
        kind = self.types[value]
        return value if kind.shape == shape else self.one(aten.view.default, (value, shape), shape, kind.dtype)

    def shaped(self, value: Var, shape: tuple[Size, ...], dtype: str) -> Var:
        """``value`` cast and broadcast, as ``copy_`` does."""
        kind = self.types[value]
        if kind.dtype != dtype:
            value = self.one(aten._to_copy.default, (value,), kind.shape, dtype, dtype=DType(dtype))
        if kind.shape == shape:
            return value
        if may_be_equal(kind.shape, shape):
            return self.reshaped(value, shape)
        return self.one(aten.expand.default, (value, shape), shape, dtype)

    def joined(self, parts: tuple[Var, ...], shape: tuple[Size, ...], dtype: str) -> Var:
        """The parts one after the other in memory, in one shape."""
        part = self.types[parts[0]]
        if len(shape) == len(part.shape) and shape[1:] == part.shape[1:] and part.shape:
            return self.one(aten.cat.default, (parts, 0), shape, dtype)
        if shape == (len(parts), *part.shape):
            return self.one(aten.stack.default, (parts, 0), shape, dtype)
        flat = tuple(self.flattened(value) for value in parts)
        total = sum(elements(self.types[value]) for value in flat)
        return self.reshaped(self.one(aten.cat.default, (flat, 0), (total,), dtype), shape)

    def flattened(self, value: Var) -> Var:
        """The elements in row-major order along one dim."""
        return self.reshaped(value, (elements(self.types[value]),))

    def add(self, pattern: Pattern, table: dict[int, Var], places: Sequence[Place]) -> None:
        """Append the nodes of a pattern, made anew; ``table`` has the variables in the place of those from before, and gets all others."""
        first, start = self.count, len(self.nodes)
        self.count += pattern.made
        own = [Var(first + number - pattern.first) for number in pattern.numbers]
        self.types.update(zip(own, pattern.types, strict=True))
        table.update(zip(pattern.numbers, own, strict=True))
        self.nodes += pattern.nodes(table, own, places)
        still_open = tuple([start + place for place in pattern.open])
        reads = tuple([table[number].id for number in pattern.reads])
        self._stretches.append(Stretch(start, len(self.nodes), still_open, reads))

    def graph(self, frames: tuple[Frame, ...], stacks: tuple[tuple[int, ...], ...]) -> Graph:
        """What was built, without the rearrangements and uninitialised memory that nothing reads."""
        results = (*self.outputs.values(), *self.symbols.values())
        liveness = Liveness(self.nodes, (var.id for var in results), (var.id for var in self.labels))
        nodes = liveness.kept(self._stretches)
        unused = [out for node in liveness.dropped for out in node.outs]
        unused += [var for var in self.constants if var.id not in liveness.wanted]
        for var in unused:
            del self.types[var]
            self.constants.pop(var, None)
            self.labels.pop(var, None)
        return Graph(
            inputs=self.inputs,
            constants=self.constants,
            nodes=nodes,
            types=self.types,
            outputs=self.outputs,
            labels=self.labels,
            symbols=self.symbols,
            frames=frames,
            stacks=stacks,
        )


DOUBLE: Final = frozenset(("float64", "complex128"))


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
