"""What the tracing worker hands to the prover: one check on one mesh, as data.

The specification's graph and every rank's graph are functions of the same *leaves*.  How a rank's inputs and parameters come
from the specification's is part of its graph (nodes of phase ``prelude``), so a declared relation, an inferred one
and a traced loader look the same to everything downstream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Literal, TypeAlias

from graphguard.ir.graph import Constant, Graph, TensorType
from graphguard.ir.spans import Frame, Span


@dataclass(frozen=True, slots=True)
class Leaf:
    """An unknown that the proof ranges over.

    ``low`` and ``high`` bound an integer leaf (half-open); ``ignored`` is the one number of a target's range that is no class.  ``value`` fixes it.  ``kind`` is ``partial`` for the
    stacked summands of an input that the ranks hold as partial values: the specification's input is their sum over dim 0.
    """

    name: str
    kind: Literal["input", "parameter", "buffer", "partial", "cotangent"]
    type: TensorType
    low: int | None = None
    high: int | None = None
    value: Constant | None = None
    ignored: int | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """One tensor's layout over one mesh axis, in DTensor's terms; ``dim`` only for shards, ``reduce`` only for partials."""

    kind: Literal["shard", "replicate", "partial"]
    dim: int = 0
    reduce: str = "sum"


@dataclass(frozen=True, slots=True)
class Like:
    """The layout of a leaf: what the rank's prelude does to the leaf must turn the specification's value into the rank's."""

    leaf: str


Wanted: TypeAlias = Literal["infer"] | dict[str, Placement] | Like


@dataclass(frozen=True, slots=True)
class Promise:
    """An output of the specification that the ranks must rebuild, and the relation in which they must do it.

    Placements stand in the order in which the axes cut the tensor.
    The same name stands in ``outputs`` of the specification's graph and of those ranks' graphs that have it.
    """

    name: str
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class CheckRef:
    """A check as declared in a file; ``id`` is ``path::name`` relative to the project, ``span`` its function's name."""

    id: str
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Mending:
    """A way to write the program that may mend a trouble: what it does, and the texts that take the places of others."""

    title: str
    edits: tuple[tuple[Span, str], ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a program, or a part of it, was not captured: a rule of the registry, a message, and where; ``mendings`` were not tried yet."""

    rule: str
    message: str
    span: Span | None
    rank: int | None = None
    stack: tuple[Frame, ...] = ()
    related: tuple[tuple[Span, str], ...] = ()
    mendings: tuple[Mending, ...] = ()


@dataclass(frozen=True, slots=True)
class Capture:
    """One check on one mesh: leaves, the specification's graph, one graph per rank, and what was promised.

    ``mesh`` maps axes to sizes in order, the last varies fastest over ranks.  ``sources`` maps each project file that
    was imported to the digest of its meaning (comments and formatting left out).  Where ``troubles`` is not empty, ``spec`` may be None and
    ``ranks`` may be short.  ``traits`` say what operators without a rule do, in the form of ``rules.parse_traits``.  ``assumed`` lists what any verdict rests on, ``not_compared``
    what programs return or leave behind and nothing is said of; ``cautions`` what may not be meant.  ``seconds`` are wall-clock.
    ``doubts``: what is well defined and yet unusual, and likely to be why a program is broken, if it is; ``unshared``: lines that ask for what differs between the processes of a job, which may or may not matter.
    ``same``: the specification is the ranks' program on one rank, so that what both run may be wrong.  ``made`` is where a rank's parameters were made, and their modules.
    """

    check: CheckRef
    mesh: dict[str, int]
    leaves: tuple[Leaf, ...]
    spec: Graph | None
    ranks: tuple[Graph, ...]
    promises: tuple[Promise, ...]
    troubles: tuple[Trouble, ...] = ()
    assumed: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    traits: dict[str, str] = field(default_factory=dict)
    doubts: tuple[Trouble, ...] = ()
    unshared: tuple[Trouble, ...] = ()
    same: bool = False
    made: dict[str, tuple[Frame, ...]] = field(default_factory=dict)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Both programs: the specification, where there is one, then every rank."""
        return self.ranks if self.spec is None else (self.spec, *self.ranks)

    @property
    def calls(self) -> int:
        """How many calls both programs have."""
        return sum(len(graph.nodes) for graph in self.graphs)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return prod(self.mesh.values())

    def coordinates(self, rank: int) -> dict[str, int]:
        """Position of a rank along every mesh axis."""
        position: dict[str, int] = {}
        for axis in reversed(self.mesh):
            rank, position[axis] = divmod(rank, self.mesh[axis])
        return {axis: position[axis] for axis in self.mesh}
