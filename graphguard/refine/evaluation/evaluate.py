"""Graphs over the algebra of normal forms: the specification first, then all ranks in lockstep."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from graphguard.ir import Capture, Constant, Graph, Leaf, Node, Sym, TensorType, Var
from graphguard.ir.graph import COLLECTIVES, Arg
from graphguard.ir.joining import Joined, JoinedCall
from graphguard.ir.strict import STRICT
from graphguard.ops import COLLECTIVE, exchanged
from graphguard.refine.evaluation.hidden import Hidden
from graphguard.refine.evaluation.narrowing import Narrowing
from graphguard.refine.evaluation.shards import Shards
from graphguard.refine.outcome import OPERAND_UNKNOWN, SENDER_UNKNOWN, SPECIFICATION, Gap, Location
from graphguard.refine.ragged import MOVES, Ragged, Rows, has_symbols
from graphguard.refine.stages.coarse import adds_coarsely, coarse_types
from graphguard.refine.stages.constants import elements
from graphguard.relations.algebra import Unsupported
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Exhausted
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import Trait, combine, evaluate_node, kind_of
from graphguard.rules.basis.arithmetic import chosen, compared, plus
from graphguard.rules.basis.casting import DOUBLES, as_single

_FAILED = "the rule failed: {} {}"


class Values(dict[Var, NormalValue]):
    """The values of a program's variables; ``ragged`` holds those with as many rows as the data decides, in a program that has any.

    ``real`` says that none of its tensors is complex, ``mixed`` that it has some in float32 and some in doubles.
    """

    ragged: Ragged | None = None
    real = False
    mixed = False

    def sent(self, var: Var) -> NormalValue | Rows:
        """What a collective is given; raises ``KeyError`` for a variable without a value."""
        if var not in self and self.ragged is not None:
            return self.ragged.rows[var]
        return self[var]


class OneEach:
    """The one object for equal values, as long as this lives.

    It is no part of the evaluator, which holds those that ask it: without a cycle a proof is gone when nobody holds it, and not when the collector comes.
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], NormalValue] = {}
        self._all: set[NormalValue] = set()  # the same objects, found faster

    def __call__(self, value: NormalValue) -> NormalValue:
        """The one for values equal to this one: itself where it is the first."""
        if value in self._all:
            return value
        found = self._by_key.setdefault(value.key(), value)
        self._all.add(found)
        return found


_COMPLEX = ("complex64", "complex128", "complex32")


def all_real(dtypes: Iterable[str]) -> bool:
    """Whether none of these element types is complex."""
    return set(dtypes).isdisjoint(_COMPLEX)


def shape_of(kind: TensorType) -> tuple[int, ...]:
    """The concrete shape of a value of a type; complex numbers have a last dim of 2."""
    sizes = []
    for size in kind.shape:
        if isinstance(size, Sym):
            raise Unsupported(f"a size known only when the program runs: {size.expr}")
        sizes.append(size)
    return (*sizes, 2) if kind.dtype in _COMPLEX else tuple(sizes)


def leaf_values(algebra: NormalForm, leaves: tuple[Leaf, ...]) -> dict[str, NormalValue]:
    """The unknowns that both programs are functions of."""
    values = {}
    for leaf in leaves:
        if leaf.value is not None and leaf.value.data is not None:
            values[leaf.name] = algebra.literal(elements(leaf.value, single=True))
        elif leaf.ignored is not None:
            values[leaf.name] = _targets(algebra, leaf, leaf.ignored)
        else:
            values[leaf.name] = algebra.leaf(
                leaf.name, shape_of(leaf.type), kind_of(leaf.type.dtype), leaf.low, leaf.high
            )
        algebra.hold(values[leaf.name], leaf.type.dtype)
    return values


def _targets(algebra: NormalForm, leaf: Leaf, ignored: int) -> NormalValue:
    """Targets of which some are ignored: the number before the first class stands for a negative ``ignored``, for those between do not occur."""
    kind = kind_of(leaf.type.dtype)
    if ignored >= 0:
        return algebra.leaf(leaf.name, shape_of(leaf.type), kind, leaf.low, leaf.high)
    unknown = algebra.leaf(leaf.name, shape_of(leaf.type), kind, -1, leaf.high)
    return plus(algebra, unknown, chosen(algebra, compared(algebra, "eq", unknown, -1), ignored + 1, 0))


