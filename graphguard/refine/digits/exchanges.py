"""Collectives of a quotient: over digits within one program, between programs at one place of the digits, and totals over both."""

from __future__ import annotations

from collections.abc import Sequence

from graphguard.ir import Node, Var
from graphguard.ir.graph import COLLECTIVES, COMMUNICATOR
from graphguard.ir.joining import Joined, JoinedCall, group_of, join
from graphguard.ops import REDUCTIONS, gg
from graphguard.refine.digits.algebra import Stacked
from graphguard.refine.digits.evaluate import Run
from graphguard.refine.digits.groups import Span, place_of
from graphguard.refine.digits.moves import at_place, exchanged, gathered, scattered, total
from graphguard.refine.digits.programs import Quotient
from graphguard.refine.digits.stacks import Stack
from graphguard.refine.evaluation.evaluate import all_real
from graphguard.relations.algebra import Unsupported
from graphguard.rules import combine


def joined(quotient: Quotient) -> Joined:
    """The programs in lockstep; raises ``Unsupported`` where they are not.

    The ranks are then in lockstep as well: a step of a program is one of all its ranks, and calls that meet are made on groups of the same digits and programs.
    """
    found = join(quotient.graphs)
    if found.mismatches:
        raise Unsupported("collectives that do not meet")
    for call in found.collectives:
        spans = {quotient.programs[program].spans[index] for program, index in call.nodes.items()}
        if len(spans) != 1:
            raise Unsupported("collectives that meet on different groups")
        if call.kind != gg.send:
            _check_types(quotient, call)
    return found


def _check_types(quotient: Quotient, call: JoinedCall) -> None:
    """Raise ``Unsupported`` where the tensors of a collective are not of one type."""
    kinds = set()
    for program, index in call.nodes.items():
        graph = quotient.programs[program].graph
        node = graph.nodes[index]
        kinds |= {graph.types[var] for var in (*node.reads, *node.outs)}
        if not all_real(kind.dtype for kind in kinds):
            raise Unsupported("complex numbers in a collective")
        if set(node.kwargs) - {COMMUNICATOR, "asynchronous"}:
            raise Unsupported("a collective with further arguments")
    if len(kinds) > 1:
        raise Unsupported("a collective on tensors of different types")


