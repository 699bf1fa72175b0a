"""SSA graphs over tensors, with ATen operators and a small set of collectives.

Every operator has value semantics: there are no strides, storages or devices, and nothing is mutated.  Operators
are named as PyTorch names them (``aten.mm.default``), with positional arguments as in their schema and keyword-only
arguments by keyword; arguments that say where a tensor lives (device, layout, memory format) are left out.  An
in-place operator appears as its functional twin (``aten.add_.Tensor`` as ``aten.add.Tensor``).
``aten.as_strided`` and ``aten.as_strided_scatter`` index the row-major flattening of their operand.

The collectives, one form each (``group`` is the tuple of global ranks in group order, ``n`` its length):

=====================================  ========================================================================
``gg.all_reduce(x, reduce, group)``     one result; ``reduce`` is sum, avg, max, min or product
``gg.all_gather(x, group)``             n results, one per member, shapes may differ
``gg.reduce_scatter(xs, reduce, group)`` takes a list of n tensors, member i receives the reduction of the i-th
``gg.all_to_all(xs, group)``            takes n tensors, gives n: result j is what member j sent to this rank
``gg.broadcast(x, src, group)``         one result: the value of global rank ``src``
``gg.reduce(x, dst, reduce, group)``    one result: the reduction on ``dst``, the rank's own x elsewhere
``gg.gather(x, dst, group)``            n results on ``dst``, none elsewhere
``gg.scatter(xs, src, group)``          one result; ``xs`` is empty except on ``src``
``gg.send(x, dst, tag, group)``         no result
``gg.recv(src, tag, group)``            one result
``gg.barrier(group)``                   no result
=====================================  ========================================================================

Two groups of the same ranks are two communicators: where a job uses several, the keyword ``comm=2`` names the second, ``comm=3`` the third.

``gg.send`` and ``gg.recv`` stand where they are issued; the keyword ``blocking=True`` says that the program waits for them at once.  The keyword ``asynchronous=True`` of another
collective says that it does not, where that matters: where ranks call collectives of several groups in different orders.

Further operators of our own: ``gg.sdpa`` and ``gg.sdpa_backward`` (scaled dot product attention, whichever kernel
torch would pick), with the arguments of ``torch.nn.functional.scaled_dot_product_attention``; ``gg.rounded(x, meant)``, a rounding to the narrower type of its
result that no cast of the program is, but arithmetic in that type (``meant``: the specification has the rounded numbers as well); ``gg.assume(x, truth)``, where the
program branches on whether a 0-dim tensor or a size is above zero and was recorded as where that is ``truth``: its result is True.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar, dataclass_transform

from graphguard.ir.spans import Frame
from graphguard.ops import COLLECTIVE

COLLECTIVES: Final = frozenset(COLLECTIVE)
COMMUNICATOR: Final = "comm"
"""The keyword that names a group among those of the same ranks; without it, the first."""
ASYNCHRONOUS: Final = "asynchronous"
"""The keyword of a collective that the program does not wait for where it calls it."""

_Record = TypeVar("_Record")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _record(cls: type[_Record]) -> type[_Record]:
    """A dataclass that types, and nothing else, keep anybody from changing: to make one that is frozen takes five times as long, and there are millions."""
    return dataclass(slots=True, unsafe_hash="__hash__" not in vars(cls))(cls)


@_record
class Var:
    """A tensor of one graph, by number."""

    id: int

    def __hash__(self) -> int:  # the generated one builds a tuple, and little is asked more often
        return self.id

    def __reduce__(self) -> tuple[Any, ...]:  # dataclasses pickle their slots by a loop over their fields
        return Var, (self.id,)


@dataclass(frozen=True, slots=True)
class DType:
    """An element type by its PyTorch name without the module, such as ``float32``."""

    name: str


@dataclass(frozen=True, slots=True)
class Sym:
    """A size known only when the program runs: an integer expression over symbols ``u0``, ``u1``, ..."""

    expr: str


Size: TypeAlias = int | Sym
Arg: TypeAlias = "bool | int | float | str | Var | DType | Sym | tuple[Arg, ...] | None"


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a tensor."""

    shape: tuple[Size, ...]
    dtype: str

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorType, (self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal tensor: row-major little-endian elements, or only their digest where there are too many."""

    type: TensorType
    digest: str
    data: bytes | None


@_record
class Node:
    """One operator call.

    ``stack`` and ``forward`` are indices into ``Graph.stacks``: where it was called, and, for an operator that
    autograd ran, the stack of the forward call it differentiates (-1: none).  ``phase`` is ``prelude`` (how a rank's
    inputs and parameters come from the specification's), ``forward``, ``backward`` or ``step``.  ``draw`` names the random draw:
    generator (with its seed where the program set one) and number of the call.
    """

    op: str
    args: tuple[Arg, ...]
    kwargs: dict[str, Arg]
    outs: tuple[Var, ...]
    stack: int = -1
    forward: int = -1
    module: str = ""
    phase: str = "forward"
    draw: tuple[str, int] | None = None
    _reads: tuple[Var, ...] | None = field(default=None, init=False, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.op, self.args, self.kwargs, self.outs, self.stack, self.forward, self.module, self.phase)
        return Node, (*arguments, self.draw)

    def operands(self) -> Iterator[Var]:
        """Every tensor the call reads, in argument order, repeats included."""
        return iter(self.reads)

    @property
    def reads(self) -> tuple[Var, ...]:
        """The same, gathered when it is first asked for."""
        known = self._reads
        if known is None:
            found: list[Var] = []
            _gather(self.args[:-1] if self.op in COLLECTIVES else self.args, found)  # its group may be large
            if self.kwargs:
                _gather(tuple(self.kwargs.values()), found)
            known = tuple(found)
            object.__setattr__(self, "_reads", known)
        return known


def _gather(args: tuple[Arg, ...], found: list[Var]) -> None:
    for arg in args:
        if isinstance(arg, Var):
            found.append(arg)
        elif isinstance(arg, tuple):
            _gather(arg, found)


@dataclass(frozen=True, slots=True)
class Graph:
    """A straight-line program: the specification, or one rank of the implementation.

    ``inputs`` maps variables to names of :class:`~graphguard.ir.capture.Leaf`; ``types`` is total over variables;
    ``outputs`` maps output names to variables; ``labels`` gives names to further variables (a rank's own parameters);
    ``symbols`` maps a size symbol to the 0-dim integer variable whose value it is.
    """

    inputs: dict[Var, str]
    constants: dict[Var, Constant]
    nodes: tuple[Node, ...]
    types: dict[Var, TensorType]
    outputs: dict[str, Var]
    labels: dict[Var, str] = field(default_factory=dict)
    symbols: dict[str, Var] = field(default_factory=dict)
    frames: tuple[Frame, ...] = ()
    stacks: tuple[tuple[int, ...], ...] = ()

    def stack_of(self, index: int) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first; empty for -1."""
        return () if index < 0 else tuple(self.frames[i] for i in self.stacks[index])

    def producers(self) -> dict[Var, int]:
        """For every variable that a node defines, the index of that node."""
        return {out: index for index, node in enumerate(self.nodes) for out in node.outs}