class Evaluator:
    """Evaluates nodes into one universe; equal calls on equal values are made once, whichever program makes them.

    Equal values are one object (``own``), so a call is known by its operands as objects: what a rank does with a replicated tensor is what the
    specification did, and is not done again.  With ``shown``, contractions of the specification but these are ``hidden``.
    """

    def __init__(
        self,
        algebra: NormalForm,
        capture: Capture,
        traits: Mapping[str, Trait],
        shown: Collection[int] | None = None,
    ) -> None:
        self.algebra = algebra
        self.capture = capture
        self.traits = traits
        self.gaps: dict[Location, Gap] = {}
        self._calls: dict[object, tuple[NormalValue, ...]] = {}
        self._reasons: dict[object, str] = {}
        self.own = OneEach()
        self.narrowing = Narrowing(algebra, self.own)
        self._unknown = 0
        declared = [op for op, trait in traits.items() if trait.form == "elementwise"]
        self._shards = Shards(algebra, self.own, declared)
        self.tentative = False
        self.hidden = None if shown is None else Hidden(algebra, self.own, self._shards, shown)

    def begin(self, capture: Capture, floats: frozenset[str]) -> None:
        """Evaluate calls of a capture from here on, whose tensors are of these float types."""
        self.capture = capture
        self.narrowing.begin(coarse_types(floats))

    def leaves(self, leaves: tuple[Leaf, ...]) -> dict[str, NormalValue]:
        """The unknowns that both programs are functions of."""
        return leaf_values(self.algebra, leaves)

    def start(self, graph: Graph, leaves: Mapping[str, NormalValue]) -> Values:
        """The values of a graph's inputs and literals."""
        values = Values({var: self.own(leaves[name]) for var, name in graph.inputs.items()})
        dtypes = {kind.dtype for kind in graph.types.values()}
        values.real = all_real(dtypes)
        values.mixed = "float32" in dtypes and not DOUBLES.isdisjoint(dtypes)
        if has_symbols(graph):
            values.ragged = Ragged(self.algebra, graph, self.traits, MOVES)
        for var, constant in graph.constants.items():
            values[var] = self.constant(constant)
        return values

    def constant(self, constant: Constant) -> NormalValue:
        """The value of a literal tensor; an unknown of its own where only its digest is known."""
        key = ("constant", constant.type, constant.digest)
        found = self._calls.get(key)
        if found is None:
            try:
                found = (self.algebra.literal(elements(constant, single=True)),)
            except Unsupported:
                kind = constant.type
                found = (self.algebra.leaf(f"literal:{constant.digest}", shape_of(kind), kind_of(kind.dtype)),)
            found = self._calls[key] = (self.own(found[0]),)
        return found[0]

    def node(self, where: Location, node: Node, graph: Graph, values: Values) -> None:
        """Evaluate one call that is no collective."""
        ragged = values.ragged
        if node.op == "gg.assume":  # its operand may be a size, which is no value
            values[node.outs[0]] = self.own(self.algebra.full((), Fraction(1), "bool"))
            return
        if ragged is None or not ragged.concerns(node):
            self._call(where, node, graph, values)
            return
        try:
            if ragged.call(node, values):
                self.narrowing.note(where, node, None, graph, values)
            else:
                self._call(where, node, graph, values)
                ragged.shadows(node, values)
        except Unsupported as error:
            self._give_up(where, node, graph, values, str(error))
        except Exhausted:
            raise
        except Exception as error:  # noqa: BLE001  as of a rule
            self._failed(where, node, graph, values, error)

    def _failed(self, where: Location, node: Node, graph: Graph, values: Values, error: Exception) -> None:
        """Give up a call whose rule has a defect; where tests run, raise it."""
        if STRICT and not self.tentative:
            raise error
        self._give_up(where, node, graph, values, _FAILED.format(type(error).__name__, error))

    def _call(self, where: Location, node: Node, graph: Graph, values: Values) -> None:
        """Evaluate one call on tensors of known sizes."""
        try:
            key = _key_of(node, graph.types, values)
        except KeyError:
            self._give_up(where, node, graph, values, OPERAND_UNKNOWN)
            return
        results = self._calls.get(key)
        if results is None:
            notes: list[str] = []
            specifying = self.algebra.universe.specifying
            try:
                results = None if specifying else self._shards.results(node, graph.types, values)
                if not results:
                    given = self._as_doubles(node, graph.types, values) if values.mixed else values
                    results = evaluate_node(
                        self.algebra, node, graph, given, notes.append, self.traits, real=values.real
                    )
            except Unsupported as error:
                self._give_up(where, node, graph, values, str(error))
                return
            except Exhausted:
                raise
            except Exception as error:  # noqa: BLE001  a defect of a rule costs this operator, not the verdict
                self._failed(where, node, graph, values, error)
                return
            results = tuple([self.own(self.algebra.written_down(value)) for value in results])
            if self.hidden is not None:
                results = self._hidden(node, graph.types, results)
            if notes:
                self._reasons[key] = notes[0]
            elif specifying:
                self._shards.learn(node, graph.types, values, results)
            if self.narrowing.active:
                results = self.narrowing.results(key, node, graph.types, values, results)
            self._calls[key] = results
        if self._reasons and key in self._reasons:
            self.gaps[where] = Gap(where, node.op, self._reasons[key])
        if len(results) == 1 == len(node.outs):
            values[node.outs[0]] = results[0]
        else:
            values.update(zip(node.outs, results, strict=True))
        if self.narrowing.active:
            self.narrowing.note(where, node, key, graph, values)

    def made(self, node: Node, graph: Graph, values: Mapping[Var, NormalValue]) -> tuple[NormalValue, ...]:
        """The results of a call on tensors of one float type, known where either program made it before; raises ``Unsupported``."""
        key = _key_of(node, graph.types, values)
        found = self._calls.get(key)
        if found is None:
            results = evaluate_node(self.algebra, node, graph, values, None, self.traits)
            found = self._calls[key] = tuple([self.own(self.algebra.written_down(value)) for value in results])
        return found

    def _as_doubles(
        self, node: Node, types: Mapping[Var, TensorType], values: Mapping[Var, NormalValue]
    ) -> Mapping[Var, NormalValue]:
        """The operands as a call takes them that computes in doubles: those in float32 with what that has rounded away."""
        operands = set(node.operands())
        singles = [var for var in operands if types[var].dtype == "float32"]
        if not singles or all(types[var].dtype not in DOUBLES for var in (*operands, *node.outs)):
            return values
        return {var: values[var] for var in operands} | {var: as_single(self.algebra, values[var]) for var in singles}

    def _hidden(
        self, node: Node, types: Mapping[Var, TensorType], results: tuple[NormalValue, ...]
    ) -> tuple[NormalValue, ...]:
        """Results as they are gone on with where contractions are unknowns of their own."""
        assert self.hidden is not None
        if self.algebra.universe.specifying:
            return self.hidden.of_specification(node, types, results)
        return tuple(map(self.hidden.of_rank, results))

    def _give_up(self, where: Location, node: Node, graph: Graph, values: Values, reason: str) -> None:
        """Results of which nothing is known: unknowns that equal nothing else."""
        self.gaps[where] = Gap(where, node.op, reason)
        for out in node.outs:
            try:
                shape, kind = shape_of(graph.types[out]), kind_of(graph.types[out].dtype)
            except Unsupported:
                continue
            self._unknown += 1
            values[out] = self.own(self.algebra.random(("unknown", self._unknown), node.op, (), shape, kind))

    def again(self, capture: Capture, *, tentative: bool = False) -> Evaluator:
        """An evaluator of a capture that shares leaves and specification with this one's: what was evaluated stays evaluated.

        A ``tentative`` capture is one that somebody tries: its calls need not fit their operands.
        """
        other = copy.copy(self)
        other.tentative = tentative
        other.capture = capture
        other.gaps = {where: gap for where, gap in self.gaps.items() if where.graph == SPECIFICATION}
        other.narrowing = self.narrowing.again()
        return other

    def _combined(self, how: str, dtype: str, given: list[NormalValue | Rows]) -> NormalValue:
        """A reduction over members, made once for the same values."""
        values = [value for value in given if not isinstance(value, Rows)]
        if len(values) != len(given):
            raise Unsupported("a reduction of as many rows as the data decides")
        key = ("combine", how, dtype, *values)
        found = self._calls.get(key)
        if found is None:
            combined = self.algebra.written_down(combine(self.algebra, how, values, dtype))
            found = self._calls[key] = (self.own(combined),)
        return found[0]

    # -- whole programs

    def specification(
        self, graph: Graph, leaves: Mapping[str, NormalValue], stale: Callable[[], bool] = lambda: False
    ) -> Values:
        """All values of the specification; those so far, once ``stale`` says that the leaves should have been others."""
        values = self.start(graph, leaves)
        for index, node in enumerate(graph.nodes):
            self.node(Location(SPECIFICATION, index), node, graph, values)
            if stale():
                break
        return values

    def ranks(
        self, joined: Joined, leaves: Mapping[str, NormalValue], wanted: Callable[[Node], bool] | None = None
    ) -> list[Values]:
        """All values of all ranks, collectives met; only nodes that are ``wanted``."""
        graphs = self.capture.ranks
        values = [self.start(graph, leaves) for graph in graphs]
        for step in joined.order:
            if isinstance(step, JoinedCall):
                first = next(iter(step.nodes.items()))
                if wanted is None or wanted(graphs[first[0]].nodes[first[1]]):
                    self.collective(step, values)
                continue
            rank, index = step
            node = graphs[rank].nodes[index]
            if node.op not in COLLECTIVES and (wanted is None or wanted(node)):
                self.node(Location(rank, index), node, graphs[rank], values[rank])
        return values

    def collective(self, call: JoinedCall, values: list[Values]) -> None:
        """Evaluate one collective for all its members."""
        graphs = self.capture.ranks
        try:
            results = self._exchange(call, values)
        except (Unsupported, LookupError, TypeError, ValueError, AssertionError) as error:
            for rank, index in call.nodes.items():
                reason = str(error) if isinstance(error, Unsupported) else SENDER_UNKNOWN
                self._give_up(Location(rank, index), graphs[rank].nodes[index], graphs[rank], values[rank], reason)
            return
        if self.hidden is not None:
            hidden = self.hidden.of_rank
            results = {
                rank: [value if isinstance(value, Rows) else hidden(self.own(value)) for value in received]
                for rank, received in results.items()
            }
        keys: dict[int, object] = {}
        for rank, index in call.nodes.items():
            where = Location(rank, index)
            received, keys[rank] = self._totals(where, results[rank], len(call.group))
            for out, value in zip(graphs[rank].nodes[index].outs, received, strict=True):
                self._receive(where, out, value, values[rank])
        self.narrowing.exchanged(call, graphs, values, keys)

    def _totals(
        self, where: Location, results: list[NormalValue | Rows], members: int
    ) -> tuple[Sequence[NormalValue | Rows], object]:
        """What a member receives, rounded as what a rank computes is, and the key by which that is known."""
        node = self.capture.ranks[where.graph].nodes[where.node]
        dtype = self._dtype(where.graph, node)
        if not adds_coarsely(node, dtype) or any(isinstance(value, Rows) for value in results):
            return results, None
        values = [value for value in results if not isinstance(value, Rows)]
        key = ("total", dtype, members, *values)
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = self.narrowing.total(key, values, dtype, members)
        return found, key

    def _receive(self, where: Location, out: Var, value: NormalValue | Rows, values: Values) -> None:
        if values.ragged is None:
            assert isinstance(value, NormalValue)
            values[out] = value
            return
        try:
            values.ragged.received(out, value, values)
        except Unsupported as error:
            graph = values.ragged.graph
            self._give_up(where, graph.nodes[where.node], graph, values, str(error))

    def _dtype(self, rank: int, node: Node) -> str:
        """The element type of what a collective gives a rank; empty where it gives nothing."""
        return self.capture.ranks[rank].types[node.outs[0]].dtype if node.outs else ""

    def _exchange(self, call: JoinedCall, values: list[Values]) -> dict[int, list[NormalValue | Rows]]:
        """What every member receives."""
        members = call.group
        nodes = [self.capture.ranks[rank].nodes[call.nodes[rank]] for rank in members]
        first, collective = nodes[0], COLLECTIVE[call.kind]

        def given(member: int, position: int) -> NormalValue | Rows:
            return values[members[member]].sent(nodes[member].reads[position])

        def reduced(member: int, found: list[NormalValue | Rows]) -> NormalValue | Rows:
            how = str(collective.argument("reduce", first.args))
            return self._combined(how, self._dtype(members[member], nodes[member]), found)

        root = collective.root(first.args, members)
        return dict(zip(members, exchanged(call.kind, len(members), root, given, reduced), strict=True))


