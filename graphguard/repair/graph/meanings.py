"""What calls that differ from rank to rank mean to who reads the program: what its text and its message are made of."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from graphguard.ir import Span, Var
from graphguard.repair.graph.alignment import Position


@dataclass(frozen=True, slots=True)
class Filling:
    """Tensors are filled up with a ``number`` where another one is ``needed``; that is all that changes."""

    number: float
    needed: float


@dataclass(frozen=True, slots=True)
class Joining:
    """Gathered parts are to be joined along a ``dim``; that is all that changes."""

    dim: int


@dataclass(frozen=True, slots=True)
class Renaming:
    """The parameters of a ``module`` are read where those of the one that is ``meant`` should be."""

    module: str
    meant: str


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
    tensors: dict[int, Var] | None = None
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

    tensors: dict[int, Var]
    position: Position
    later: bool


@dataclass(frozen=True, slots=True)
class Called:
    """The call of a function that is left out, or made of other ``tensors`` as well."""

    span: Span
    tensors: dict[int, Var] | None


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
class Writing:
    """Rows are written at other places, which lack an ``offset``, or lie so many places further along a dim on every rank (``further``: dim and number)."""

    offset: Offset | None
    further: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Averaging:
    """What is divided by is to be averaged over ``axis`` first."""

    axis: str


@dataclass(frozen=True, slots=True)
class Chain:
    """A row of operators that is missing, by where the specification writes each."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Squaring:
    """Squares are to be added up, with the root behind if it is ``rooted``: where that is done already, or ``over`` an axis."""

    rooted: bool
    over: str = ""


@dataclass(frozen=True, slots=True)
class Rescaling:
    """A sum's first summand is to be multiplied by the factor that the product at ``span`` has, its right side or, for ``place`` 0, its left one."""

    span: Span
    place: int


@dataclass(frozen=True, slots=True)
class Unapplied:
    """The specification's expression ``written`` there is to be computed of what is read, first."""

    written: Span


@dataclass(frozen=True, slots=True)
class Term:
    """What the specification has ``written`` there, made of ``others`` that the ranks hold, is to be added to (or multiply: ``symbol``) what their ``tensors`` are."""

    written: Span
    symbol: str
    tensors: dict[int, Var]
    others: dict[Var, dict[int, Var]]


Meaning = (
    Filling
    | Joining
    | Renaming
    | Offset
    | Regrouping
    | Turning
    | Writing
    | Sending
    | Called
    | Masking
    | Averaging
    | CountedTargets
    | Chain
    | Squaring
    | Rescaling
    | Unapplied
    | Term
)
