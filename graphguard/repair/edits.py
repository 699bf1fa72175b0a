"""Changes of the ranks' graphs that a repair would amount to, as data.

An edit touches the same position on every rank.  ``repair.editing`` makes it, ``repair.source`` turns it into text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from graphguard.ir import Capture, Node, Span, TensorType, Var
from graphguard.ir.graph import Arg
from graphguard.repair.alignment import Position

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
    """Move an addition (a bias) from before an all-reduce to behind it."""

    addition: Position
    reduction: Position
    moved: int


@dataclass(frozen=True, slots=True)
class BiasAfterReduction:
    """Take the bias out of a fused product (``addmm``) and add it behind an all-reduce."""

    product: Position
    reduction: Position


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
    """A call of an operator: its arguments on every rank, and where the specification writes it."""

    op: str
    args: Mapping[int, tuple[Arg, ...]]
    kwargs: Mapping[str, Arg]
    expression: Span | None = None


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
    """Fill a tensor with a number where a mask holds, which is viewed in a shape first."""

    tensors: Tensors
    masks: Tensors
    shape: tuple[int, ...]
    fill: float


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
class Offset:
    """Numbers that lack the start of a rank's part, which is its place along ``axis`` times ``length``.

    ``kind`` says which: a ``number`` that others are compared with or moved by, ``rows`` that are looked up (the ranks' ``tensors``), rows that are ``written``, positions in a ``pass`` through the parts of all ranks, or in a pass
    through the ``block``s of the rank's own part, where each has those behind the ones before and there is no axis; a ``bound`` of a mask that is so much too low on every rank; or places that are ``found``
    in the rank's part, of an operator's results the one at ``slot``.
    """

    axis: str
    length: int
    kind: Literal["number", "rows", "pass", "written", "block", "bound", "found"]
    tensors: Tensors | None = None
    slot: int = 0


@dataclass(frozen=True, slots=True)
class Regrouping:
    """That many ``times`` as many groups of a dim as there are, which is the size of ``axis`` or its reciprocal."""

    axis: str
    times: Fraction


@dataclass(frozen=True, slots=True)
class Turning:
    """Parts of the first dim, told apart as ``parts`` say, of which number ``ranks`` is that of the ranks, that change places; of what is ``sent``, else of what was received."""

    parts: tuple[int, int]
    ranks: int
    sent: bool


@dataclass(frozen=True, slots=True)
class Sending:
    """Tensors that are exchanged as others are, by the call that ends at a ``position``; ``later`` says that this is done behind it, else as soon as they are made."""

    tensors: Tensors
    position: Position
    later: bool


@dataclass(frozen=True, slots=True)
class Called:
    """The call of a function that is left out, or made of other ``tensors`` as well."""

    span: Span
    tensors: Tensors | None


@dataclass(frozen=True, slots=True)
class Masking:
    """The mask of an attention: that of a causal one from the rank's first query along ``axis``, for so many ``rows`` and ``columns``, or the one that is ``written`` in the specification's call."""

    axis: str = ""
    rows: int = 0
    columns: int = 0
    written: Span | None = None


@dataclass(frozen=True, slots=True)
class CountedTargets:
    """A mean over the targets of all ranks along ``axis`` that are not ``ignored``."""

    axis: str
    ignored: int


@dataclass(frozen=True, slots=True)
class OtherCalls:
    """Other calls in place of some, by rank and index, and the types of what they add; ``told`` says of ``{name}`` what is wrong.

    What comes of comparing the ranks' values with the specification's: such calls differ from rank to rank.
    ``filled`` are the number that tensors are filled up with and the one that they should be, where that is all that changes; ``joined`` is the dim along which gathered parts are to be joined, likewise;
    ``renamed`` are the module whose parameters are read and the one whose are to be; ``offset`` is the rank's start that numbers lack;
    ``regrouped`` is how many times as many groups are meant, and ``turned`` which parts are to change places; ``moved`` are a dim and the number by which all ranks write too early along it;
    ``sent`` are tensors that are exchanged as others are, ``called`` says that a function is, and ``masked`` how an attention masks;
    ``averaged`` is the axis over which a divisor is averaged, ``targets`` says over which a loss is a mean,
    ``chain`` where the specification writes a row of operators that is missing,
    and ``squared`` that squares are added up, with the root behind or without.
    """

    calls: Mapping[int, Mapping[int, tuple[Node, ...]]]
    types: Mapping[int, Mapping[Var, TensorType]]
    told: str
    filled: tuple[float, float] | None = None
    joined: int | None = None
    renamed: tuple[str, str] | None = None
    offset: Offset | None = None
    regrouped: Regrouping | None = None
    turned: Turning | None = None
    moved: tuple[int, int] | None = None
    sent: Sending | None = None
    called: Called | None = None
    masked: Masking | None = None
    averaged: str = ""
    targets: CountedTargets | None = None
    chain: tuple[Span, ...] = ()
    squared: Literal["", "rooted", "bare"] = ""


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
    | BiasAfterReduction
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
