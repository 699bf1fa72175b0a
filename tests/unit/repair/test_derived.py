"""Edits that follow from how programs differ: found, said in numbers, and proved anew from the beginning."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphguard.confirm.check import confirm
from graphguard.ir import Capture, CheckRef, Leaf, Placement, Promise, Span, TensorType
from graphguard.refine.proving.prove import prove
from graphguard.repair.graph.alignment import align
from graphguard.repair.graph.edits import OtherCalls, SetArgument
from graphguard.repair.graph.neighbours import Neighbours
from graphguard.repair.graph.slices import backward_slice
from graphguard.repair.shards.translated import translated
from graphguard.repair.text.frames import Sources
from graphguard.repair.trying.search import Search, search
from tests.graph_text import graph_from_text

CHECK = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))
WHOLE = {"tp": Placement("replicate")}


def program(inputs: str, body: str, output: str) -> str:
    """A graph in text: its inputs, its calls, its output."""
    names = [line.split(":")[0].removeprefix("%") for line in inputs.split("; ")]
    leaves = [f'input {line} = "{"xyz"[place]}"' for place, line in enumerate(inputs.split("; "))]
    assert names
    return "\n".join(
        [*leaves, *(f"{line.strip()} forward" for line in body.strip().splitlines()), f'output "out" = %{output}']
    )


def capture(
    inputs: str, spec: tuple[str, str], ranks: Sequence[tuple[str, str]], wanted: dict[str, Placement]
) -> Capture:
    graphs = [graph_from_text(program(inputs, *each)) for each in (spec, *ranks)]
    leaves = tuple(Leaf(name, "input", graphs[0].types[var]) for var, name in graphs[0].inputs.items())
    assert all(isinstance(leaf.type, TensorType) for leaf in leaves)
    return Capture(CHECK, {"tp": len(ranks)}, leaves, graphs[0], tuple(graphs[1:]), (Promise("out", wanted),))


def searched(broken: Capture) -> Search:
    said = confirm(broken)
    assert said.status == "differs"
    proof = prove(broken)
    return search(broken, proof, ("out",), said.ratios or {}, Sources.of(broken, lambda _: None))


COLUMNS = "%0: float64[3, 4]; %1: float64[4, 12]"
GATED = """%2: float64[3, 12] = aten.mm.default(%0, %1)
%3: float64[3, 4], %4: float64[3, 4], %5: float64[3, 4] = aten.split.Tensor(%2, 4, 1)
%6: float64[3, 4] = aten.tanh.default(%3)
%7: float64[3, 4] = aten.mul.Tensor(%6, %4)
%8: float64[3, 4] = aten.add.Tensor(%7, %5)"""
OWN_GATED = """%2: float64[4, 6] = aten.slice.Tensor(%1, 1, {start}, {stop})
%3: float64[3, 6] = aten.mm.default(%0, %2)
%4: float64[3, 2], %5: float64[3, 2], %6: float64[3, 2] = aten.split.Tensor(%3, 2, 1)
%7: float64[3, 2] = aten.tanh.default(%4)
%8: float64[3, 2] = aten.mul.Tensor(%7, %5)
%9: float64[3, 2] = aten.add.Tensor(%8, %6)"""

GATHERED = """%2: float64[2, 4], %3: float64[2, 4] = aten.split.Tensor(%0, 2)
%4: float64[2, 4], %5: float64[2, 4] = gg.all_gather(%{own}, [{first}, {second}])
%6: float64[4, 4] = aten.cat.default([%4, %5])
%7: float64[4, 4] = aten.mul.Tensor(%6, 2)"""

WINDOW = """%2: float64[{rows}, 3] = aten.slice.Tensor(%0, 0, {start}, {stop})
%3: float64[3] = aten.mean.dim(%2, [0])
%4: float64[3] = gg.all_reduce(%3, "sum", [0, 1])
%5: float64[3] = aten.div.Tensor(%4, 2)"""

PADDED = """%2: float64[3] = aten.slice.Tensor(%0, 0, {start}, {stop})
%3: float64[4] = aten.constant_pad_nd.default(%2, [0, 1], {number})
%4: float64[] = aten.sum.default(%3)
%5: float64[] = gg.all_reduce(%4, "sum", [0, 1])"""

SINK = """%2: float64[{rows}, 3] = aten.{part}
%3: float64[{rows}, 3] = aten.exp.default(%2)
%4: float64[{rows}, 1] = aten.sum.dim_IntList(%3, [-1], True)"""

TWO = (0, 1)
CASES = {
    "parts of a fused weight": (
        capture(
            COLUMNS,
            (GATED, "8"),
            [(OWN_GATED.format(start=6 * rank, stop=6 * rank + 6), "9") for rank in TWO],
            {"tp": Placement("shard", 1)},
        ),
        "wrong-shard",
        "rank 0 reads 0..5 of dim 1, needs 0..1, 4..5 and 8..9",
    ),
    "the part of another group": (
        capture(
            "%0: float64[4, 4]; %1: float64[4, 4]",
            ("%2: float64[4, 4] = aten.mul.Tensor(%0, 2)", "2"),
            [
                (GATHERED.format(own=2 + rank // 2, first=rank // 2 * 2, second=rank // 2 * 2 + 1), "7")
                for rank in range(4)
            ],
            WHOLE,
        ),
        "wrong-shard",
        "rank 1 reads rows 0..1, needs 2..3",
    ),
    "means of unequal parts": (
        capture(
            "%0: float64[6, 3]; %1: float64[3]",
            ("%2: float64[3] = aten.mean.dim(%0, [0])", "2"),
            [
                (WINDOW.format(rows=2, start=0, stop=2), "5"),
                (WINDOW.format(rows=4, start=2, stop=6), "5"),
            ],
            WHOLE,
        ),
        "wrong-scale",
        "means of unequal numbers of elements: 2 on rank 0, 4 on rank 1",
    ),
    "padding that counts": (
        capture(
            "%0: float64[6]; %1: float64[6]",
            ("%2: float64[] = aten.sum.default(%0)", "2"),
            [(PADDED.format(start=3 * rank, stop=3 * rank + 3, number=7.0), "5") for rank in TWO],
            WHOLE,
        ),
        "wrong-relation",
        "is filled up with 7, which counts in what is computed of it; 0 does not",
    ),
    "a term that no rank computes": (
        capture(
            "%0: float64[4, 3]; %1: float64[]",
            (
                SINK.format(rows=4, part="alias.default(%0)")
                + "\n%5: float64[] = aten.exp.default(%1)\n%6: float64[4, 1] = aten.add.Tensor(%4, %5)"
                + "\n%7: float64[4, 3] = aten.div.Tensor(%3, %6)",
                "7",
            ),
            [
                (
                    SINK.format(rows=2, part=f"slice.Tensor(%0, 0, {2 * rank}, {2 * rank + 2})")
                    + "\n%5: float64[2, 3] = aten.div.Tensor(%3, %4)",
                    "5",
                )
                for rank in TWO
            ],
            {"tp": Placement("shard", 0)},
        ),
        "wrong-relation",
        "lacks {chain}, which the specification adds to it",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_edit_is_found_and_holds(name: str) -> None:
    broken, rule, told = CASES[name]
    found = searched(broken)
    assert not found.left
    (repair,) = found.repairs
    guess = repair.hypothesis
    assert guess.rule == rule
    assert isinstance(guess.edit, OtherCalls)
    assert told in guess.edit.told
    assert prove(repair.capture).outcome.proved
    assert confirm(repair.capture).status == "equal"


def test_the_padding_row_is_that_of_each_part_of_the_table() -> None:
    looked_up = "%2: float64[{rows}, 3] = aten.embedding.default(%{table}, %1, {row})"
    own = "%3: float64[2, 3] = aten.slice.Tensor(%0, 0, {start}, {stop})\n%2: float64[5, 3] = aten.embedding.default(%3, %1, 1)"
    broken = capture(
        "%0: float64[4, 3]; %1: int64[5]",
        (looked_up.format(rows=5, table=0, row=3), "2"),
        [(own.format(start=2 * rank, stop=2 * rank + 2), "2") for rank in TWO],
        {"tp": Placement("shard", 0)},
    )
    alignment = align(broken)
    sites = backward_slice(broken, prove(broken), alignment, ("out",))
    ((rule, edit, _, _),) = translated(Neighbours.of(broken, sites))
    assert rule == "wrong-shard"
    assert isinstance(edit, SetArgument)
    assert edit.values == {0: -1, 1: 1}  # row 3 is the second one of the other rank's part
    assert edit.what == "row"


def test_parts_that_are_computed_otherwise_are_not_looked_for() -> None:
    """A rank that squares where the specification takes the sine reads the right rows: no other rows make up for it."""
    ranks = [f"%2: float64[2, 3] = aten.slice.Tensor(%0, 0, {2 * rank}, {2 * rank + 2})" for rank in TWO]
    square = "\n%3: float64[2, 3] = aten.mul.Tensor(%2, %2)"
    broken = capture(
        "%0: float64[4, 3]; %1: float64[3]",
        ("%2: float64[4, 3] = aten.sin.default(%0)", "2"),
        [(body + square, "3") for body in ranks],
        {"tp": Placement("shard", 0)},
    )
    assert not any(isinstance(repair.hypothesis.edit, OtherCalls) for repair in searched(broken).repairs)
