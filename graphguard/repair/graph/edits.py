"""Changes of the ranks' graphs that a repair would amount to, as data.

An edit touches the same position on every rank.  ``repair.graph.editing`` makes it, ``repair.writing.source`` turns it into text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from graphguard.ir import Capture, Node, Span, TensorType, Var
from graphguard.ir.graph import Arg
from graphguard.repair.graph.alignment import Position
from graphguard.repair.graph.meanings import Meaning

Tensors = dict[int, Var]
"""One tensor per rank."""


@dataclass(frozen=True, slots=True)
class InsertReduction:
    """Reduce a tensor over a mesh axis as soon as it exists; everything after reads the reduced one."""

    tensors: Tensors
    axis: str
    reduce: str = "sum"


@dataclass(frozen=True, slots=True)
class InsertGather:
    """Gather a tensor's shards over a mesh axis along a dim."""

    tensors: Tensors
    axis: str
    dim: int


@dataclass(frozen=True, slots=True)
class Scale:
    """Multiply a tensor by a number."""

    tensors: Tensors
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Bypass:
    """Take a node out: everything reads one of its tensor operands instead, the first unless said otherwise."""

    position: Position
    kept: int = 0


@dataclass(frozen=True, slots=True)
class SetArgument:
    """Give a node another argument, per rank; ``index`` is a position in ``args``."""

    position: Position
    index: int
    values: Mapping[int, Arg]
    what: str


@dataclass(frozen=True, slots=True)
class AddAfterReduction:
    """Move an addition (a bias), which may be that of a fused product (``addmm``), from before an all-reduce to behind it; ``moved`` is the argument that goes there."""

    addition: Position
    reduction: Position
    moved: int


@dataclass(frozen=True, slots=True)
class MoveReduction:
    """Reduce a tensor over an axis instead of what is computed from it: a reduction moves before a non-linear operator."""

    tensors: Tensors
    axis: str
    reduction: Position


@dataclass(frozen=True, slots=True)
class MoveSlice:
    """Let a slice or a selection start elsewhere on every rank; its length stays."""

    position: Position
    starts: Mapping[int, int]
    axis: str


@dataclass(frozen=True, slots=True)
class OtherPart:
    """Let a rank read another one of the parts that a split made: the one of its place along an axis."""

    position: Position
    axis: str


@dataclass(frozen=True, slots=True)
class Shift:
    """Add a number, another one on every rank: the offset of positions along an axis."""

    tensors: Tensors
    offsets: Mapping[int, int]
    axis: str


@dataclass(frozen=True, slots=True)
class MoveDiagonal:
    """Let a triangle (``triu``, ``tril``) start elsewhere on every rank: ``length`` rows of the whole are its part along an axis, or columns."""

    position: Position
    offsets: Mapping[int, int]
    axis: str
    length: int


@dataclass(frozen=True, slots=True)
class ReduceToAll:
    """Give the result of a reduction to one rank to every rank of its group."""

    position: Position


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator: its arguments on every rank, and where the specification writes it; the types of what it gives there beside its result are ``further``."""

    op: str
    args: Mapping[int, tuple[Arg, ...]]
    kwargs: Mapping[str, Arg]
    expression: Span | None = None
    further: tuple[TensorType, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertCall:
    """Apply an operator to a tensor as soon as all its operands exist; what comes after reads the result."""

    tensors: Tensors
    call: Call


@dataclass(frozen=True, slots=True)
class ChangeCall:
    """Let a node compute something else of the same operands."""

    position: Position
    call: Call


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Add a tensor to what earlier passes of a loop gave."""

    tensors: Tensors
    earlier: Mapping[int, tuple[Var, ...]]


@dataclass(frozen=True, slots=True)
class Mask:
    """Fill a tensor with zeros where a mask holds, which is viewed in a shape first."""

    tensors: Tensors
    masks: Tensors
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reread:
    """Let one reader start from another tensor: the ``steps`` rearrangements before its operand are made of that one instead.

    The reader is known by what it gives, so that several such edits can be made one after the other.
    """

    readers: Tensors
    index: int
    steps: int
    tensors: Tensors


@dataclass(frozen=True, slots=True)
class OwnPlace:
    """Let every number that differs by rank be that of the rank's place along one axis, as if it were at the start of all others.

    ``position`` is that of the first such number.
    """

    position: Position
    axis: str


@dataclass(frozen=True, slots=True)
class SwapTensors:
    """Two tensors change places for everything that comes after both."""

    tensors: Tensors
    others: Tensors


@dataclass(frozen=True, slots=True)
class OtherCalls:
    """Other calls in place of some, by rank and index, and the types of what they add; ``told`` says of ``{name}`` what is wrong.

    What comes of comparing the ranks' values with the specification's: such calls differ from rank to rank.  ``means`` says what they are to the program's text, where that is known.
    """

    calls: Mapping[int, Mapping[int, tuple[Node, ...]]]
    types: Mapping[int, Mapping[Var, TensorType]]
    told: str
    means: Meaning | None = None


Edit = (
    InsertCall
    | OtherCalls
    | ChangeCall
    | SwapTensors
    | Accumulate
    | Mask
    | Reread
    | Shift
    | MoveDiagonal
    | ReduceToAll
    | InsertReduction
    | InsertGather
    | Scale
    | Bypass
    | SetArgument
    | AddAfterReduction
    | MoveReduction
    | MoveSlice
    | OtherPart
    | OwnPlace
)


def group_of(capture: Capture, rank: int, axis: str) -> tuple[int, ...]:
    """The ranks that differ from ``rank`` along one mesh axis only, in order of that axis."""
    here = capture.coordinates(rank)
    return tuple(
        other
        for other in range(capture.world_size)
        if all(value == here[name] for name, value in capture.coordinates(other).items() if name != axis)
    )


def diagonal_of(node: Node) -> int:
    """The diagonal at which a triangle starts."""
    found = node.args[1] if len(node.args) > 1 else node.kwargs.get("diagonal", 0)
    return found if isinstance(found, int) else 0
