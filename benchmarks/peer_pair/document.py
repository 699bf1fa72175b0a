"""A peer-pair/1 file as typed data: one gzipped JSON document per verification task.

Every field is checked while it is read; anything else raises :class:`DocumentError` with the place.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

SCHEMA: Final = "peer-pair/1"


class DocumentError(ValueError):
    """The file is not a peer-pair/1 document."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor of the same graph, by the id of the node that makes it."""

    node: str


@dataclass(frozen=True, slots=True)
class Named:
    """A dtype, device, layout or special number: its kind and its text."""

    kind: str
    text: str


Value: TypeAlias = "bool | int | float | str | Ref | Named | tuple[Value, ...] | dict[str, Value] | None"


@dataclass(frozen=True, slots=True)
class PeerNode:
    """One node; ``shape`` and ``dtype`` are None where it has several results, ``shape`` also where a size depends on data."""

    id: str
    kind: str
    op: str
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    shape: tuple[int, ...] | None
    dtype: str | None

    def reads(self) -> Iterator[str]:
        """Ids of the nodes it reads, repeats included."""
        for arg in (*self.args, *self.kwargs.values()):
            yield from _references(arg)


def _references(value: Value) -> Iterator[str]:
    if isinstance(value, Ref):
        yield value.node
    elif isinstance(value, tuple):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _references(item)


@dataclass(frozen=True, slots=True)
class PeerGraph:
    """One program, in execution order; ``outputs`` are node ids, repeats included, None where the program returns none."""

    nodes: tuple[PeerNode, ...]
    outputs: tuple[str | None, ...]

    def by_id(self) -> dict[str, PeerNode]:
        """The nodes by their ids."""
        return {node.id: node for node in self.nodes}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A term that names a tensor: ``rank`` is None in the sequential graph."""

    rank: int | None
    node: str


@dataclass(frozen=True, slots=True)
class Apply:
    """A term made of terms: ``concat`` (dim), ``slice`` (dim, begin, end, step), ``reduce_add`` and others."""

    op: str
    args: tuple[Term, ...]
    params: tuple[int, ...]


Term: TypeAlias = Tensor | Apply


def tensors(term: Term) -> Iterator[Tensor]:
    """Every tensor that a term names."""
    if isinstance(term, Tensor):
        yield term
    else:
        for arg in term.args:
            yield from tensors(arg)


@dataclass(frozen=True, slots=True)
class Task:
    """One verification task.

    ``relation`` and ``expectation`` are classes of equal terms.  ``checked`` pairs a sequential output with those of the ranks that stand
    for it.  ``forced`` are tensors whose definition is to be cut off.
    """

    name: str
    groups: dict[str, tuple[int, ...]]
    seq: PeerGraph
    dist: tuple[PeerGraph, ...]
    relation: tuple[tuple[Term, ...], ...]
    expectation: tuple[tuple[Term, ...], ...]
    checked: tuple[tuple[Tensor, tuple[Tensor, ...]], ...]
    forced: frozenset[Tensor]


def read_task(path: Path) -> Task:
    """The task in a file; raises :class:`DocumentError`."""
    try:
        document = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise DocumentError(f"{path.name}: {error}") from error
    try:
        return task_of(document)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise DocumentError(f"{path.name}: not a {SCHEMA} document: {error!r}") from error


def task_of(document: dict[str, Any]) -> Task:
    """The task of a decoded document."""
    if document.get("schema") != SCHEMA:
        raise DocumentError(f"schema {document.get('schema')!r}, expected {SCHEMA!r}")
    if document.get("world_size", len(document["dist"])) != len(document["dist"]):
        raise DocumentError(f"graphs of {len(document['dist'])} ranks for a world of {document['world_size']}")
    checked = document.get("checked_outputs") or {"seq": [], "dist": []}
    return Task(
        name=str(document["task"]),
        groups={name: tuple(map(int, group["ranks"])) for name, group in document["groups"].items()},
        seq=_graph(document["seq"]),
        dist=tuple(_graph(graph) for graph in document["dist"]),
        relation=_classes(document["relation"]),
        expectation=_classes(document["expectation"]),
        checked=tuple(
            (_tensor(seq), tuple(_tensor(row[index]) for row in checked["dist"] if index < len(row)))
            for index, seq in enumerate(checked["seq"])
        ),
        forced=frozenset(_tensor(row) for row in document.get("forced_leaves") or []),
    )


def _classes(entries: list[dict[str, Any]]) -> tuple[tuple[Term, ...], ...]:
    return tuple(
        tuple(_term(term) for term in terms) for entry in entries for terms in entry["classes"] if len(terms) > 1
    )


def _graph(row: dict[str, Any]) -> PeerGraph:
    return PeerGraph(
        tuple(_node(node) for node in row["nodes"]), tuple(output["n"] if output else None for output in row["outputs"])
    )


def _node(row: dict[str, Any]) -> PeerNode:
    shape = row.get("shape")
    return PeerNode(
        id=row["id"],
        kind=row["kind"],
        op=row["op"],
        args=tuple(_value(arg) for arg in row.get("args") or ()),
        kwargs={key: _value(arg) for key, arg in (row.get("kwargs") or {}).items()},
        shape=tuple(shape) if isinstance(shape, list) and all(isinstance(size, int) for size in shape) else None,
        dtype=row.get("dtype"),
    )


def _value(row: Any) -> Value:
    if isinstance(row, list):
        return tuple(_value(item) for item in row)
    if not isinstance(row, dict):
        return row  # type: ignore[no-any-return]  # JSON has nothing else: numbers, text, null
    if "n" in row:
        return Ref(row["n"])
    if "d" in row:
        return {key: _value(item) for key, item in row["d"].items()}
    return float(row["v"]) if row["t"] == "float" else Named(row["t"], row["v"])


def _tensor(row: dict[str, Any]) -> Tensor:
    return Tensor(None if row["g"] == "seq" else int(row["rank"]), row["n"])


def _term(row: dict[str, Any]) -> Term:
    if "g" in row:
        return _tensor(row)
    if "op" in row:
        return Apply(row["op"], tuple(_term(arg) for arg in row["args"]), tuple(row.get("params") or ()))
    return Apply("symbol", (), ())
