"""All ranks at once against rank by rank: the same outcomes, the same values, and no proof of a program with a mistake."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from benchmarks.trust.fuzz import closed
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.ir import Capture, Graph, Leaf, Node, capture_from_json
from graphguard.ir.fuel import Fuel
from graphguard.ir.joining import join
from graphguard.refine.digits.programs import Quotient, quotients
from graphguard.refine.outcome import Outcome
from graphguard.refine.proving.at_once import by_digits, by_programs, evaluated
from graphguard.refine.proving.ground import grounded
from graphguard.refine.proving.prove import prove
from graphguard.relations.algebra import Unsupported
from graphguard.relations.terms.denotation import Denotation
from graphguard.rules import parse_traits
from tests.unit.refine.digit_mutants import mutants

HERE: Final = Path(__file__).parent
NONE: Final = 10**9
MESHES: Final = {
    "mlp": {"tp": 8},
    "sequence": {"tp": 8},
    "layer": {"tp": 4},
    "data_parallel": {"dp": 8},
    "two_axes": {"dp": 4, "tp": 4},
    "experts": {"ep": 4},
    "fsdp": {"fsdp": 4},
    "columns_by_position": {"cp": 4},
    "exchanged": {"ep": 4},
    "stages": {"pp": 2, "dp": 4},
    "pipeline": {"pp": 2, "dp": 2, "tp": 2},
    "nested": {"dp": 2, "tp": 2},
    "complex_rotations": {"tp": 4},
    "vocabulary": {"dp": 2, "tp": 3},
    "words": {"tp": 4},
    "rolled": {"dp": 4, "tp": 2},
    "mixed_precision": {"tp": 4},
}
NARROWED: Final = {"narrowed": {"tp": 4}}
#: Every so many-th mutant, that the tests of a program end in a few seconds.
STEPS: Final = {"layer": 82, "two_axes": 5, "sequence": 2, "experts": 2, "words": 4, "vocabulary": 4, "pipeline": 4}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerClient]:
    client = WorkerClient(Configuration(HERE, timeout=300.0), lambda _: None)
    yield client
    client.close()


class Captures(dict[str, Capture]):
    """The captures of the programs, each made when a test asks for it."""

    def __init__(self, worker: WorkerClient) -> None:
        self._worker = worker

    def __missing__(self, name: str) -> Capture:
        mesh = (MESHES | NARROWED)[name]
        params = {"file": str(HERE / "digit_checks.py"), "name": name, "mesh": mesh, "root": str(HERE)}
        answer = self._worker.call(
            "capture", {**params, "overlay": {}, "cache": False, "timeout": 300.0, "ranks": None}
        )
        found = self[name] = capture_from_json(answer["capture"])
        assert found.troubles == ()
        return found


@pytest.fixture(scope="module")
def captures(worker: WorkerClient) -> Captures:
    return Captures(worker)


def at_once(capture: Capture) -> Outcome | str:
    return by_digits(capture, parse_traits(capture.traits), Fuel("a proof by digits", 1e7), 0.0)


@pytest.mark.parametrize("name", MESHES)
def test_what_is_proved_is_told_as_rank_by_rank(captures: dict[str, Capture], name: str) -> None:
    capture = captures[name]
    proof, ordinary = prove(capture, digits_above=3), prove(capture, digits_above=NONE)
    assert proof.known is None  # no rank was evaluated for itself
    assert proof.outcome.proved
    assert ordinary.outcome.proved
    assert replace(proof.outcome, fuel=0.0) == replace(ordinary.outcome, fuel=0.0)
    assert proof.relations() == ordinary.relations()


@pytest.mark.parametrize("name", MESHES)
def test_stacked_values_are_those_of_every_rank(captures: dict[str, Capture], name: str) -> None:
    capture = captures[name]
    for found in quotients(capture):
        compared = compared_with_every_rank(capture, found)
        assert compared >= sum(len(graph.nodes) for graph in capture.ranks) // 3


def compared_with_every_rank(capture: Capture, found: Quotient) -> int:
    """How many tensors of ranks were compared."""
    ground = grounded(capture, parse_traits(capture.traits), {}, 1, Fuel("a test", 1e8))
    _, runs, _ = evaluated(capture, found, ground)
    own = ground.evaluator.again(capture).ranks(join(capture.ranks), ground.leaves)
    numbers = np.random.default_rng(0)
    leaves = {leaf.name: drawn(leaf, numbers) for leaf in capture.leaves}
    tables = {kernel.id: table for kernel, table in ground.algebra.universe.tables}
    denotation = Denotation(leaves, closed, tables)
    compared = 0
    for run in runs:
        program = run.program
        for var in [out for node in program.graph.nodes for out in node.outs]:
            try:
                whole = denotation.value(run.get(var).value)
            except (KeyError, Unsupported):  # not followed, or made of a function of which a test has no numbers
                continue
            places = itertools.product(*map(range, found.sizes))
            for place, rank in zip(places, program.ranks, strict=True):
                np.testing.assert_allclose(whole[place], denotation.value(own[rank][var]), rtol=1e-9, atol=1e-12)
                compared += 1
    return compared


def drawn(leaf: Leaf, numbers: np.random.Generator) -> np.ndarray:
    shape = tuple(size for size in leaf.type.shape if isinstance(size, int))
    return numbers.random(shape) if leaf.low is None else numbers.integers(leaf.low, leaf.high, shape)


@pytest.mark.parametrize("name", MESHES)
def test_of_mutants_no_more_is_proved_than_rank_by_rank(captures: dict[str, Capture], name: str) -> None:
    every = list(mutants(captures[name]))[:: STEPS.get(name, 1)]
    proved = [(what, mutant) for what, mutant in every if isinstance(at_once(mutant), Outcome)]
    assert len(every) > 10
    assert [what for what, mutant in proved if not prove(mutant, digits_above=NONE).outcome.proved] == []


def spoilt(capture: Capture, ranks: list[int], op: str, change: Callable[[Node], Node | None]) -> Capture:
    """A capture with the last call of an operator changed, or left out, on some ranks."""

    def spoil(graph: Graph) -> Graph:
        index = max(at for at, node in enumerate(graph.nodes) if node.op == op)
        new = change(graph.nodes[index])
        kept = () if new is None else (new,)
        return replace(graph, nodes=(*graph.nodes[:index], *kept, *graph.nodes[index + 1 :]))

    changed = [spoil(graph) if rank in ranks else graph for rank, graph in enumerate(capture.ranks)]
    return replace(capture, ranks=tuple(changed))


def with_argument(at: int, value: object) -> Callable[[Node], Node]:
    return lambda node: replace(node, args=(*node.args[:at], value, *node.args[at + 1 :]))  # type: ignore[arg-type]


def later(node: Node) -> Node:
    start, stop = node.args[2:4]
    assert isinstance(start, int)
    assert isinstance(stop, int)
    return replace(node, args=(*node.args[:2], start - 1, stop - 1, *node.args[4:]))


def avoided(node: Node) -> None:
    return None


MISTAKES: Final = {
    "another number on rank 5": ("data_parallel", [5], "aten.div.Tensor", with_argument(1, 7)),
    "another number on all ranks": ("data_parallel", range(8), "aten.div.Tensor", with_argument(1, 7)),
    "the sum for a mean": ("data_parallel", range(8), "aten.div.Tensor", with_argument(1, 1)),
    "the last rank's shard begins too early": ("mlp", [7], "aten.slice.Tensor", later),
    "all shards but the first begin too early": ("mlp", range(1, 8), "aten.slice.Tensor", later),
    "one rank does not take part": ("mlp", [3], "gg.all_reduce", avoided),
    "one rank adds up what others take the largest of": ("mlp", [3], "gg.all_reduce", with_argument(1, "max")),
    "all take the largest": ("mlp", range(8), "gg.all_reduce", with_argument(1, "max")),
    "a group without the last": ("mlp", range(7), "gg.all_reduce", with_argument(2, tuple(range(7)))),
    "an axis for another": ("two_axes", range(16), "gg.all_reduce", with_argument(2, tuple(range(16)))),
    "one stage sends what it received": (
        "stages",
        range(4),
        "aten.silu.default",
        lambda node: replace(node, op="aten.neg.default"),
    ),
    "half of the shards of one axis": ("fsdp", [2, 3], "gg.reduce_scatter", with_argument(1, "avg")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_not_proved(captures: dict[str, Capture], mistake: str) -> None:
    name, ranks, op, change = MISTAKES[mistake]
    wrong = spoilt(captures[name], list(ranks), op, change)
    assert isinstance(at_once(wrong), str)
    assert not prove(wrong, effort="hasty", digits_above=3).outcome.proved


def test_a_program_on_one_rank_alone_is_no_program_of_all(captures: dict[str, Capture]) -> None:
    capture = captures["mlp"]
    odd = spoilt(capture, [5], "aten.silu.default", lambda node: replace(node, op="aten.gelu.default"))
    with pytest.raises(Unsupported, match="a program of its own"):
        next(quotients(odd))


def test_the_order_in_which_axes_cut_counts(captures: dict[str, Capture]) -> None:
    capture = captures["nested"]
    (promise,) = capture.promises
    assert isinstance(promise.wanted, dict)
    turned = replace(promise, wanted=dict(reversed(list(promise.wanted.items()))))
    assert isinstance(at_once(replace(capture, promises=(turned,))), str)
    assert not prove(replace(capture, promises=(turned,)), digits_above=NONE).outcome.proved


def test_axes_with_programs_of_their_own_stay(captures: dict[str, Capture]) -> None:
    found = next(quotients(captures["stages"]))
    assert (found.digits, found.others, len(found.programs)) == ((1,), (0,), 2)
    assert [program.ranks for program in found.programs] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_an_axis_that_cannot_be_followed_is_no_digit(captures: dict[str, Capture]) -> None:
    capture = captures["rolled"]
    traits, fuel = parse_traits(capture.traits), Fuel("a proof by digits", 1e7)
    every, of_the_batch, _ = quotients(capture)
    assert (every.digits, of_the_batch.digits) == ((0, 1), (0,))
    with pytest.raises(Unsupported):
        by_programs(capture, every, traits, fuel, 0.0)
    assert by_programs(capture, of_the_batch, traits, fuel, 0.0).proved


@pytest.mark.parametrize("name", ["vocabulary", "words"])
def test_bounds_that_move_with_the_rank_are_followed(captures: dict[str, Capture], name: str) -> None:
    capture = captures[name]
    every = next(quotients(capture))
    assert [program.ranks for program in every.programs] == [tuple(range(len(capture.ranks)))]
    traits, fuel = parse_traits(capture.traits), Fuel("a proof by digits", 1e7)
    assert by_programs(capture, every, traits, fuel, 0.0).proved


@pytest.mark.parametrize(
    ("op", "draw"),
    [("aten.empty.memory_format", None), ("gg.rounded", None), ("gg.assume", None), ("aten.rand.default", ("cpu", 1))],
)
def test_what_is_not_one_value_of_all_ranks_is_not_followed(
    captures: dict[str, Capture], op: str, draw: tuple[str, int] | None
) -> None:
    """Memory that nobody wrote to is another on every rank, and so are draws of other numbers."""
    capture = captures["data_parallel"]

    def change(graph: Graph, rank: int) -> Graph:
        node = replace(graph.nodes[-1], op=op, draw=None if draw is None else (draw[0], draw[1] + rank))
        if op.startswith("aten"):
            node = replace(node, args=((3,),))
        return replace(graph, nodes=(*graph.nodes[:-1], node))

    assert isinstance(at_once(replace(capture, ranks=tuple(change(g, r) for r, g in enumerate(capture.ranks)))), str)


def test_arithmetic_in_a_narrower_type_than_the_specification_is_not_proved(captures: dict[str, Capture]) -> None:
    capture = captures["narrowed"]
    assert "narrower" in str(at_once(capture))
    assert not prove(capture, digits_above=NONE).outcome.proved


def test_doubles_beside_other_floats_are_left_to_the_ordinary_proof(captures: dict[str, Capture]) -> None:
    capture = captures["mlp"]

    def widened(graph: Graph) -> Graph:
        first = next(iter(graph.nodes[-1].outs))
        return replace(graph, types={**graph.types, first: replace(graph.types[first], dtype="float64")})

    assert at_once(replace(capture, ranks=tuple(map(widened, capture.ranks)))) == "doubles beside other floats"
