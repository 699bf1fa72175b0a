"""Puts both programs side by side: one row a tensor, with how it stands in the other program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from graphguard.checks.explorer.outline import outline
from graphguard.checks.explorer.rows import Cell, Kind, Picture, Row, Site, State
from graphguard.checks.explorer.weaving import Way, alike, woven
from graphguard.ir import Capture, Graph, Span, Var
from graphguard.ir.graph import COLLECTIVES, Node
from graphguard.refine.found.naming import names_of
from graphguard.refine.outcome import SPECIFICATION, Location
from graphguard.refine.proving.proof import Proof
from graphguard.relations.layouts import layout, layout_of
from graphguard.relations.relation import held

FRAMES = 4


@dataclass(slots=True, eq=False)
class _Step:
    """Consecutive operators of one expression, or an input."""

    site: Site
    module: str
    phase: str
    outs: list[Var] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    reads: set[Var] = field(default_factory=set)
    frontier: bool = False
    position: int = -1

    @property
    def made(self) -> Var:
        """What the expression comes to."""
        return self.outs[-1]

    @property
    def meaning(self) -> Hashable:
        """What both programs have in common where nothing is in relation."""
        return self.module, self.phase, self.operators[-1] if self.operators else "input"

    @property
    def code(self) -> Hashable:
        """What ranks that run the same code have in common."""
        return self.module, self.phase, self.site.spans, tuple(self.operators)


_Row = list[_Step | None]


def picture(capture: Capture, proof: Proof) -> Picture:
    """The specification and every rank; what the prelude makes is drawn as inputs."""
    frontier = {*proof.outcome.specification_frontier, *proof.outcome.implementation_frontier}
    spec = [] if capture.spec is None else _steps(SPECIFICATION, capture.spec, frontier)
    ranks = [_steps(rank, graph, frontier) for rank, graph in enumerate(capture.ranks)]
    return _Drawing(capture, proof, spec, ranks).drawn()


def shown_shape(graph: Graph, var: Var) -> tuple[int, ...]:
    """A tensor's shape; -1 for a size that only the data decides."""
    return tuple(size if isinstance(size, int) else -1 for size in graph.types[var].shape)


def _steps(number: int, graph: Graph, frontier: set[Location]) -> list[_Step]:
    """The expressions of a graph in order of execution; an input comes before the one that first uses it."""
    steps: list[_Step] = []
    known: set[Var] = set()
    for index, node in enumerate(graph.nodes):
        if node.phase == "prelude" or not node.outs:
            continue
        spans = _spans(graph, node)
        goes_on = bool(steps) and _continues(steps[-1], node, spans)
        for operand in dict.fromkeys(node.operands()):
            if operand not in known:
                steps.insert(len(steps) - goes_on, _input(operand, node))
                known.add(operand)
        if not goes_on:
            kind: Kind = "collective" if node.op in COLLECTIVES else "operator"
            steps.append(_Step(Site(kind, (), spans), node.module, node.phase))
        steps[-1].outs.extend(node.outs)
        steps[-1].operators.append(node.op)
        steps[-1].reads.update(node.reads)
        steps[-1].frontier |= Location(number, index) in frontier
        known.update(node.outs)
    for position, step in enumerate(steps):
        step.position = position
    return steps


def _input(var: Var, user: Node) -> _Step:
    return _Step(Site("input", (), ()), user.module, user.phase, [var])


def _continues(step: _Step, node: Node, spans: tuple[Span, ...]) -> bool:
    if node.op in COLLECTIVES or step.site.kind != "operator" or not spans:
        return False
    return (step.module, step.phase, step.site.spans) == (node.module, node.phase, spans)


def _spans(graph: Graph, node: Node) -> tuple[Span, ...]:
    stacks = (graph.stacks[stack] for stack in (node.stack, node.forward) if stack >= 0)
    frames = next(filter(None, stacks), ())
    return tuple(graph.frames[frame].span for frame in frames[:FRAMES])