class Exchange:
    """Evaluates the steps of a quotient in order."""

    def __init__(self, quotient: Quotient, algebra: Stacked, runs: Sequence[Run]) -> None:
        self.quotient = quotient
        self.algebra = algebra
        self.runs = runs

    def run(self, steps: Joined, phase: str | None = None) -> None:
        """Every call of all programs; of one phase alone where it is given."""
        for step in steps.order:
            program, index = next(iter(step.nodes.items())) if isinstance(step, JoinedCall) else step
            node = self._node(program, index)
            if phase is not None and node.phase != phase:
                continue
            if not isinstance(step, JoinedCall):
                if node.op not in COLLECTIVES:
                    self.runs[program].call(index)
                continue
            try:
                self._collective(step)
            except KeyError:
                continue  # what a member sends has no value, and what they receive has none
            except Unsupported as reason:
                self.runs[program].lost.append(f"{step.kind}: {reason}")

    def _node(self, program: int, index: int) -> Node:
        return self.quotient.programs[program].graph.nodes[index]

    def _given(self, program: int, index: int) -> Stack:
        """The one tensor that a member gives."""
        run, each = self.runs[program], self.quotient.programs[program].unlike.get(index)
        return (
            run.get(self._node(program, index).reads[0]) if each is None else run.own([call.reads[0] for call in each])
        )

    def _collective(self, call: JoinedCall) -> None:
        if call.kind == gg.barrier:
            return
        if call.kind == gg.send:
            source, destination = call.group
            value = self._given(source, call.nodes[source])
            self._give(destination, call.nodes[destination], value)
            return
        program, index = next(iter(call.nodes.items()))
        span = self.quotient.programs[program].spans[index]
        if len(span.programs) == 1:
            self._within(program, index, span)
        elif call.kind == gg.all_reduce:
            self._total(call, span)
        elif not span.digits:
            self._between(call)
        else:
            raise Unsupported("over digits and programs")

    def _give(self, program: int, index: int, value: Stack) -> None:
        node = self._node(program, index)
        if node.op in REDUCTIONS:
            self.runs[program].check_total(node, value, len(group_of(node)))
        for out in node.outs:
            self.runs[program].give(out, value)

    def _within(self, program: int, index: int, span: Span) -> None:
        """A collective over digits of one program."""
        a, run, node = self.algebra, self.runs[program], self._node(program, index)
        if node.op in (gg.reduce_scatter, gg.all_to_all):
            each = node.args[0]
            assert isinstance(each, tuple)
            several = run.listed(each)
            if node.op == gg.reduce_scatter:
                self._give(program, index, scattered(a, several, span.digits, str(node.args[1])))
            else:
                self._give_list(program, index, exchanged(a, several, span.digits))
            return
        value = self._given(program, index)
        if node.op == gg.all_gather:
            self._give_list(program, index, gathered(a, value, span.digits))
        elif node.op == gg.broadcast:
            root = node.args[1]
            assert isinstance(root, int)
            place = place_of(self.quotient.mesh, root)
            at = {digit: place[self.quotient.digits[digit]] for digit in span.digits}
            self._give(program, index, at_place(a, value, at))
        elif node.op == gg.all_reduce:
            self._give(program, index, self._finished(total(a, value, span.digits, str(node.args[1])), node, program))
        else:
            raise Unsupported(f"{node.op} over digits")

    def _give_list(self, program: int, index: int, several: Stack) -> None:
        run, outs = self.runs[program], self._node(program, index).outs
        if several.shape[0] != len(outs) or several.shape[1:] != run.program.graph.types[outs[0]].shape:
            raise Unsupported("a result of another shape")
        run.lists[index] = several
        if len(outs) == 1:
            run.give(outs[0], self.algebra.reshape(several, several.shape[1:]))

    def _finished(self, value: Stack, node: Node, program: int) -> Stack:
        """A total as a number of its type."""
        dtype = self.quotient.programs[program].graph.types[node.outs[0]].dtype
        return self.algebra.written_down(combine(self.algebra, "sum", [value], dtype))

    def _total(self, call: JoinedCall, span: Span) -> None:
        """An all-reduce over programs, and over digits of all of them."""
        first, index = next(iter(call.nodes.items()))
        node = self._node(first, index)
        how = str(node.args[1])
        dtype = self.quotient.programs[first].graph.types[node.outs[0]].dtype
        parts = [self._given(program, call.nodes[program]) for program in call.group]
        if span.digits:
            if how not in ("sum", "avg", "max", "min"):
                raise Unsupported(f"a total by {how}")
            parts = [total(self.algebra, part, span.digits, how) for part in parts]
        value = self.algebra.written_down(combine(self.algebra, how, parts, dtype))
        for program, at in call.nodes.items():
            self._give(program, at, value)

    def _between(self, call: JoinedCall) -> None:
        """A collective between programs, at every place of the digits."""
        a, members = self.algebra, call.group
        for place, program in enumerate(members):
            node = self._node(program, call.nodes[program])
            if call.kind == gg.all_gather:
                for out, other in zip(node.outs, members, strict=True):
                    self.runs[program].give(out, self._given(other, call.nodes[other]))
            elif call.kind == gg.broadcast:
                root = self.quotient.graphs[program].nodes[call.nodes[program]].args[1]
                assert isinstance(root, int)
                self._give(program, call.nodes[program], self._given(root, call.nodes[root]))
            elif call.kind == gg.reduce_scatter:
                parts = [self._listed(other, call.nodes[other], place) for other in members]
                dtype = self.quotient.programs[program].graph.types[node.outs[0]].dtype
                self._give(program, call.nodes[program], a.written_down(combine(a, str(node.args[1]), parts, dtype)))
            elif call.kind == gg.all_to_all:
                for out, other in zip(node.outs, members, strict=True):
                    self.runs[program].give(out, self._listed(other, call.nodes[other], place))
            else:
                raise Unsupported(f"{call.kind} between programs")

    def _listed(self, program: int, index: int, place: int) -> Stack:
        each = self._node(program, index).args[0]
        assert isinstance(each, tuple)
        var = each[place]
        assert isinstance(var, Var)
        return self.runs[program].get(var)
