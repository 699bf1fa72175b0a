"""Graphs as text that people read in tests, and back: ``graph_from_text(graph_to_text(graph)) == graph``.

One declaration a line::

    input %0: float32[2, 8] = "x"
    %1: float32[8, 2] = aten.t.default(%0) forward in "layers.0" at 3 of 1 draw "default" 0
    output "out" = %1

``at`` and ``of`` are the stacks of the call and of the forward call it differentiates.  Sizes and arguments that are expressions over symbols stand
in braces, dtypes after ``dtype.``, several results are separated by commas.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from graphguard.ir.graph import Arg, Constant, DType, Graph, Node, Size, Sym, TensorType, Var
from graphguard.ir.spans import Frame, Span


class TextError(ValueError):
    """The text is not a graph; the message names the line."""


def graph_to_text(graph: Graph, provenance: bool = True) -> str:
    """All of a graph; without ``provenance`` no stacks, frames or module paths, which is what tests compare."""
    return "\n".join(_lines(graph, provenance)) + "\n"


def _lines(graph: Graph, provenance: bool) -> Iterator[str]:
    for var, name in graph.inputs.items():
        yield f"input {_typed(graph, var)} = {json.dumps(name)}"
    for var, constant in graph.constants.items():
        data = "-" if constant.data is None else base64.b64encode(constant.data).decode() or "="
        yield f"constant {_typed(graph, var)} = {constant.digest} {data}"
    for node in graph.nodes:
        yield _node(graph, node, provenance)
    declared = {*graph.inputs, *graph.constants, *(out for node in graph.nodes for out in node.outs)}
    for var in graph.types:
        if var not in declared:
            yield f"type {_typed(graph, var)}"
    for name, var in graph.outputs.items():
        yield f"output {json.dumps(name)} = %{var.id}"
    for var, name in graph.labels.items():
        yield f"label %{var.id} = {json.dumps(name)}"
    for name, var in graph.symbols.items():
        yield f"symbol {json.dumps(name)} = %{var.id}"
    if provenance:
        for frame in graph.frames:
            span = frame.span
            place = f"{span.line} {span.column} {span.end_line} {span.end_column}"
            yield f"frame {json.dumps(span.file)} {place} {json.dumps(frame.function)}"
        for stack in graph.stacks:
            yield f"stack {' '.join(map(str, stack))}".rstrip()


def _typed(graph: Graph, var: Var) -> str:
    kind = graph.types[var]
    return f"%{var.id}: {kind.dtype}[{', '.join(map(_argument, kind.shape))}]"


def _node(graph: Graph, node: Node, provenance: bool) -> str:
    arguments = [_argument(arg) for arg in node.args]
    arguments += [f"{key}={_argument(arg)}" for key, arg in node.kwargs.items()]
    results = ", ".join(_typed(graph, out) for out in node.outs)
    text = f"{results} = " if results else ""
    text += f"{node.op}({', '.join(arguments)}) {node.phase}"
    if provenance:
        text += f" in {json.dumps(node.module)}" if node.module else ""
        text += f" at {node.stack}" if node.stack >= 0 else ""
        text += f" of {node.forward}" if node.forward >= 0 else ""
    return text + (f" draw {json.dumps(node.draw[0])} {node.draw[1]}" if node.draw else "")


def _argument(arg: Arg) -> str:
    if isinstance(arg, Var):
        return f"%{arg.id}"
    if isinstance(arg, DType):
        return f"dtype.{arg.name}"
    if isinstance(arg, Sym):
        return f"{{{arg.expr}}}"
    if isinstance(arg, tuple):
        return "[" + ", ".join(map(_argument, arg)) + "]"
    return json.dumps(arg) if isinstance(arg, str) else repr(arg)


# -- back --------------------------------------------------------------------------------------------------------------
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\{[^}]*\}|%\d+|[A-Za-z_][\w.:]*|-?[\d.][\w.+-]*|-inf|[][(),:=]|-)')
_WORDS: dict[str, Any] = {
    "None": None, "True": True, "False": False, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"),
}  # fmt: skip


@dataclass(slots=True)
class _Parts:
    inputs: dict[Var, str] = field(default_factory=dict)
    constants: dict[Var, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    types: dict[Var, TensorType] = field(default_factory=dict)
    outputs: dict[str, Var] = field(default_factory=dict)
    labels: dict[Var, str] = field(default_factory=dict)
    symbols: dict[str, Var] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    stacks: list[tuple[int, ...]] = field(default_factory=list)


def graph_from_text(text: str) -> Graph:
    """The inverse of :func:`graph_to_text`; raises ``TextError``."""
    parts = _Parts()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            _Reader(line, parts).declaration()
        except (ValueError, IndexError, KeyError) as error:
            raise TextError(f"line {number}: {error}: {line}") from error
    return Graph(
        inputs=parts.inputs,
        constants=parts.constants,
        nodes=tuple(parts.nodes),
        types=parts.types,
        outputs=parts.outputs,
        labels=parts.labels,
        symbols=parts.symbols,
        frames=tuple(parts.frames),
        stacks=tuple(parts.stacks),
    )


class _Reader:
    """One line, token by token."""

    def __init__(self, line: str, parts: _Parts) -> None:
        self.parts = parts
        self.line = line
        self.tokens = _tokens(line) if not line.startswith("constant ") else []
        self.at = 0

    def declaration(self) -> None:
        word = self.line.split(None, 1)[0]
        read = {
            "input": self.input,
            "constant": self.constant,
            "type": self.type,
            "output": self.output,
            "label": self.label,
            "symbol": self.symbol,
            "frame": self.frame,
            "stack": self.stack,
        }.get(word)
        if read is None:
            self.node()
        else:
            self.at = 1
            read()

    # -- declarations --------------------------------------------------------------------------------------------------
    def input(self) -> None:
        var = self.typed()
        self.expect("=")
        self.parts.inputs[var] = json.loads(self.take())

    def constant(self) -> None:
        head, _, value = self.line.rpartition(" = ")
        self.tokens = _tokens(head)
        var = self.typed()
        digest, data = value.split(" ")
        elements = None if data == "-" else base64.b64decode(data if data != "=" else "", validate=True)
        self.parts.constants[var] = Constant(self.parts.types[var], digest, elements)

    def type(self) -> None:
        self.typed()

    def output(self) -> None:
        name = json.loads(self.take())
        self.expect("=")
        self.parts.outputs[name] = self.var()

    def label(self) -> None:
        var = self.var()
        self.expect("=")
        self.parts.labels[var] = json.loads(self.take())

    def symbol(self) -> None:
        name = json.loads(self.take())
        self.expect("=")
        self.parts.symbols[name] = self.var()

    def frame(self) -> None:
        file = json.loads(self.take())
        span = Span(file, *(int(self.take()) for _ in range(4)))
        self.parts.frames.append(Frame(span, json.loads(self.take())))

    def stack(self) -> None:
        self.parts.stacks.append(tuple(map(int, self.tokens[1:])))

    def node(self) -> None:
        outs: list[Var] = []
        if self.peek().startswith("%"):
            outs.append(self.typed())
            while self.peek() == ",":
                self.take()
                outs.append(self.typed())
            self.expect("=")
        op = self.take()
        args, kwargs = self.arguments()
        phase = self.take()
        rest: dict[str, Any] = {}
        while self.at < len(self.tokens):
            key = self.take()
            if key == "draw":
                rest["draw"] = (json.loads(self.take()), int(self.take()))
            elif key == "in":
                rest["module"] = json.loads(self.take())
            else:
                rest[{"at": "stack", "of": "forward"}[key]] = int(self.take())
        self.parts.nodes.append(Node(op, args, kwargs, tuple(outs), phase=phase, **rest))

    # -- pieces --------------------------------------------------------------------------------------------------------
    def arguments(self) -> tuple[tuple[Arg, ...], dict[str, Arg]]:
        args: list[Arg] = []
        kwargs: dict[str, Arg] = {}
        self.expect("(")
        while self.peek() != ")":
            if self.at + 1 < len(self.tokens) and self.tokens[self.at + 1] == "=":
                key = self.take()
                self.expect("=")
                kwargs[key] = self.argument()
            else:
                args.append(self.argument())
            if self.peek() == ",":
                self.take()
        self.expect(")")
        return tuple(args), kwargs

    def argument(self) -> Arg:
        piece = self.take()
        if piece == "[":
            items: list[Arg] = []
            while self.peek() != "]":
                items.append(self.argument())
                if self.peek() == ",":
                    self.take()
            self.expect("]")
            return tuple(items)
        if piece.startswith("%"):
            return Var(int(piece[1:]))
        if piece.startswith("{"):
            return Sym(piece[1:-1])
        if piece.startswith('"'):
            return str(json.loads(piece))
        if piece.startswith("dtype."):
            return DType(piece.removeprefix("dtype."))
        if piece in _WORDS:
            word: Arg = _WORDS[piece]
            return word
        return int(piece) if re.fullmatch(r"-?\d+", piece) else float(piece)

    def typed(self) -> Var:
        var = self.var()
        self.expect(":")
        dtype = self.take()
        shape = self.argument()
        if not isinstance(shape, tuple):
            raise TextError("a shape in brackets is missing")
        sizes: list[Size] = []
        for size in shape:
            if not isinstance(size, int | Sym):
                raise TextError(f"{size!r} is no size")
            sizes.append(size)
        self.parts.types[var] = TensorType(tuple(sizes), dtype)
        return var

    def var(self) -> Var:
        token = self.take()
        if not token.startswith("%"):
            raise TextError(f"a variable is missing before {token!r}")
        return Var(int(token[1:]))

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, wanted: str) -> None:
        found = self.take()
        if found != wanted:
            raise TextError(f"{wanted!r} is missing before {found!r}")


def _tokens(line: str) -> list[str]:
    found, position = [], 0
    while position < len(line.rstrip()):
        match = _TOKEN.match(line, position)
        if match is None:
            raise TextError(f"cannot read {line[position:]!r}")
        found.append(match.group(1))
        position = match.end()
    return found
