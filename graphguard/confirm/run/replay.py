"""Captured graphs run on numbers: the specification alone, all ranks together in lockstep.

No user code runs: a graph is data.  :mod:`graphguard.ir.joining` says which calls are one collective, and in which order all can run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch

from graphguard.confirm.run.elements import DTYPES, FLOATS, UnrunnableError, extents, rounded, stored
from graphguard.confirm.run.lookups import is_outside
from graphguard.confirm.run.operators import argument, call, first_line, is_cast, measured_by
from graphguard.confirm.run.precision import Held
from graphguard.confirm.run.rounded_numbers import moved
from graphguard.confirm.run.singles import Singles, computes_in_both
from graphguard.confirm.run.ties import call_with_other_ties, has_ties, leaves_ties_open
from graphguard.confirm.run.unwritten import EMPTY, unwritten
from graphguard.ir import Capture, Constant, Graph, Node, Sym, Var
from graphguard.ir.joining import Joined, JoinedCall, join
from graphguard.ir.written import computed
from graphguard.ops import COLLECTIVE, exchanged

Values = dict[Var, torch.Tensor]
Ties = Literal["own", "random", "reversed"]
_WHOLE: Final = 1 << 31  # numbers below this that are multiples of one part in ...
_FRACTION: Final = 1 << 10  # ... have at most 41 bits
_JITTER: Final = 1e-14 * 12**0.5  # the width of an even spread whose standard deviation is 10^-14
_MIXING: Final = ((-7046029288634856825, 29), (-4658895280553007687, 32))  # Steele, Lea and Flood, SplitMix64 (2014)
_MANTISSA: Final = (1 << 53) - 1
_FEW: Final = 128  # different elements that are read one by one
_ROUNDING: Final = 2.0**-23  # the same for what float32 rounds away


def constant_value(constant: Constant) -> torch.Tensor:
    """The elements of a literal; where only a digest is known, floats drawn from the digest, so that equal literals stay equal."""
    declared = constant.type.dtype
    if declared not in DTYPES:
        raise UnrunnableError(f"element type '{declared}' has no numbers here")
    shape = extents(constant.type)
    if constant.data is not None:
        flat = torch.frombuffer(bytearray(constant.data), dtype=DTYPES[declared]) if constant.data else torch.empty(0)
        return flat.to(stored(declared)).reshape(shape)
    if declared not in FLOATS:
        raise UnrunnableError(f"the elements of a literal of shape {shape} were not kept")
    generator = torch.Generator().manual_seed(int.from_bytes(constant.digest.encode()[:7], "little"))
    return rounded(torch.randn(shape, generator=generator, dtype=torch.float64), declared)


def guessed_literal(capture: Capture) -> str:
    """What numbers of these programs would be guessed: a literal of which only a digest is known, and which not both have; empty where there is none."""
    spec, ranks = (
        {one.digest: one for graph in graphs for one in graph.constants.values() if one.data is None}
        for graphs in ((capture.spec,) if capture.spec is not None else (), capture.ranks)
    )
    found = next((one for digest, one in {**spec, **ranks}.items() if (digest in spec) != (digest in ranks)), None)
    if found is None:
        return ""
    who, verb = ("the specification", "has") if found.digest in spec else ("the ranks", "have")
    return f"a literal of shape {tuple(found.type.shape)} is too large to be kept, and only {who} {verb} it"


def _meant(value: torch.Tensor) -> torch.Tensor:
    """Elements in float32 as what was rounded to them; those of which that is not seen, and long tables, as they are."""
    values, places = torch.unique(value, return_inverse=True)
    if len(values) > _FEW:
        return value
    return torch.tensor([computed(one) for one in values.tolist()], dtype=value.dtype)[places].reshape(value.shape)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a run computes.

    ``sharp`` are float types in which all arithmetic is rounded, not only casts.  ``jitter`` disturbs every float result by one part in 10^14 at
    random: how far a program's outputs move then is how much rounding matters to them (Monte Carlo arithmetic, Parker 1997).  What was not rounded is
    not disturbed: counts and other numbers of few bits, whose sums and products are exact, so that comparing them is well defined.  Operators that
    promise no order of equal numbers (``topk``) take them as PyTorch does here, in a random order or in the reverse one (``ties``).  ``own`` are literals, by digest, that not both programs have: numbers in
    float32 that were computed before the recording, and rounded then.  They move by as much as their type rounds, and so do ``numbers`` of calls.  ``tied`` is filled with the calls of
    disturbed runs that chose among equal numbers: another run may choose otherwise.  ``held`` has the numbers that there are by type, which casts to their type leave as they are.
    Memory that nobody wrote holds what ``memory`` makes of rank, call and element; that of the calls in ``anew``, by rank and index, something else.
    ``outside`` is filled with the ranks that look up outside of a table, for which PyTorch raises an error.
    ``single``: float32 is the widest type of both programs, so an element of a literal in it is the number that was rounded to it, as a number in a call is.
    """

    sharp: frozenset[str] = frozenset()
    jitter: torch.Generator | None = None
    own: frozenset[str] = frozenset()
    numbers: frozenset[float] = frozenset()
    tied: list[Node] = field(default_factory=list)
    held: Held | None = None
    single: bool = False
    ties: Ties = "own"
    memory: int = 0
    anew: Collection[tuple[int, int]] = ()
    outside: set[int] = field(default_factory=set)

    def literal(self, constant: Constant) -> torch.Tensor:
        """The elements of a literal."""
        value = constant_value(constant)
        if self.single and constant.type.dtype == "float32" and constant.data is not None:
            value = _meant(value)
        return self.disturbed(value, _ROUNDING) if constant.digest in self.own else value

    def disturbed(self, value: torch.Tensor, width: float = _JITTER) -> torch.Tensor:
        """A result, moved if this run disturbs."""
        if self.jitter is None or value.dtype != torch.float64:
            return value
        noise = _spread(value, int(torch.randint(1 << 62, (), generator=self.jitter))).mul_(width)
        scaled = value * _FRACTION
        exact = (scaled == scaled.round()).logical_and_(value.abs() < _WHOLE)
        return noise.masked_fill_(exact, 0.0).add_(1.0).mul_(value)


