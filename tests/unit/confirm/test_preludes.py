"""The part of a prelude that makes one tensor: as large as that, and its value is what the whole prelude makes."""

import pytest
import torch

from graphguard.confirm.run.elements import UnrunnableError
from graphguard.confirm.run.preludes import Preludes
from graphguard.confirm.run.replay import run_ranks
from graphguard.ir import Capture, CheckRef, Span
from graphguard.ir.building import Builder

CHECK = CheckRef("c.py::c", "c", Span("c.py", 1))


def rank(number: int, collective: bool = False):
    """Halves of two leaves; the second one is spread by a collective."""
    b = Builder(phase="prelude")
    for name in ("a", "b"):
        leaf = b.input(name, (4,))
        half = b.call("aten.slice.Tensor", leaf, 0, 2 * number, 2 * number + 2, out=((2,), "float32"))
        if collective and name == "b":
            half = b.call("gg.all_reduce", half, "sum", (0, 1), out=((2,), "float32"))
        b.labels[half] = name
    b.phase = "forward"
    b.outputs["out"] = b.call("aten.neg.default", half, out=((2,), "float32"))
    return b.graph()


def capture(collective: bool = False) -> Capture:
    return Capture(CHECK, {"tp": 2}, (), None, (rank(0, collective), rank(1, collective)), ())


LEAVES = {"a": torch.arange(4.0).double(), "b": torch.arange(10.0, 14.0).double()}


def made(preludes: Preludes, tensor: str, ranks=(0, 1)):
    joined, parts = preludes.making(tensor, ranks)
    values = run_ranks(joined, parts, LEAVES)
    return parts, [values[rank][parts[rank].outputs[tensor]].tolist() for rank in ranks]


def test_a_part_is_as_large_as_what_it_makes():
    parts, values = made(Preludes(capture()), "a")
    assert values == [[0.0, 1.0], [2.0, 3.0]]
    for part in parts:
        assert (len(part.nodes), list(part.inputs.values()), len(part.types)) == (1, ["a"], 2)


def test_a_rank_that_does_not_hold_it_makes_nothing():
    parts, values = made(Preludes(capture()), "b", (1,))
    assert values == [[12.0, 13.0]]
    assert (parts[0].nodes, parts[0].inputs) == ((), {})


def test_what_a_collective_gives_depends_on_all_of_the_prelude():
    parts, values = made(Preludes(capture(collective=True)), "b")
    assert values == [[22.0, 24.0], [22.0, 24.0]]
    assert [len(part.nodes) for part in parts] == [3, 3]
    assert [len(part.nodes) for part in made(Preludes(capture(collective=True)), "a")[0]] == [1, 1]


def test_a_part_is_cut_out_once():
    preludes = Preludes(capture())
    assert preludes.making("a", (0, 1)) is preludes.making("a", [1, 0])


def test_what_no_rank_holds_is_told():
    with pytest.raises(UnrunnableError, match="a rank does not hold 'c'"):
        Preludes(capture()).making("c", (0, 1))
