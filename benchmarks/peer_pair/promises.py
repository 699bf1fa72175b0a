"""What a task promises of every output of the sequential program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.peer_pair.document import Apply, PeerGraph, Task, Tensor, Term
from benchmarks.peer_pair.layouts import Window
from graphguard.ir import Placement
from graphguard.ir.capture import Wanted

_TRACED = re.compile(r"(primals|tangents)_\d+$")


@dataclass(frozen=True, slots=True)
class Pledge:
    """One promise: a window of a sequential tensor, and for each rank that has a part in it, a tensor or a window of one."""

    name: str
    seq: Tensor
    window: Window
    ranks: dict[int, tuple[Tensor, Window | None]]
    wanted: Wanted

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor it speaks of."""
        yield self.seq
        for tensor, _ in self.ranks.values():
            yield tensor


@dataclass(slots=True)
class Pledges:
    """All promises of a task, and what they leave out."""

    made: list[Pledge] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)


def pledges_of(task: Task, related: Callable[[tuple[Tensor, ...]], bool]) -> Pledges:
    """Expected relations as they are stated; other outputs in any clean relation to the ranks' outputs at the same place.

    ``related`` says whether tensors rest on nothing but inputs whose relation is known: only such outputs can be compared.
    """
    maker = _Maker(task, related)
    for terms in task.expectation:
        maker.expect(terms)
    maker.others()
    return maker.pledges


class _Maker:
    def __init__(self, task: Task, related: Callable[[tuple[Tensor, ...]], bool]) -> None:
        self.task = task
        self._related = related
        self.pledges = Pledges()
        self._seq = task.seq.by_id()
        self._dist = [graph.by_id() for graph in task.dist]
        self._stated: set[str] = set()

    def expect(self, terms: tuple[Term, ...]) -> None:
        """A class of equal terms: what each must be in terms of the sequential tensor."""
        seq = next((term for term in terms if isinstance(term, Tensor) and term.rank is None), None)
        if seq is None:
            return
        self._stated.add(seq.node)
        whole = self._whole(seq)
        copies: dict[int, tuple[Tensor, Window | None]] = {}
        for term in terms:
            if isinstance(term, Tensor):
                if term.rank is not None:
                    copies[term.rank] = (term, None)
            else:
                self._expect_term(seq, whole, term)
        if copies:
            self._add(Pledge(self._name(seq.node), seq, whole, copies, {"tp": Placement("replicate")}))

    def _expect_term(self, seq: Tensor, whole: Window, term: Apply) -> None:
        for op, placement in (("concat", None), ("reduce_add", Placement("partial"))):
            parts = _flat(term, op)
            if parts is not None and [part.rank for part in parts] == list(range(len(self.task.dist))):
                dim = term.params[0] if term.params else 0
                ranks: dict[int, tuple[Tensor, Window | None]] = {
                    part.rank: (part, None) for part in parts if part.rank is not None
                }
                self._add(Pledge(self._name(seq.node), seq, whole, ranks, {"tp": placement or Placement("shard", dim)}))
                return
        for tensor, own, meaning in self._pieces(term, whole):
            if tensor.rank is not None:
                self._add(Pledge(self._name(seq.node), seq, meaning, {tensor.rank: (tensor, own)}, "infer"))

    def _pieces(self, term: Term, meaning: Window) -> Iterator[tuple[Tensor, Window, Window]]:
        """Leaves of a term of concatenations and slices, each with its own window and what that must be."""
        if isinstance(term, Tensor):
            yield term, self._whole(term), meaning
        elif term.op == "concat":
            dim, at = term.params[0], 0
            for arg in term.args:
                size = self._shape(arg)[dim]
                yield from self._pieces(arg, meaning.part(dim, at, at + size))
                at += size
        elif term.op == "slice" and isinstance(term.args[0], Tensor):
            dim, start, stop = term.params[:3]
            yield term.args[0], self._whole(term.args[0]).part(dim, start, stop), meaning
        else:
            self.pledges.assumed.append(f"an expectation in terms of '{term.op}' is not checked")

    def others(self) -> None:
        """Outputs without an expectation; of a graph split for training, those saved for its backward pass are left out."""
        outputs = self._own(self.task.seq)
        ranks = [self._own(graph) for graph in self.task.dist]
        for seq, tensors in self.task.checked:
            if seq.node not in self._stated:
                self._infer(seq, tensors)
        saved = len(self.task.seq.outputs) - len(outputs)
        if saved:
            self.pledges.assumed.append(f"{saved} tensors saved for the backward pass are not compared")
        apart = 0
        for index, node in enumerate(outputs):
            tensors = tuple(
                Tensor(rank, name) for rank, own in enumerate(ranks) if index < len(own) and (name := own[index])
            )
            if node is None or node in self._stated:
                continue
            if self._related(tensors):
                self._infer(Tensor(None, node), tensors)
            else:
                apart += 1
        if apart:
            self.pledges.assumed.append(f"{apart} outputs rest on tensors that nothing relates and are not compared")

    def _own(self, graph: PeerGraph) -> list[str | None]:
        """The outputs of the program itself: a training graph's saved tensors begin with its first placeholder."""
        placeholders = {node.id for node in graph.nodes if node.kind == "placeholder"}
        if not placeholders or not all(_TRACED.match(name) for name in placeholders):
            return list(graph.outputs)
        stop = next((i for i, name in enumerate(graph.outputs) if name in placeholders), len(graph.outputs))
        return list(graph.outputs[:stop])

    def _infer(self, seq: Tensor, tensors: tuple[Tensor, ...]) -> None:
        self._stated.add(seq.node)
        if not tensors:
            self.pledges.assumed.append(f"the output '{seq.node}' has no counterpart on any rank and is not compared")
            return
        ranks: dict[int, tuple[Tensor, Window | None]] = {
            tensor.rank: (tensor, None) for tensor in tensors if tensor.rank is not None
        }
        self._add(Pledge(self._name(seq.node), seq, self._whole(seq), ranks, "infer"))

    def _add(self, pledge: Pledge) -> None:
        self.pledges.made.append(pledge)

    def _name(self, node: str) -> str:
        taken = {pledge.name for pledge in self.pledges.made}
        if node not in taken:
            return node
        return next(name for number in range(1, len(taken) + 2) if (name := f"{node}#{number}") not in taken)

    def _shape(self, term: Term) -> tuple[int, ...]:
        if isinstance(term, Tensor):
            node = (self._seq if term.rank is None else self._dist[term.rank])[term.node]
            return node.shape or ()
        shape = list(self._shape(term.args[0]))
        if term.op == "slice":
            shape[term.params[0]] = term.params[2] - term.params[1]
        elif term.op == "concat":
            shape[term.params[0]] = sum(self._shape(arg)[term.params[0]] for arg in term.args)
        return tuple(shape)

    def _whole(self, tensor: Tensor) -> Window:
        shape = self._shape(tensor)
        return Window(tensor.node, (0,) * len(shape), shape)


def _flat(term: Term, op: str) -> list[Tensor] | None:
    """The tensors of nested applications of one operator along one dim; None for anything else."""
    if isinstance(term, Tensor):
        return [term]
    if term.op != op:
        return None
    parts: list[Tensor] = []
    for arg in term.args:
        inner = _flat(arg, op)
        if inner is None or (isinstance(arg, Apply) and arg.params != term.params):
            return None
        parts.extend(inner)
    return parts
