"""What the recorded programs return beside what a proof compares: constants, kinds of values, results that some ranks leave out, and those that nobody can compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from graphguard.ir.capture import Trouble, Wanted
from graphguard.ir.graph import Graph
from graphguard.ir.left import Left
from graphguard.trace.claims.placements import Mesh
from graphguard.trace.claims.program import Claims
from graphguard.trace.claims.results import NOTHING, Constant
from graphguard.trace.programs.job import Job

RULE: Final = "wrong-relation"
_SHOWN: Final = 12
_TEXT: Final = 60


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was recorded: its graph, what it claims, and what was noted of its gradients."""

    graph: Graph
    claims: Claims
    noted: Left

    def has(self, name: str) -> bool:
        """Whether the program returned something of that name; a None beside what others return is nothing."""
        told = self.claims.told
        return name in self.graph.outputs or name in told.opaque or told.constants.get(name, NOTHING) != NOTHING

    @property
    def untraced(self) -> tuple[str, ...]:
        """Numbers of which nothing says what they are made of."""
        return tuple(name for name in self.claims.results if name not in self.graph.outputs)

    def kind(self, name: str) -> str:
        """Of what kind a value is, in words."""
        return self.claims.told.kinds.get(name) or _tensor_of(self.graph.types[self.graph.outputs[name]].dtype)


def _tensor_of(dtype: str) -> str:
    return f"{'an' if dtype.startswith('int') else 'a'} {dtype} tensor"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The specification beside the ranks: what is ``wrong`` as it stands, ``cautions``, and what is ``not_compared``."""

    wrong: tuple[Trouble, ...]
    cautions: tuple[str, ...]
    not_compared: tuple[str, ...]


def compared(job: Job, spec: Program, ranks: Sequence[Program]) -> Comparison:
    """Everything that programs return and no proof will look at."""
    mesh = [Mesh.of_rank(job.mesh, rank) for rank in range(len(ranks))]
    wrong = [*_left_out(spec, ranks, mesh), *_unequal(spec, ranks), *_of_other_kinds(spec, ranks)]
    troubles = {name: (rank, message) for rank, name, message in reversed(wrong)}
    return Comparison(
        tuple(
            Trouble(RULE, message, ranks[rank].claims.returns or job.check.span, rank)
            for rank, message in reversed(troubles.values())
        ),
        () if troubles else tuple(_cautions(spec, ranks)),
        _shown(dict(_not_compared(spec, ranks))),
    )


def _left_out(spec: Program, ranks: Sequence[Program], mesh: Sequence[Mesh]) -> Iterator[tuple[int, str, str]]:
    """Ranks that leave out what was promised of every rank along an axis."""
    for name, axes in spec.claims.demanded.items():
        held = [rank for rank, one in enumerate(ranks) if one.has(name)]
        for rank in range(len(ranks)):
            if rank in held or not held:
                continue
            other = next((one for one in held if _is_beside(mesh[rank].coordinates, mesh[one].coordinates, axes)), None)
            if other is not None:
                nothing = "None for" if name in ranks[rank].claims.told.constants else "no"
                found = f"rank {rank} returns {nothing} '{name}', which rank {other} returns"
                yield (
                    rank,
                    name,
                    f"{found}\nneeded: '{name}' on every rank{_along(axes, mesh[rank])}, as out_relations says",
                )


def _is_beside(one: dict[str, int], other: dict[str, int], axes: Sequence[str]) -> bool:
    return all(at == other[axis] for axis, at in one.items() if axis not in axes)


def _along(axes: Sequence[str], mesh: Mesh) -> str:
    return "" if len(axes) == sum(size > 1 for size in mesh.sizes.values()) else f" along {', '.join(map(repr, axes))}"


def _unequal(spec: Program, ranks: Sequence[Program]) -> Iterator[tuple[int, str, str]]:
    """Constants that are not the specification's."""
    for name, wanted in spec.claims.told.constants.items():
        for rank, one in enumerate(ranks):
            found = one.claims.told.constants.get(name, NOTHING)
            if NOTHING in (wanted, found) or found.equals(wanted) or _is_divided(spec.claims.wanted.get(name)):
                continue
            yield rank, name, f"'{name}' is {_cut(wanted)} in the specification and {_cut(found)} on rank {rank}"
        if wanted != NOTHING and not wanted.is_number:
            for rank, one in enumerate(ranks):
                if name in one.graph.outputs:
                    text = f"'{name}' is {_cut(wanted)} in the specification and {one.kind(name)} on rank {rank}"
                    yield rank, name, text


def _is_divided(wanted: Wanted | None) -> bool:
    """Whether ranks were promised to hold parts of a number."""
    return isinstance(wanted, dict) and any(place.kind != "replicate" for place in wanted.values())


def _cut(constant: Constant) -> str:
    return constant.text if len(constant.text) <= _TEXT else f"{constant.text[:_TEXT]}..."


def _of_other_kinds(spec: Program, ranks: Sequence[Program]) -> Iterator[tuple[int, str, str]]:
    """Tensors of truths, whole numbers, floats or complex numbers where the specification has another of these."""
    for rank, name, wanted, found in _pairs(spec, ranks):
        numbers = name in spec.claims.told.kinds or name in ranks[rank].claims.told.kinds
        if not numbers and _family(wanted) != _family(found):
            yield rank, name, f"'{name}' is {wanted} in the specification and {found} on rank {rank}"


def _cautions(spec: Program, ranks: Sequence[Program]) -> Iterator[str]:
    """Values that are of another kind than the specification's and may still be equal, each told of the first rank."""
    told: set[str] = set()
    for rank, name, wanted, found in _pairs(spec, ranks):
        if wanted != found and name not in told:
            told.add(name)
            yield f"'{name}' is {wanted} in the specification and {found} on rank {rank}"


def _pairs(spec: Program, ranks: Sequence[Program]) -> Iterator[tuple[int, str, str, str]]:
    """The kind of every value in the specification, and on every rank that has it."""
    for name in spec.claims.results:
        for rank, one in enumerate(ranks):
            if name in spec.graph.outputs and name in one.graph.outputs:
                yield rank, name, spec.kind(name), one.kind(name)


def _family(kind: str) -> str:
    for family in ("bool", "complex", "float"):
        if family in kind:
            return family
    return "int"


def _not_compared(spec: Program, ranks: Sequence[Program]) -> Iterator[tuple[str, str]]:
    """Names of results that no proof looks at, and what is to be said of each."""
    for one in (spec, *ranks):
        for name, words in one.claims.told.opaque.items():
            yield name, words
        for name in one.untraced:
            yield name, "a number that is not traced back to tensors"
    for name, constant in spec.claims.told.constants.items():
        if constant != NOTHING and not constant.is_number and not any(one.has(name) for one in ranks):
            yield name, f"{_cut(constant)}, which no rank returns"
    for one in ranks:
        for name in (*one.claims.results, *one.claims.told.constants):
            if one.has(name) and not spec.has(name) and not name.startswith("grad("):
                nothing = name in spec.claims.told.constants
                yield (
                    name,
                    "which is None in the specification" if nothing else "which the specification does not return",
                )


def _shown(lines: dict[str, str]) -> tuple[str, ...]:
    texts = [f"{name}, {words}" for name, words in lines.items()]
    more = len(texts) - _SHOWN
    return (*texts[:_SHOWN], f"{more} more results") if more > 1 else tuple(texts)
