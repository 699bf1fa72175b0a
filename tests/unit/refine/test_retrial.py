"""A changed program is judged by what changed as it is judged anew."""

from collections.abc import Hashable
from dataclasses import replace

import pytest

from graphguard.ir import Capture, Node, Var
from graphguard.refine.proving.changes import reprove, retried
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import prove
from graphguard.repair.graph.alignment import align
from graphguard.repair.graph.editing import apply
from graphguard.repair.graph.edits import InsertReduction
from graphguard.repair.graph.slices import Site, backward_slice
from graphguard.repair.trying.hypotheses import hypotheses
from tests.unit.refine.stacks import ROWS, WIDTH, Program, instead, stack


def twice(p: Program, _: int) -> None:
    """A layer's sum is reduced once more."""
    total = p.call("gg.all_reduce", (ROWS, WIDTH), p.nodes[-1].outs[0], "sum", (0, 1))
    p.nodes.append(Node("gg.all_reduce", (total, "sum", (0, 1)), {}, (), phase="forward"))


SPOILED = {
    "reduced twice": twice,
    "not reduced": instead("aten.alias.default", None),
    "largest": instead("gg.all_reduce", None, "max", (0, 1)),
    "mean": instead("gg.all_reduce", None, "avg", (0, 1)),
}


def changed(capture: Capture, proof: Proof) -> list[Capture]:
    """Every program that a hypothesis about a broken one makes of it."""
    sites = backward_slice(capture, proof, align(capture), proof.outcome.failing)
    found = []
    guesses = hypotheses(
        proof,
        sites,
        {},
        proof.outcome.failing,
        lambda site: [site.number],
        lambda site: True,
        lambda site: None,
        lambda site: False,
    )
    for guess in guesses:
        try:
            edited = capture
            for edit in guess.edits:
                edited = apply(edit, edited)
        except (KeyError, IndexError):
            continue
        found.append(edited)
    return found


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("backward", [False, True])
def test_what_changed_is_judged_as_all_of_it_is(how: str, backward: bool) -> None:
    capture = stack(2, spoil={0: SPOILED[how]}, backward=backward)
    proof = prove(capture, effort="hasty")
    programs = changed(capture, proof)
    assert len(programs) > 10
    mended = 0
    for edited in programs:
        anew = reprove(proof, edited)
        again = retried(proof, edited)
        spoils = not anew.failing <= proof.failing
        assert (again is None) == spoils
        if again is not None:
            assert again.failing == anew.failing
            kept = {promise.name: promise.holds for promise in again.outcome.promises}
            assert kept == {promise.name: promise.holds for promise in anew.outcome.promises}
            for rank, graph in enumerate(edited.ranks):
                values = [(again.value(rank, var), anew.value(rank, var)) for var in graph.types]
                assert all(one is None if other is None else one.key() == other.key() for one, other in values)
        for name in proof.outcome.failing:
            wanted = retried(proof, edited, (name,))
            assert (wanted is None) == (spoils or name in anew.failing)
        mended += not anew.failing
    assert mended


def test_another_tensor_that_stayed_is_not_the_output_that_was() -> None:
    capture = stack(1)
    proof = prove(capture)
    assert retried(proof, capture) is not None
    first = next(iter(capture.ranks[0].inputs))
    ranks = tuple(replace(graph, outputs={**graph.outputs, "out": first}) for graph in capture.ranks)
    assert retried(proof, replace(capture, ranks=ranks)) is None


def test_a_reduction_that_is_missing_at_every_pass_through_a_line_is_one_guess() -> None:
    """The product of the second layer is off for the first one's sake: by itself it would be the least likely place."""
    missing = SPOILED["not reduced"]
    capture = stack(2, spoil={0: missing, 1: missing}, backward=False)
    proof = prove(capture, effort="hasty")
    sites = backward_slice(capture, proof, align(capture), proof.outcome.failing)

    def line(site: Site) -> list[Hashable]:
        weight = site.node.args[-1]
        return [(site.node.op, capture.ranks[0].labels.get(weight, "")[-1:] if isinstance(weight, Var) else "")]

    guesses = hypotheses(
        proof, sites, {}, proof.outcome.failing, line, lambda site: True, lambda site: None, lambda site: False
    )
    likeliest = [guess for guess in guesses if guess.cost == 0 and isinstance(guess.edit, InsertReduction)]
    assert max(len(guess.edits) for guess in likeliest) == 2