def _spread(value: torch.Tensor, seed: int) -> torch.Tensor:
    """Numbers between -1/2 and 1/2, as random as the seed, and equal for equal elements: those of one call that are equal are so however it rounds."""
    bits = value.contiguous().view(torch.int64) ^ seed
    for odd, shift in _MIXING:
        bits = bits.mul_(odd)
        bits ^= bits >> shift
    return (bits & _MANTISSA).to(torch.float64).mul_(1 / _MANTISSA).sub_(0.5)


class _Rank:
    """One graph while it runs.  A value is dropped after its last use, unless it is an output or asked for."""

    def __init__(
        self, number: int, graph: Graph, leaves: Mapping[str, torch.Tensor], how: Arithmetic, keep: Iterable[Var]
    ) -> None:
        self.number = number
        self.graph = graph
        self.how = how
        self.values: Values = {var: leaves[name] for var, name in graph.inputs.items()}
        self.values.update((var, how.literal(constant)) for var, constant in graph.constants.items())
        if how.held is not None:
            for var in graph.inputs:
                how.held.add(graph, var, self.values[var])
        self._singles: Singles | None = None
        if computes_in_both(graph):
            kept = {
                var: constant_value(literal) for var, literal in graph.constants.items() if literal.data is not None
            }
            self._singles = Singles(graph, kept)
        self._uses = Counter(operand for node in graph.nodes for operand in node.operands())
        self._kept = {*graph.outputs.values(), *graph.symbols.values(), *_measuring(graph), *keep}

    def _in_doubles(self, node: Node) -> bool:
        """Whether a call computes in float64, which keeps what float32 would have rounded away."""
        return any(self.graph.types[out].dtype in ("float64", "complex128") for out in node.outs)

    def run(self, index: int) -> None:
        """Run an operator that concerns this rank alone."""
        node, how = self.graph.nodes[index], self.how
        values: Mapping[Var, torch.Tensor] = self.values
        if self._singles is not None:
            values = self._singles.given(node, values, lambda value: how.disturbed(value, _ROUNDING))
            self._singles.note(node)
        if how.jitter is not None and how.numbers and not self._in_doubles(node):
            node = moved(node, how.numbers, how.jitter)
        tied = (how.jitter is not None or how.ties != "own") and leaves_ties_open(self.graph, node)
        if tied and how.jitter is not None and has_ties(node, values):
            how.tied.append(node)
        if node.op == EMPTY:
            shape, place = tuple(argument(self.graph, node.args[0], values)), (self.number, index)
            declared = self.graph.types[node.outs[0]].dtype
            results: tuple[torch.Tensor, ...] = (unwritten(shape, declared, (how.memory, *place, place in how.anew)),)
        elif tied and how.ties != "own":
            generator = how.jitter if how.ties == "random" else None
            results = call_with_other_ties(self.graph, node, values, how.sharp, generator)
        elif how.held is not None and is_cast(self.graph, node) and self._kept_by(node, how.held):
            assert isinstance(node.args[0], Var)
            results = (self.values[node.args[0]],)
        else:
            results = call(self.graph, node, values, how.sharp)
        if is_outside(node, values, results):
            how.outside.add(self.number)
        if how.held is not None and not is_cast(self.graph, node):
            for out, value in zip(node.outs, results, strict=False):
                how.held.add(self.graph, out, value)
        self.finish(node, results)

    def _kept_by(self, node: Node, held: Held) -> bool:
        """Whether a cast is to the type in which its operand's numbers are."""
        operand = node.args[0]
        assert isinstance(operand, Var)
        kind = self.graph.types[node.outs[0]]
        shape = tuple(self.values[operand].shape)
        return (
            kind.dtype not in self.how.sharp
            and shape == kind.shape
            and held.keeps(self.graph, node, self.values[operand])
        )

    def receive(self, index: int, results: Sequence[torch.Tensor]) -> None:
        """Take a collective's results, rounded where this run rounds arithmetic."""
        node = self.graph.nodes[index]
        kinds = [self.graph.types[out].dtype for out in node.outs]
        self.finish(node, [rounded(v, k) if k in self.how.sharp else v for v, k in zip(results, kinds, strict=False)])

    def finish(self, node: Node, results: Sequence[torch.Tensor]) -> None:
        """Store a node's results, and let go of what it read last."""
        self.values.update(zip(node.outs, map(self.how.disturbed, results), strict=False))
        for operand in node.operands():
            self._uses[operand] -= 1
            if not self._uses[operand] and operand not in self._kept:
                self.values.pop(operand, None)