def _key_of(node: Node, types: Mapping[Var, TensorType], values: Mapping[Var, NormalValue]) -> object:
    """A call as what decides its results, the same for equal calls; raises ``KeyError`` for an operand without a value."""
    row: list[object] = [node.op, node.draw, len(node.args)]
    for arg in node.args:
        kind = arg.__class__
        if kind is Var:
            row += (values[arg], types[arg].dtype)  # type: ignore[index]
        elif kind is tuple:
            row.append(_argument(arg, types, values))
        else:
            row += (kind, arg)
    for name, arg in node.kwargs.items():
        row += (name, _argument(arg, types, values))
    for out in node.outs:
        made = types[out]
        row += (made.shape, made.dtype)
    if "empty" in node.op:  # every uninitialised tensor is an unknown of its own
        row.append(object())
    return tuple(row)


def _argument(arg: Arg, types: Mapping[Var, TensorType], values: Mapping[Var, NormalValue]) -> object:
    if arg.__class__ is Var:
        return (values[arg], types[arg].dtype)  # the value by identity, and kept alive by the key
    if isinstance(arg, tuple):
        for item in arg:
            if item.__class__ is not int:
                return tuple([_argument(item, types, values) for item in arg])
        return arg
    return (arg.__class__, arg)


def _var(arg: Arg) -> Var:
    assert isinstance(arg, Var)
    return arg


def _items(arg: Arg) -> tuple[Arg, ...]:
    assert isinstance(arg, tuple)
    return arg


def _whole(arg: Arg) -> int:
    assert isinstance(arg, int)
    return arg
