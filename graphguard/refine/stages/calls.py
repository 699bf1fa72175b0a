"""Calls as data: what each says beside the tensors it reads, and these by number.

Two calls of which both are equal are the same call: ``1``, ``True`` and ``1.0`` are different arguments here, and so are ``0.0`` and ``-0.0``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias

from graphguard.ir import Graph, Node, Var
from graphguard.ir.graph import Arg, DType, Size, Sym

Row: TypeAlias = tuple[object, ...]  # of strings, integers, None and rows
_DRAW: Final = attrgetter("draw")
_TENSOR: Final = (
    "tensor",
)  # where one stands; all that begins with a word and stands for something else is longer, or is "("


class Unspelt(Exception):  # noqa: N818 - a program that cannot be taken apart, to be proved as a whole
    """A tensor of another region is read that is no cut, or an argument has no row."""


@dataclass(frozen=True, slots=True)
class Calls:
    """A graph's calls in order: ``heads`` has operators and arguments, ``reads`` the numbers of the tensors that stand among these.

    ``kinds`` are shapes and element types of all tensors, ``leaves`` the names of those that are inputs, by number; ``literals`` are the tensors that are known.
    ``draws`` says whether any call draws, ``dtypes`` are all element types.
    """

    heads: Sequence[Row]
    reads: Sequence[list[int]]
    kinds: dict[int, tuple[tuple[Size, ...], str]]
    leaves: dict[int, str]
    literals: frozenset[int]
    draws: bool
    dtypes: frozenset[str]

    @classmethod
    def of(cls, graph: Graph) -> Calls:
        """The calls of a graph; raises ``Unspelt``."""
        reads: list[list[int]] = [[] for _ in graph.nodes]
        known = {id(kind): kind for kind in graph.types.values()}  # most tensors share theirs
        rows = {key: (kind.shape, kind.dtype) for key, kind in known.items()}
        if Sym in map(type, chain.from_iterable(shape for shape, _ in rows.values())):
            raise Unspelt("a size that only the data decides")
        kinds = {var.id: rows[id(kind)] for var, kind in graph.types.items()}
        leaves = {var.id: name for var, name in graph.inputs.items()}
        literals = frozenset([var.id for var in graph.constants])
        draws = any(map(_DRAW, graph.nodes))
        dtypes = frozenset([dtype for _, dtype in rows.values()])
        return cls(list(map(said, graph.nodes, reads)), reads, kinds, leaves, literals, draws, dtypes)


def said(node: Node, reads: list[int]) -> Row:
    """Operator and arguments; the tensors go to ``reads``."""
    head: list[object] = [node.op]
    for arg in node.args:
        kind = arg.__class__
        if kind is Var:
            reads.append(arg.id)  # type: ignore[union-attr]
            head.append(_TENSOR)
        elif kind is int or kind is str:
            head.append(arg)
        else:
            head.append(_code(arg, reads))
    if node.kwargs:
        head.append(("kwargs", *[(name, _code(value, reads)) for name, value in node.kwargs.items()]))
    if len(node.outs) != 1:
        head.append(("gives", len(node.outs)))
    return tuple(head)


def _code(arg: Arg, reads: list[int]) -> object:
    kind = arg.__class__
    if kind is tuple:
        for item in arg:  # type: ignore[union-attr]
            if item.__class__ is not int:
                return ("(", *[_code(item, reads) for item in arg])  # type: ignore[union-attr]
        return arg
    if kind is Var:
        reads.append(arg.id)  # type: ignore[union-attr]
        return _TENSOR
    if arg is None or kind is int or kind is str:
        return arg
    if kind is bool:
        return ("bool", int(arg))  # type: ignore[arg-type]
    if kind is float:
        return ("float", arg.hex())  # type: ignore[union-attr]
    if kind is DType:
        return ("dtype", arg.name)  # type: ignore[union-attr]
    raise Unspelt(repr(arg))
