"""Captures as JSON: the form in which they cross process borders and lie in the cache.

Only plain data is decoded, and every field is checked while it is built, so a damaged or hostile file gives a
``CodecError`` and nothing else.  orjson is used where it is installed; the standard library's json writes the same document.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from graphguard.ir.capture import Capture, CheckRef, Leaf, Like, Mending, Placement, Promise, Trouble, Wanted
from graphguard.ir.collection import without_collection
from graphguard.ir.graph import Arg, Constant, DType, Graph, Node, Size, Sym, TensorType, Var
from graphguard.ir.spans import Frame, Span

try:
    import orjson as _orjson

    _fast: Any = _orjson
except ImportError:  # the tracing worker may run where only torch is installed
    _fast = None

SCHEMA = 1


class CodecError(ValueError):
    """The bytes are not a capture of this schema."""


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
    return dumps(
        {
            "schema": SCHEMA,
            "check": _check_out(capture.check),
            "mesh": capture.mesh,
            "leaves": [_leaf_out(leaf) for leaf in capture.leaves],
            "spec": None if capture.spec is None else graph_to_plain(capture.spec),
            "ranks": [graph_to_plain(graph) for graph in capture.ranks],
            "promises": [{"name": promise.name, "wanted": _wanted_out(promise.wanted)} for promise in capture.promises],
            "troubles": [trouble_to_plain(trouble) for trouble in capture.troubles],
            "assumed": list(capture.assumed),
            "not_compared": list(capture.not_compared),
            "cautions": list(capture.cautions),
            "sources": capture.sources,
            "seconds": capture.seconds,
            "traits": capture.traits,
            "doubts": [trouble_to_plain(trouble) for trouble in capture.doubts],
            "unshared": [trouble_to_plain(trouble) for trouble in capture.unshared],
        }
    )


@without_collection()
def capture_from_json(data: bytes) -> Capture:
    """Decode a capture; raises ``CodecError`` where the bytes are anything else."""
    document = loads(data)
    try:
        _one_of(document["schema"], (SCHEMA,))
        return Capture(
            check=_check_in(document["check"]),
            mesh={_text(axis): _whole(size) for axis, size in document["mesh"].items()},
            leaves=tuple(_leaf_in(leaf) for leaf in document["leaves"]),
            spec=None if document["spec"] is None else graph_from_plain(document["spec"]),
            ranks=tuple(graph_from_plain(graph) for graph in document["ranks"]),
            promises=tuple(Promise(_text(row["name"]), _wanted_in(row["wanted"])) for row in document["promises"]),
            troubles=tuple(trouble_from_plain(row) for row in document["troubles"]),
            assumed=tuple(_text(row) for row in document["assumed"]),
            not_compared=tuple(_text(row) for row in document.get("not_compared", ())),
            cautions=tuple(_text(row) for row in document.get("cautions", ())),
            sources={_text(path): _text(digest) for path, digest in document["sources"].items()},
            seconds={_text(step): float(seconds) for step, seconds in document["seconds"].items()},
            traits={_text(op): _text(trait) for op, trait in document.get("traits", {}).items()},
            doubts=tuple(trouble_from_plain(row) for row in document.get("doubts", ())),
            unshared=tuple(trouble_from_plain(row) for row in document.get("unshared", ())),
        )
    except CodecError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, binascii.Error) as error:
        raise CodecError(f"not a capture: {error!r}") from error


def graph_to_plain(graph: Graph) -> dict[str, Any]:
    """A graph as plain data."""
    return {
        "inputs": [[var.id, name] for var, name in graph.inputs.items()],
        "constants": [[var.id, _constant_out(constant)] for var, constant in graph.constants.items()],
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
        constants={Var(_whole(key)): _constant_in(value) for key, value in row["constants"]},
        nodes=tuple(_node_in(node, len(stacks)) for node in row["nodes"]),
        types={Var(_whole(key)): _type_in(shape, dtype) for key, shape, dtype in row["types"]},
        outputs={_text(name): Var(_whole(key)) for name, key in row["outputs"]},
        labels={Var(_whole(key)): _text(name) for key, name in row["labels"]},
        symbols={_text(name): Var(_whole(key)) for name, key in row["symbols"]},
        frames=frames,
        stacks=stacks,
    )


def span_to_plain(span: Span | None) -> list[Any] | None:
    """A span as ``[file, line, column, end line, end column]``."""
    return None if span is None else [span.file, span.line, span.column, span.end_line, span.end_column]


def span_from_plain(row: Any) -> Span | None:
    """The inverse of :func:`span_to_plain`."""
    return None if row is None else Span(_text(row[0]), *(_whole(value) for value in row[1:5]))


def _span_in(row: Any) -> Span:
    return Span(_text(row[0]), *(_whole(value) for value in row[1:5]))


def trouble_to_plain(trouble: Trouble) -> dict[str, Any]:
    """A trouble as plain data."""
    return {
        "rule": trouble.rule,
        "message": trouble.message,
        "span": span_to_plain(trouble.span),
        "rank": trouble.rank,
        "stack": [_frame_out(frame) for frame in trouble.stack],
        "related": [[span_to_plain(span), message] for span, message in trouble.related],
        "mendings": [
            [mending.title, [[span_to_plain(span), text] for span, text in mending.edits]]
            for mending in trouble.mendings
        ],
    }


def trouble_from_plain(row: dict[str, Any]) -> Trouble:
    """The inverse of :func:`trouble_to_plain`."""
    return Trouble(
        rule=_text(row["rule"]),
        message=_text(row["message"]),
        span=span_from_plain(row["span"]),
        rank=None if row["rank"] is None else _whole(row["rank"]),
        stack=tuple(_frame_in(frame) for frame in row["stack"]),
        related=tuple((_span_in(span), _text(message)) for span, message in row["related"]),
        mendings=tuple(
            Mending(_text(title), tuple((_span_in(span), _text(text)) for span, text in edits))
            for title, edits in row.get("mendings", ())
        ),
    )


def _check_out(check: CheckRef) -> dict[str, Any]:
    return {"id": check.id, "name": check.name, "span": span_to_plain(check.span)}


def _check_in(row: dict[str, Any]) -> CheckRef:
    return CheckRef(_text(row["id"]), _text(row["name"]), _span_in(row["span"]))


def _leaf_out(leaf: Leaf) -> dict[str, Any]:
    return {
        "name": leaf.name,
        "kind": leaf.kind,
        "type": _type_out(leaf.type),
        "low": leaf.low,
        "high": leaf.high,
        "value": None if leaf.value is None else _constant_out(leaf.value),
        "ignored": leaf.ignored,
    }


def _leaf_in(row: dict[str, Any]) -> Leaf:
    return Leaf(
        name=_text(row["name"]),
        kind=_one_of(row["kind"], ("input", "parameter", "buffer", "partial", "cotangent")),
        type=_type_in(*row["type"]),
        low=None if row["low"] is None else _whole(row["low"]),
        high=None if row["high"] is None else _whole(row["high"]),
        value=None if row["value"] is None else _constant_in(row["value"]),
        ignored=None if row["ignored"] is None else _whole(row["ignored"]),
    )


def _wanted_out(wanted: Wanted) -> Any:
    if isinstance(wanted, str):
        return wanted
    if isinstance(wanted, Like):
        return {"like": wanted.leaf}
    return {"axes": [[axis, place.kind, place.dim, place.reduce] for axis, place in wanted.items()]}


def _wanted_in(row: Any) -> Wanted:
    if row == "infer":
        return "infer"
    if "like" in row:
        return Like(_text(row["like"]))
    return {
        _text(axis): Placement(_one_of(kind, ("shard", "replicate", "partial")), _whole(dim), _text(reduce))
        for axis, kind, dim, reduce in row["axes"]
    }


def _constant_out(constant: Constant) -> list[Any]:
    data = None if constant.data is None else base64.b64encode(constant.data).decode()
    return [*_type_out(constant.type), constant.digest, data]


def _constant_in(row: Any) -> Constant:
    shape, dtype, digest, data = row
    return Constant(
        _type_in(shape, dtype), _text(digest), None if data is None else base64.b64decode(data, validate=True)
    )


def _type_out(kind: TensorType) -> tuple[list[Any], str]:
    return [_arg_out(size) for size in kind.shape], kind.dtype


def _type_in(shape: Iterable[Any], dtype: Any) -> TensorType:
    return TensorType(tuple(_size_in(size) for size in shape), _text(dtype))


def _size_in(row: Any) -> Size:
    return _whole(row) if isinstance(row, int) else Sym(_text(row["s"]))


def _frame_out(frame: Frame) -> list[Any]:
    return [span_to_plain(frame.span), frame.function]


def _frame_in(row: Any) -> Frame:
    return Frame(_span_in(row[0]), _text(row[1]))


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
    tuple: lambda arg: [_arg_out(item) for item in arg],
    float: lambda arg: arg if math.isfinite(arg) else {"f": repr(arg)},
}


def _arg_in(row: Any) -> Arg:
    if isinstance(row, list):
        return tuple(_arg_in(item) for item in row)
    if isinstance(row, dict):
        ((tag, value),) = row.items()
        return _TAGS[tag](value)
    if row is None or isinstance(row, bool | int | float | str):
        return row
    raise CodecError(f"not an argument: {row!r}")


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


def _index(value: Any, rows: tuple[Any, ...]) -> int:
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
        "check": _check_out(capture.check),
        "mesh": capture.mesh,
        "troubles": [trouble_to_plain(trouble) for trouble in capture.troubles],
        "doubts": [trouble_to_plain(trouble) for trouble in capture.doubts],
        "unshared": [trouble_to_plain(trouble) for trouble in capture.unshared],
        "assumed": list(capture.assumed),
        "not_compared": list(capture.not_compared),
        "cautions": list(capture.cautions),
        "sources": capture.sources,
        "seconds": capture.seconds,
        "operators": {
            "spec": 0 if capture.spec is None else len(capture.spec.nodes),
            "impl": sum(len(graph.nodes) for graph in capture.ranks),
        },
    }


def check_from_plain(row: dict[str, Any]) -> CheckRef:
    """The check of a :func:`capture_summary`."""
    return _check_in(row)
