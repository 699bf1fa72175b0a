"""Graphs made call by call, for whoever does not trace: converters, generators of test programs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphguard.ir.graph import Arg, Constant, Graph, Node, TensorType, Var

Typed = tuple[tuple[int, ...], str]


@dataclass(slots=True)
class Builder:
    """A graph under construction; every call names the types of its results."""

    inputs: dict[Var, str] = field(default_factory=dict)
    constants: dict[Var, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    types: dict[Var, TensorType] = field(default_factory=dict)
    outputs: dict[str, Var] = field(default_factory=dict)
    labels: dict[Var, str] = field(default_factory=dict)
    phase: str = "forward"

    def var(self, shape: Sequence[int], dtype: str) -> Var:
        """A fresh variable."""
        var = Var(len(self.types))
        self.types[var] = TensorType(tuple(shape), dtype)
        return var

    def input(self, leaf: str, shape: Sequence[int], dtype: str = "float32") -> Var:
        """The variable that holds a leaf; the same leaf twice is one variable."""
        known = next((var for var, name in self.inputs.items() if name == leaf), None)
        if known is not None:
            return known
        var = self.var(shape, dtype)
        self.inputs[var] = leaf
        return var

    def constant(self, data: bytes, shape: Sequence[int], dtype: str) -> Var:
        """A literal tensor from its row-major little-endian elements."""
        var = self.var(shape, dtype)
        self.constants[var] = Constant(self.types[var], hashlib.blake2b(data, digest_size=16).hexdigest(), data)
        return var

    def call(
        self, op: str, *args: Arg, out: Typed | Sequence[Typed], draw: tuple[str, int] | None = None, **kwargs: Arg
    ) -> Var:
        """Append a call with one result of type ``out``, or several; the first result."""
        kinds = [out] if len(out) == 2 and isinstance(out[1], str) else list(out)
        outs = tuple(self.var(*kind) for kind in kinds)  # type: ignore[arg-type]  # a pair of shape and dtype either way
        self.nodes.append(Node(op, args, kwargs, outs, phase=self.phase, draw=draw))
        return outs[0] if outs else Var(-1)

    def graph(self) -> Graph:
        """What was built."""
        return Graph(
            dict(self.inputs),
            dict(self.constants),
            tuple(self.nodes),
            dict(self.types),
            dict(self.outputs),
            dict(self.labels),
        )
