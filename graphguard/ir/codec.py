"""Captures as JSON: the form in which they cross process borders and lie in the cache.

Only plain data is decoded, and every field is checked while it is built, so a damaged or hostile file gives a
``CodecError`` and nothing else.  orjson is used where it is installed; the standard library's json writes the same document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

from graphguard.ir.capture import Capture
from graphguard.ir.collection import without_collection
from graphguard.ir.graph import Arg, Constant, DType, Graph, Node, Size, Sym, TensorType, Var
from graphguard.ir.plain import CodecError, from_plain, to_plain
from graphguard.ir.spans import Frame, Span

try:
    import orjson as _orjson

    _fast: Any = _orjson
except ImportError:  # the tracing worker may run where only torch is installed
    _fast = None

SCHEMA = 2
_SUMMARISED = (
    "check", "mesh", "troubles", "doubts", "unshared", "assumed", "not_compared", "cautions", "sources", "seconds",
)  # fmt: skip


def dumps(document: object) -> bytes:
    """JSON bytes of plain data."""
    if _fast is not None:
        return bytes(_fast.dumps(document))
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def loads(data: bytes) -> Any:
    """Plain data of JSON bytes; raises ``CodecError``."""
    try:
        return json.loads(data) if _fast is None else _fast.loads(data)
    except ValueError as error:
        raise CodecError(f"not JSON: {error}") from error


@without_collection()
def capture_to_json(capture: Capture) -> bytes:
    """Encode a capture; the inverse of :func:`capture_from_json`."""
    firsts: dict[int, int] = {}
    ranks = []
    for rank, graph in enumerate(capture.ranks):
        first = firsts.setdefault(id(graph.frames), rank)
        ranks.append(graph_to_plain(graph) if first == rank else _beside(capture.ranks[first], graph, first))
    graphs = {"spec": None if capture.spec is None else graph_to_plain(capture.spec), "ranks": ranks}
    return dumps({"schema": SCHEMA, **to_plain(replace(capture, spec=None, ranks=())), **graphs})


@without_collection()
def capture_from_json(data: bytes) -> Capture:
    """Decode a capture; raises ``CodecError`` where the bytes are anything else."""
    document = loads(data)
    try:
        _one_of(document["schema"], (SCHEMA,))
        rest = from_plain(Capture, {**document, "spec": None, "ranks": []})
        spec = None if document["spec"] is None else graph_from_plain(document["spec"])
        ranks: list[Graph] = []
        for row in document["ranks"]:
            ranks.append(graph_from_plain(row) if "like" not in row else _as(ranks[_index(row["like"], ranks)], row))
        return replace(rest, spec=spec, ranks=tuple(ranks))
    except CodecError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CodecError(f"not a capture: {error!r}") from error


def graph_to_plain(graph: Graph) -> dict[str, Any]:
    """A graph as plain data."""
    return {
        "inputs": [[var.id, name] for var, name in graph.inputs.items()],
        "constants": [[var.id, to_plain(constant)] for var, constant in graph.constants.items()],
        "nodes": [_node_out(node) for node in graph.nodes],
        "types": [[var.id, *_type_out(kind)] for var, kind in graph.types.items()],
        "outputs": [[name, var.id] for name, var in graph.outputs.items()],
        "labels": [[var.id, name] for var, name in graph.labels.items()],
        "symbols": [[name, var.id] for name, var in graph.symbols.items()],
        "frames": [_frame_out(frame) for frame in graph.frames],
        "stacks": [list(stack) for stack in graph.stacks],
    }


def graph_from_plain(row: dict[str, Any]) -> Graph:
    """A graph from plain data; raises the errors that :func:`capture_from_json` turns into ``CodecError``."""
    frames = tuple(_frame_in(frame) for frame in row["frames"])
    stacks = tuple(tuple(_index(i, frames) for i in stack) for stack in row["stacks"])
    return Graph(
        inputs={Var(_whole(key)): _text(name) for key, name in row["inputs"]},
        constants={Var(_whole(key)): from_plain(Constant, value) for key, value in row["constants"]},
        nodes=tuple(_node_in(node, len(stacks)) for node in row["nodes"]),
        types={Var(_whole(key)): _type_in(shape, dtype) for key, shape, dtype in row["types"]},
        outputs={_text(name): Var(_whole(key)) for name, key in row["outputs"]},
        labels={Var(_whole(key)): _text(name) for key, name in row["labels"]},
        symbols={_text(name): Var(_whole(key)) for name, key in row["symbols"]},
        frames=frames,
        stacks=stacks,
    )


def _beside(first: Graph, graph: Graph, rank: int) -> dict[str, Any]:
    """A graph as plain data, that of an earlier ``rank`` with other calls: a rank that was foretold shares what is alike with the one that it was foretold from."""
    row = graph_to_plain(replace(graph, nodes=(), types={}, frames=(), stacks=()))
    known = first.nodes if len(first.nodes) == len(graph.nodes) else ()
    shared = zip(graph.nodes, known or repeat(None), strict=bool(known))
    return {
        **row,
        "like": rank,
        "nodes": [0 if node is other else _node_out(node) for node, other in shared],
        "types": 0 if graph.types == first.types else graph_to_plain(replace(graph, nodes=()))["types"],
    }


def _as(first: Graph, row: dict[str, Any]) -> Graph:
    """The inverse of :func:`_beside`."""
    rest = graph_from_plain({**row, "nodes": [], "types": row["types"] or [], "frames": [], "stacks": []})
    nodes = [
        first.nodes[place] if node == 0 else _node_in(node, len(first.stacks))
        for place, node in enumerate(row["nodes"])
    ]
    types = first.types if row["types"] == 0 else rest.types
    return replace(rest, nodes=tuple(nodes), types=types, frames=first.frames, stacks=first.stacks)


def _type_out(kind: TensorType) -> tuple[list[Any], str]:
    return [_arg_out(size) for size in kind.shape], kind.dtype


def _type_in(shape: Iterable[Any], dtype: Any) -> TensorType:
    return TensorType(tuple(_size_in(size) for size in shape), _text(dtype))


def _size_in(row: Any) -> Size:
    return _whole(row) if isinstance(row, int) else Sym(_text(row["s"]))


def _frame_out(frame: Frame) -> list[Any]:
    span = frame.span
    return [span.file, span.line, span.column, span.end_line, span.end_column, frame.function]


def _frame_in(row: Any) -> Frame:
    file, *places, function = row
    return Frame(Span(_text(file), *map(_whole, places)), _text(function))


def _node_out(node: Node) -> list[Any]:
    return [
        node.op,
        [_arg_out(arg) for arg in node.args],
        {key: _arg_out(arg) for key, arg in node.kwargs.items()},
        [out.id for out in node.outs],
        node.stack,
        node.forward,
        node.module,
        node.phase,
        list(node.draw) if node.draw else None,
    ]


def _node_in(row: Any, stacks: int) -> Node:
    op, args, kwargs, outs, stack, forward, module, phase, draw = row
    if not (-1 <= stack < stacks and -1 <= forward < stacks):
        raise CodecError("a node's stack is out of range")
    return Node(
        op=_text(op),
        args=tuple(_arg_in(arg) for arg in args),
        kwargs={_text(key): _arg_in(arg) for key, arg in kwargs.items()},
        outs=tuple(Var(_whole(out)) for out in outs),
        stack=stack,
        forward=forward,
        module=_text(module),
        phase=_one_of(phase, ("prelude", "forward", "backward", "step")),
        draw=None if draw is None else (_text(draw[0]), _whole(draw[1])),
    )


def _arg_out(arg: Arg) -> Any:
    writer = _WRITERS.get(type(arg))
    return arg if writer is None else writer(arg)


_WRITERS: dict[type, Callable[[Any], Any]] = {
    Var: lambda arg: {"v": arg.id},
    DType: lambda arg: {"t": arg.name},
    Sym: lambda arg: {"s": arg.expr},
    tuple: lambda arg: list(arg) if _are_whole(arg) else [_arg_out(item) for item in arg],
    float: lambda arg: arg if math.isfinite(arg) else {"f": repr(arg)},
}


def _arg_in(row: Any) -> Arg:
    if isinstance(row, list):
        return tuple(row) if _are_whole(row) else tuple(_arg_in(item) for item in row)
    if isinstance(row, dict):
        ((tag, value),) = row.items()
        return _TAGS[tag](value)
    if row is None or isinstance(row, bool | int | float | str):
        return row
    raise CodecError(f"not an argument: {row!r}")


def _are_whole(items: Iterable[Any]) -> bool:
    """Whether these are whole numbers, as the ranks of a group are: there may be very many."""
    return {*map(type, items)} == {int}


_TAGS: dict[str, Callable[[Any], Arg]] = {
    "v": lambda value: Var(_whole(value)),
    "t": lambda value: DType(_text(value)),
    "s": lambda value: Sym(_text(value)),
    "f": lambda value: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[value],
}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CodecError(f"expected text, found {value!r}")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise CodecError(f"expected a whole number, found {value!r}")
    return value


def _index(value: Any, rows: Sequence[Any]) -> int:
    if not 0 <= _whole(value) < len(rows):
        raise CodecError(f"index {value} out of range")
    return int(value)


def _one_of(value: Any, choices: tuple[str | int, ...]) -> Any:
    if value not in choices:
        raise CodecError(f"expected one of {choices}, found {value!r}")
    return value


def capture_summary(capture: Capture) -> dict[str, Any]:
    """What the steps of a check need of a capture without decoding it again: plain data, small."""
    return {
        **{name: to_plain(getattr(capture, name)) for name in _SUMMARISED},
        "operators": {
            "spec": 0 if capture.spec is None else len(capture.spec.nodes),
            "impl": sum(len(graph.nodes) for graph in capture.ranks),
        },
    }
