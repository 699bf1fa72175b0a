"""Arithmetic of the ranks in a narrower type than that in which the specification has the same numbers.

Float types stand for the reals, so arithmetic in bfloat16 is that in float32 until it is rounded.  What a rank computes in bfloat16 and the specification in float32 alone
is a rounding that the specification lacks, although no cast says so.  Where the specification has the rounded numbers as well (a fused operator computes in
float32 and rounds once) they are what the rank has, unless it has rounded before what it computes with.  All other such calls are
remembered: a program that has any is not proved, and is written with roundings of their own (``refine/exposed``).

A rounding of numbers that the specification has nowhere, an exponential in bfloat16 where it has a softmax, is followed to what is made of it (``refine/traces``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from graphguard.ir import Graph, Node, TensorType, Var
from graphguard.ir.joining import JoinedCall
from graphguard.ops import traits_of
from graphguard.refine.evaluation.traces import Origin, Rounding, Traces
from graphguard.refine.outcome import SPECIFICATION, Location
from graphguard.refine.stages.coarse import WIDER_AND_OTHERS, computes_coarsely
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.prove.precision import same_digits
from graphguard.relations.terms.values import NormalValue
from graphguard.rules.basis.casting import WITHOUT_ZERO, unknown_cast

_NONE: Final = frozenset[Origin]()
_Operands: TypeAlias = Sequence[tuple[NormalValue, str]]  # with their element types
#: So many members add once, and round once.
_ONE_ADDITION: Final = 2


class Narrowing:
    """What the calls of a program round by arithmetic, found while they are evaluated.

    ``own`` gives the one object for equal values.
    """

    def __init__(self, algebra: NormalForm, own: Callable[[NormalValue], NormalValue]) -> None:
        self.roundings: dict[Location, tuple[Rounding, ...]] = {}
        self.traces = Traces(algebra)
        self._algebra = algebra
        self._own = own
        self._types: tuple[str, ...] = ()
        self.active = False  # whether there are such types at all
        self._found: dict[object, tuple[Rounding, ...]] = {}
        #: Results that the specification has nowhere, with their types.
        self._free: dict[object, tuple[tuple[int, str], ...]] = {}

    def begin(self, types: tuple[str, ...]) -> None:
        """Look at another program, among whose types there are these coarse ones beside others."""
        self._types, self.roundings, self.traces = types, {}, Traces(self._algebra)
        self.active = bool(types)

    def again(self) -> Narrowing:
        """The same for other ranks of the program: what is known of calls stays known."""
        other = copy.copy(self)
        other.roundings, other.traces = {}, Traces(self._algebra)
        return other

    @property
    def coarse(self) -> bool:
        """Whether a rank computes something in a narrower type than the specification, and is not seen to have what that rounds."""
        return any(not rounding.accepted for found in self.roundings.values() for rounding in found)

    def note(self, where: Location, node: Node, key: object, graph: Graph, values: Mapping[Var, NormalValue]) -> None:
        """A call that is known by ``key`` was made here."""
        if where.graph == SPECIFICATION or not self._types:
            return
        origins = self.traces.of((where.graph, var) for var in node.reads) if self.traces else _NONE
        self._note(where, node, key, graph, values, origins)

    def exchanged(
        self,
        call: JoinedCall,
        graphs: Sequence[Graph],
        values: Sequence[Mapping[Var, NormalValue]],
        keys: Mapping[int, object],
    ) -> None:
        """What the members of a collective received, each by a key, is made of what all of them gave."""
        nodes = {rank: graphs[rank].nodes[index] for rank, index in call.nodes.items()}
        origins = _NONE
        if self.traces:
            origins = self.traces.of((rank, var) for rank, node in nodes.items() for var in node.reads)
        for rank, node in nodes.items():
            where = Location(rank, call.nodes[rank])
            self._note(where, node, keys.get(rank), graphs[rank], values[rank], origins)

    def promised(self, outs: Mapping[int, Var], dtype: str) -> None:
        """The specification has what these tensors of ranks are together, in a type."""
        if self.traces:
            for origin in self.traces.of(outs.items()):
                if dtype in WIDER_AND_OTHERS[origin.dtype][0]:
                    self._expose(origin, dtype)

    def _expose(self, origin: Origin, wide: str) -> None:
        found = self.roundings.get(origin.where, ())
        if all(rounding.index != origin.index for rounding in found):
            self.roundings[origin.where] = (*found, Rounding(origin.index, wide, known=False))

    def _note(
        self,
        where: Location,
        node: Node,
        key: object,
        graph: Graph,
        values: Mapping[Var, NormalValue],
        origins: frozenset[Origin],
    ) -> None:
        if self._found and key in self._found:
            found = self._found[key]  # what was rounded before is rounded twice
            self.roundings[where] = tuple([replace(each, doubted=each.known) for each in found]) if origins else found
        if origins:
            made = {out: values.get(out) for out in node.outs}
            for origin, wide in self.traces.follow(where.graph, made, graph.types, origins).items():
                self._expose(origin, wide)
        if self._free and key in self._free:
            for index, dtype in self._free[key]:
                self.traces.begin(where.graph, node.outs[index], Origin(where, index, dtype))

    def results(
        self,
        key: object,
        node: Node,
        types: Mapping[Var, TensorType],
        values: Mapping[Var, NormalValue],
        results: tuple[NormalValue, ...],
    ) -> tuple[NormalValue, ...]:
        """The results of a call, those of a rank rounded where the specification has them so."""
        if not self._types:
            return results
        if traits_of(node.op).exact == "chosen":
            self._pass_on(node, types, values, results)
        if self._algebra.universe.specifying or all(types[out].dtype not in WIDER_AND_OTHERS for out in node.outs):
            return results
        if not computes_coarsely(self._algebra, node, values):
            return results
        operands = [(values[var], types[var].dtype) for var in node.operands()]
        return self._rounded(key, results, [types[out].dtype for out in node.outs], operands)

    def total(self, key: object, values: Sequence[NormalValue], dtype: str, members: int) -> tuple[NormalValue, ...]:
        """What a collective adds up of its members' tensors, or each of its members' a part of."""
        if not self._types:
            return tuple(values)
        return self._rounded(key, values, [dtype] * len(values), once=members <= _ONE_ADDITION)

    def rounds(
        self,
        node: Node,
        types: Mapping[Var, TensorType],
        values: Mapping[Var, NormalValue],
        results: tuple[NormalValue, ...],
    ) -> bool:
        """Whether a call of ranks makes numbers of a coarse type that the specification is not seen to have in one so narrow."""
        key = object()
        self.results(key, node, types, values, results)
        return key in self._found or key in self._free

    def adds(self, value: NormalValue, dtype: str, members: int) -> bool:
        """Whether a collective makes such numbers."""
        key = object()
        self.total(key, (value,), dtype, members)
        return key in self._found or key in self._free

    def _pass_on(
        self,
        node: Node,
        types: Mapping[Var, TensorType],
        values: Mapping[Var, NormalValue],
        results: Sequence[NormalValue],
    ) -> None:
        """What is chosen among numbers of a coarse type is of that type, whatever it is stored in."""
        floats = [values[var] for var in node.operands() if values[var].kind == "float"]
        for dtype in self._types:
            if dtype == WITHOUT_ZERO or not floats or all(types[out].dtype == dtype for out in node.outs):
                continue
            if all(self._algebra.holds(value, dtype) for value in floats):
                for value in results:
                    self._algebra.hold(value, dtype)

    def _rounded(
        self,
        key: object,
        results: Sequence[NormalValue],
        dtypes: Sequence[str],
        operands: _Operands = (),
        once: bool = True,
    ) -> tuple[NormalValue, ...]:
        rounded = list(results)
        found: list[Rounding] = []
        free: list[tuple[int, str]] = []
        for index, (value, dtype) in enumerate(zip(results, dtypes, strict=True)):
            if dtype not in WIDER_AND_OTHERS or value.kind != "float":
                continue
            wide = self._algebra.only_wider(value, *WIDER_AND_OTHERS[dtype])
            if (wide is None and not self._is_free(value, dtype)) or _is_multiple(value, dtype, operands):
                continue
            if wide is None:
                free.append((index, dtype))
                continue
            coarse = unknown_cast(self._algebra, value, dtype)
            known = self._algebra.specifies(coarse, dtype)
            if known:
                rounded[index] = self._own(coarse)
            found.append(Rounding(index, wide, known, doubted=known and not once))
        if found:
            self._found[key] = tuple(found)
        if free:
            self._free[key] = tuple(free)
        return tuple(rounded)

    def _is_free(self, value: NormalValue, dtype: str) -> bool:
        """Whether the specification has some of these numbers in no type so narrow, and they rest on floats."""
        _, others = WIDER_AND_OTHERS[dtype]
        return not self._algebra.has_digits(value, others) and self._algebra.most_counted(value, 0) is None


def _is_multiple(value: NormalValue, dtype: str, operands: _Operands) -> bool:
    """Whether a value has the numbers of an operand of the same type, multiplied exactly."""
    return any(dtype == other and same_digits(value, operand) for operand, other in operands)
