"""The first training step that goes wrong is what is explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphguard.diagnose.earlier import earlier
from graphguard.ir import Capture, CheckRef, Leaf, Placement, Promise, Span
from graphguard.refine.proving.prove import prove
from tests.graph_text import graph_from_text

CHECK = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))
LEAVES = 'input %0: float64[4, 6] = "x"\ninput %1: float64[6, 4] = "v"\ninput %2: float64[4, 4] = "w"\n'
STEPS = 3


def steps(missing: Sequence[int], *, parts: bool, first: int = 0) -> str:
    """Steps that change ``w`` by a product with it, of which ranks have a part of the columns; those that are ``missing`` add up nothing."""
    lines, new, w = [], 10, 2
    x, v = 0, 1
    if parts:
        lines += [f"%8: float64[4, 3] = aten.slice.Tensor(%0, 1, {first}, {first + 3}) prelude"]
        lines += [f"%9: float64[3, 4] = aten.slice.Tensor(%1, 0, {first}, {first + 3}) prelude"]
        x, v = 8, 9
    for step in range(STEPS):
        lines += [f"%{new}: float64[{3 if parts else 6}, 4] = aten.mm.default(%{v}, %{w}) forward"]
        lines += [f"%{new + 1}: float64[4, 4] = aten.mm.default(%{x}, %{new}) backward"]
        change = new + 1
        if parts and step not in missing:
            lines += [f'%{new + 2}: float64[4, 4] = gg.all_reduce(%{change}, "sum", [0, 1]) backward']
            change = new + 2
        lines += [f"%{new + 3}: float64[4, 4] = aten.sub.Tensor(%{w}, %{change}) step"]
        w, new = new + 3, new + 4
    return "\n".join((*lines, f'output "out" = %{w}'))


def captured(missing: Sequence[int]) -> Capture:
    ranks = (steps(missing, parts=True, first=3 * rank) for rank in range(2))
    graphs = [graph_from_text(LEAVES + text) for text in (steps((), parts=False), *ranks)]
    kinds = {"x": "input", "v": "input", "w": "parameter"}
    leaves = tuple(Leaf(name, kinds[name], graphs[0].types[var]) for var, name in graphs[0].inputs.items())  # type: ignore[arg-type]
    promises = (Promise("out", {"tp": Placement("replicate")}),)
    return Capture(CHECK, {"tp": 2}, leaves, graphs[0], tuple(graphs[1:]), promises)


def test_a_right_program_has_no_wrong_step() -> None:
    assert prove(captured(())).outcome.proved
    assert earlier(captured(()), ("out",)) is None


def test_what_ends_with_the_first_wrong_step() -> None:
    found = earlier(captured((0, 1, 2)), ("out",))
    assert found is not None
    assert [len(graph.nodes) for graph in (found.capture.spec, *found.capture.ranks) if graph] == [3, 5, 5]
    assert found.numbers.differing == ("out",)


def test_right_steps_before_it_stay() -> None:
    found = earlier(captured((1,)), ("out",))
    assert found is not None
    assert [len(graph.nodes) for graph in (found.capture.spec, *found.capture.ranks) if graph] == [6, 9, 9]
    assert not found.proof.outcome.proved


def test_the_last_step_is_explained_in_the_whole_program() -> None:
    assert earlier(captured((2,)), ("out",)) is None


def test_values_that_no_gradient_changes_are_no_parameters() -> None:
    """As activations are, which one layer hands on to the next."""
    whole = captured((0, 1, 2))
    assert whole.spec is not None
    spec, *ranks = (
        replace(
            graph,
            nodes=tuple(replace(node, phase="forward") if node.phase == "backward" else node for node in graph.nodes),
        )
        for graph in (whole.spec, *whole.ranks)
    )
    assert earlier(replace(whole, spec=spec, ranks=tuple(ranks)), ("out",)) is None