def _measuring(graph: Graph) -> set[Var]:
    """The tensors whose extents are sizes that only the data decides."""
    sizes = {size.expr for kind in graph.types.values() for size in kind.shape if isinstance(size, Sym)}
    places = (measured_by(graph, name) for name in sizes if name.isidentifier() and name not in graph.symbols)
    return {place[0] for place in places if place is not None}


def run_graph(graph: Graph, leaves: Mapping[str, torch.Tensor], *, how: Arithmetic | None = None) -> Values:
    """The values of one graph's outputs; raises :class:`UnrunnableError`."""
    return run_ranks(join((graph,)), (graph,), leaves, how=how)[0]


def run_ranks(
    joined: Joined,
    graphs: Sequence[Graph],
    leaves: Mapping[str, torch.Tensor],
    *,
    how: Arithmetic | None = None,
    keep: Sequence[Iterable[Var]] = (),
) -> list[Values]:
    """The values of every rank's outputs, run in the order of ``joined``; raises :class:`UnrunnableError`."""
    if joined.mismatches:
        raise UnrunnableError(joined.mismatches[0].message.splitlines()[0])
    how = how or Arithmetic()
    ranks = [
        _Rank(rank, graph, leaves, how, keep[rank] if rank < len(keep) else ()) for rank, graph in enumerate(graphs)
    ]
    with torch.no_grad(), _double_by_default():
        for step in joined.order:
            if isinstance(step, JoinedCall):
                _run_collective(step, ranks)
            else:
                ranks[step[0]].run(step[1])
    return [rank.values for rank in ranks]


class _double_by_default:  # noqa: N801 - reads as a statement
    """Integer division and factories without a type give float64 inside, and small tensors do not wait for threads."""

    def __enter__(self) -> None:
        self._before = torch.get_default_dtype(), torch.get_num_threads()
        torch.set_default_dtype(torch.float64)
        # Handing a tensor of a hundred elements to a pool takes longer than the work: 40 times on a busy machine.
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        dtype, threads = self._before
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)


def _run_collective(joined: JoinedCall, ranks: Sequence[_Rank]) -> None:
    party = [(ranks[member], joined.nodes[member]) for member in joined.group]
    collective, (first, place) = COLLECTIVE[joined.kind], party[0]
    args = first.graph.nodes[place].args

    def given(member: int, position: int) -> Any:
        rank, index = party[member]
        return rank.values[rank.graph.nodes[index].reads[position]]

    def reduced(_: int, values: list[Any]) -> Any:
        return reduction(values, collective.argument("reduce", args))

    try:
        received = exchanged(joined.kind, len(party), collective.root(args, joined.group), given, reduced)
    except RuntimeError as error:  # sizes that the data decides, and that differ between ranks
        raise UnrunnableError(f"'{joined.kind}' failed on numbers: {first_line(error)}") from error
    for (rank, index), results in zip(party, received, strict=True):
        rank.receive(index, results)


def reduction(values: Sequence[torch.Tensor], how: str) -> torch.Tensor:
    """Tensors of one shape reduced element by element."""
    stack = torch.stack(list(values))
    match how:
        case "sum":
            return stack.sum(0).to(stack.dtype)
        case "avg":
            return stack.sum(0) / len(values)
        case "max":
            return stack.amax(0)
        case "min":
            return stack.amin(0)
        case "product":
            return stack.prod(0).to(stack.dtype)
        case _:
            raise UnrunnableError(f"reduction '{how}' has no numbers here")