class _Drawing:
    """The rows of one picture as they are put together."""

    def __init__(self, capture: Capture, proof: Proof, spec: list[_Step], ranks: list[list[_Step]]) -> None:
        self.capture = capture
        self.proof = proof
        self.spec = spec
        self.ranks = ranks
        self.graphs = [capture.spec, *capture.ranks]
        self.names = [{} if graph is None else _names(graph) for graph in self.graphs]
        self.sites: dict[Site, int] = {}
        self.related = {step: proof.relation(step.made) for step in spec}

    def drawn(self) -> Picture:
        rows: list[_Row] = [[step] for step in self.spec]
        for rank, steps in enumerate(self.ranks):
            rows = self._beside(rows, rank, steps)
        modules = {step.module for step in self.spec}
        drawn: list[Row] = []
        module = ""
        for row, reads in zip(rows, _reads(rows), strict=True):
            first = next(step for step in row if step is not None)
            module = first.module if row[0] is not None or not modules or first.module in modules else module
            drawn.append(replace(self._row(row, module, first.phase), reads=reads))
        return Picture(tuple(self.sites), _classes(drawn, len(self.ranks)), tuple(drawn), outline(drawn))

    def _beside(self, rows: list[_Row], rank: int, steps: list[_Step]) -> list[_Row]:
        """The rows with one more rank: by code that an earlier rank runs as well, by relation, by meaning."""
        code: Way[_Row, _Step] = alike(
            lambda row: {step.code for step in row[1:] if step is not None}, lambda step: step.code
        )
        meaning: Way[_Row, _Step] = alike(
            lambda row: [row[0].meaning] if row[0] is not None else [], lambda step: step.meaning
        )
        paired = woven(rows, steps, [code, self._in_relation(rank), meaning])
        return [[*(row or [None] * (rank + 1)), step] for row, step in paired]

    def _in_relation(self, rank: int) -> Way[_Row, _Step]:
        step_of = {out: step for step in self.ranks[rank] for out in step.outs}
        named = {name: var for var, name in names_of(self.capture.ranks[rank]).items()}

        def way(rows: Sequence[_Row], steps: Sequence[_Step]) -> Iterator[tuple[int, int]]:
            start, end = steps[0].position, steps[-1].position
            for position, row in enumerate(rows):
                relation = self.related.get(row[0]) if row[0] is not None else None
                parts = held(relation.expression) if relation is not None else ()
                mine = (step_of.get(named[part.name]) for part in parts if part.rank == rank and part.name in named)
                found = max((step.position for step in mine if step is not None), default=-1)
                if start <= found <= end:
                    yield position, found - start

        return way

    def _row(self, row: _Row, module: str, phase: str) -> Row:
        cells = tuple(None if step is None else self._cell(graph, step) for graph, step in enumerate(row))
        relation = self.related[row[0]] if row[0] is not None else None
        texts = {rank: cell.text for rank, cell in enumerate(cells[1:]) if cell is not None}
        words = layout_of(texts, self.capture.mesh) if relation is None else layout(relation)
        known = relation is not None or (row[0] is None and all(texts.values()))
        broken = not known and any(step is not None and step.frontier for step in row)
        state: State = "proved" if known else "broken" if broken else "off"
        return Row(module, phase, state, words, "" if relation is None else str(relation), cells)

    def _cell(self, graph: int, step: _Step) -> Cell:
        where = self.graphs[graph]
        assert where is not None
        site = Site(step.site.kind, tuple(step.operators), step.site.spans)
        number = self.sites.setdefault(site, len(self.sites))
        text = (self.proof.describe(graph - 1, step.made) or "") if graph else ""
        return Cell(number, self.names[graph].get(step.made, ""), shown_shape(where, step.made), text)


def _names(graph: Graph) -> dict[Var, str]:
    """What the user calls tensors: inputs before outputs before labels."""
    return {**graph.labels, **{out: name for name, out in reversed(graph.outputs.items())}, **graph.inputs}


def _reads(rows: Sequence[_Row]) -> list[tuple[int, ...]]:
    """For every row the rows that hold what its programs read, each in its own graph."""
    made = {
        (graph, out): position
        for position, row in enumerate(rows)
        for graph, step in enumerate(row)
        if step is not None
        for out in step.outs
    }
    found: list[tuple[int, ...]] = []
    for position, row in enumerate(rows):
        read = ((graph, var) for graph, step in enumerate(row) if step is not None for var in step.reads)
        found.append(tuple(sorted({made[each] for each in read if each in made} - {position})))
    return found


def _classes(rows: Sequence[Row], count: int) -> tuple[tuple[int, ...], ...]:
    """Ranks that run the same code on the same shapes in every row, and are known or not in the same ones."""
    seen: dict[Hashable, list[int]] = defaultdict(list)
    for rank in range(count):
        cells = (row.cells[rank + 1] for row in rows)
        column = tuple(None if cell is None else (cell.site, cell.shape, bool(cell.text)) for cell in cells)
        seen[column].append(rank)
    return tuple(tuple(ranks) for ranks in seen.values())
