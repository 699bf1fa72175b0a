"""Both programs side by side: one row a tensor, with how it stands in the other program, for the relation explorer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from graphguard.checks.weaving import alike, woven
from graphguard.ir import Capture, Graph, Span, Var
from graphguard.ir.graph import COLLECTIVES, Node
from graphguard.refine.naming import names_of
from graphguard.refine.outcome import SPECIFICATION, Location
from graphguard.refine.proof import Proof
from graphguard.relations.layouts import layout, layout_of
from graphguard.relations.relation import held

State = Literal["proved", "broken", "off"]
Kind = Literal["input", "operator", "collective"]
FRAMES = 4


@dataclass(frozen=True, slots=True)
class Site:
    """An expression of the source: its span and those of the calls around it, innermost first, and the operators that it comes to.

    Layers that share their code share their sites.
    """

    kind: Kind
    operators: tuple[str, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one program computes in a row; ``text`` says what a rank's tensor is of the specification, empty where nothing is known."""

    site: int
    name: str
    shape: tuple[int, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor: what the specification computes, and what each class of ranks does.

    ``relation`` is how it is rebuilt from the ranks' tensors, ``layout`` the same in DTensor's words.
    """

    module: str
    phase: str
    state: State
    layout: str
    relation: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """The rows in order of execution; ``ranks`` are the classes of ranks that compute the same throughout, one column each."""

    sites: tuple[Site, ...]
    ranks: tuple[tuple[int, ...], ...]
    rows: tuple[Row, ...]


@dataclass(slots=True, eq=False)
class _Step:
    """Consecutive operators of one expression, or an input."""

    site: Site
    module: str
    phase: str
    outs: list[Var] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
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
    frames = graph.stack_of(node.stack) or graph.stack_of(node.forward)
    return tuple(frame.span for frame in frames[:FRAMES])


class _Drawing:
    """The rows of one picture as they are put together."""

    def __init__(self, capture: Capture, proof: Proof, spec: list[_Step], ranks: list[list[_Step]]) -> None:
        self.capture = capture
        self.proof = proof
        self.spec = spec
        self.ranks = ranks
        self.graphs = [capture.spec, *capture.ranks]
        self.sites: dict[Site, int] = {}
        self.related = {step: proof.relation(step.made) for step in spec}

    def drawn(self) -> Picture:
        rows: list[_Row] = [[step] for step in self.spec]
        for rank, steps in enumerate(self.ranks):
            rows = self._beside(rows, rank, steps)
        modules = {step.module for step in self.spec}
        drawn: list[tuple[Row, tuple[Cell | None, ...]]] = []
        module = ""
        for row in rows:
            first = next(step for step in row if step is not None)
            module = first.module if row[0] is not None or not modules or first.module in modules else module
            drawn.append(self._row(row, module, first.phase))
        classes = _classes([cells for _, cells in drawn], len(self.ranks))
        shown = tuple(
            Row(row.module, row.phase, row.state, row.layout, row.relation, (*row.cells, *(cells[c[0]] for c in classes)))
            for row, cells in drawn
        )
        return Picture(tuple(self.sites), classes, shown)

    def _beside(self, rows: list[_Row], rank: int, steps: list[_Step]) -> list[_Row]:
        """The rows with one more rank: by code that an earlier rank runs as well, by relation, by meaning."""
        code = alike(lambda row: {step.code for step in row[1:] if step is not None}, lambda step: step.code)
        meaning = alike(lambda row: [row[0].meaning] if row[0] is not None else [], lambda step: step.meaning)
        paired = woven(rows, steps, [code, self._in_relation(rank), meaning])
        return [[*(row or [None] * (rank + 1)), step] for row, step in paired]

    def _in_relation(self, rank: int):  # type: ignore[no-untyped-def]
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

    def _row(self, row: _Row, module: str, phase: str) -> tuple[Row, tuple[Cell | None, ...]]:
        """A row with the specification's cell, and the cells of all ranks."""
        spec, ranks = row[0], row[1:]
        cells = tuple(None if step is None else self._cell(rank + 1, step) for rank, step in enumerate(ranks))
        relation = self.related[spec] if spec is not None else None
        texts = {rank: cell.text for rank, cell in enumerate(cells) if cell is not None}
        if relation is not None:
            words, text = layout(relation), str(relation)
        else:
            words, text = layout_of(texts, self.capture.mesh), ""
        known = relation is not None or (spec is None and all(texts.values()))
        broken = not known and any(step is not None and step.frontier for step in row)
        state: State = "proved" if known else "broken" if broken else "off"
        mine = (None if spec is None else self._cell(0, spec),)
        return Row(module, phase, state, words, text, mine), cells

    def _cell(self, graph: int, step: _Step) -> Cell:
        where = self.graphs[graph]
        assert where is not None
        site = Site(step.site.kind, tuple(step.operators), step.site.spans)
        text = (self.proof.describe(graph - 1, step.made) or "") if graph else ""
        return Cell(
            self.sites.setdefault(site, len(self.sites)), _name(where, step.made), shown_shape(where, step.made), text
        )


def _name(graph: Graph, var: Var) -> str:
    """What the user calls a tensor: an input, an output, a label."""
    outputs = (name for name, out in graph.outputs.items() if out == var)
    return graph.inputs.get(var) or next(outputs, "") or graph.labels.get(var, "")


def _classes(rows: Iterable[tuple[Cell | None, ...]], count: int) -> tuple[tuple[int, ...], ...]:
    """Ranks that run the same code on the same shapes in every row, and are known or not in the same ones."""
    seen: dict[Hashable, list[int]] = defaultdict(list)
    rows = list(rows)
    for rank in range(count):
        column = tuple(
            None if cell is None else (cell.site, cell.shape, bool(cell.text)) for cell in (row[rank] for row in rows)
        )
        seen[column].append(rank)
    return tuple(tuple(ranks) for ranks in seen.values())
