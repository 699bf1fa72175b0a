"""Interventions: which site is told, by which evidence, in which words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from graphguard.diagnose.localise.lines import Lines
from graphguard.diagnose.localise.mends import Mend
from graphguard.diagnose.localise.search import Search
from graphguard.diagnose.localise.telling import Telling
from graphguard.ir import Capture, CheckRef, Leaf, Placement, Promise, Span
from graphguard.refine.finding import Finding
from graphguard.refine.proving.prove import prove
from graphguard.repair.graph.alignment import align
from graphguard.repair.text.frames import Sources
from tests.graph_text import graph_from_text

CHECK = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))
LEAVES = 'input %0: float64[4, 8] = "x"\ninput %1: float64[8, 3] = "w"\ninput %2: float64[4, 3] = "b"\n'
WHOLE = {"tp": Placement("replicate")}

SPEC = """%3: float64[4, 3] = aten.mm.default(%0, %1) forward
%4: float64[4, 3] = aten.tanh.default(%3) forward
%5: float64[4, 3] = aten.add.Tensor(%4, %2) forward
output "out" = %5"""

SHARDS = """%3: float64[4, 4] = aten.slice.Tensor(%0, 1, {a}, {b}) prelude
%4: float64[4, 3] = aten.slice.Tensor(%1, 0, {c}, {d}) prelude
%5: float64[4, 3] = aten.mm.default(%3, %4) forward
"""
RIGHT = """%6: float64[4, 3] = gg.all_reduce(%5, "sum", [0, 1]) forward
%7: float64[4, 3] = aten.tanh.default(%6) forward
%8: float64[4, 3] = aten.add.Tensor(%7, %2) forward
output "out" = %8"""


def capture(body: str, rows: Sequence[int] = (0, 1), shards: str = SHARDS) -> Capture:
    """The product of columns and rows, summed; ``rows`` says which half of the second operand every rank has."""
    texts = [
        shards.format(a=4 * rank, b=4 * rank + 4, c=4 * part, d=4 * part + 4) + body for rank, part in enumerate(rows)
    ]
    graphs = [graph_from_text(LEAVES + text) for text in (SPEC, *texts)]
    kinds = {"x": "input", "w": "parameter", "b": "parameter"}
    leaves = tuple(Leaf(name, kinds[name], graphs[0].types[var]) for var, name in graphs[0].inputs.items())  # type: ignore[arg-type]
    promises = (Promise("out", WHOLE),)
    return Capture(CHECK, {"tp": 2}, leaves, graphs[0], tuple(graphs[1:]), promises)


def searched(broken: Capture, fuel: int = 30_000) -> Search:
    proof = prove(broken)
    assert not proof.outcome.proved
    search = Search.of(broken, proof, align(broken), ("out",), fuel)
    assert search is not None
    return search


def told(search: Search) -> tuple[Mend, Finding]:
    telling = Telling(Lines(search, Sources.of(search.numbers.capture, lambda _: None)))
    ((mend, finding),) = [(mend, telling.finding(mend)) for mend in search.culprits()]
    return mend, finding


def test_a_summand_that_is_used_as_if_it_were_whole() -> None:
    mend, finding = told(searched(capture(RIGHT.replace("tanh.default(%6)", "tanh.default(%5)"))))
    assert (mend.evidence, mend.site.node.op, finding.rule) == ("layout", "aten.mm.default", "missing-reduction")
    assert "is a partial sum over axis 'tp' and is used as if it were whole" in finding.headline


def test_a_collective_over_too_few_ranks_is_told_and_not_the_summand() -> None:
    mend, finding = told(searched(capture(RIGHT.replace('"sum"', '"max"'))))
    assert mend.blame is not None or mend.site.node.op == "gg.all_reduce"
    assert finding.rule in ("wrong-group", "wrong-relation")


def test_what_counts_twice_in_a_sum() -> None:
    body = """%6: float64[4, 3] = aten.add.Tensor(%5, %2) forward
%7: float64[4, 3] = gg.all_reduce(%6, "sum", [0, 1]) forward
output "out" = %7"""
    spec = graph_from_text(LEAVES + SPEC.replace("aten.tanh.default(%3)", "aten.mul.Tensor(%3, 1)"))
    mend, finding = told(searched(replace(capture(body), spec=spec)))
    assert (mend.evidence, mend.site.node.op, finding.rule) == ("operator", "aten.add.Tensor", "extra-reduction")
    assert "adds 'b', which every rank has whole" in finding.headline
    assert "counts 2 times" in finding.headline


def test_a_factor_is_told_with_its_size() -> None:
    body = RIGHT.replace("aten.tanh.default(%6)", "aten.tanh.default(%9)").replace(
        "%7:", "%9: float64[4, 3] = aten.mul.Tensor(%6, 3.0) forward\n%7:"
    )
    mend, finding = told(searched(capture(body)))
    assert (mend.site.node.op, finding.rule) == ("aten.mul.Tensor", "wrong-scale")
    assert "is 3 times what is needed" in finding.headline


def test_an_operator_is_told_whose_operands_are_right() -> None:
    mend, finding = told(searched(capture(RIGHT.replace("aten.tanh.default", "aten.sin.default"))))
    assert (mend.evidence, mend.site.node.op, finding.rule) == ("operator", "aten.sin.default", "wrong-relation")
    assert "it is computed from" in finding.headline


def test_other_rows_of_a_parameter_are_told_where_they_are_cut() -> None:
    mend, finding = told(searched(capture(RIGHT, rows=(1, 0), shards=SHARDS.replace("prelude", "forward"))))
    assert (mend.site.node.op, finding.rule) == ("aten.slice.Tensor", "wrong-shard")
    assert finding.headline.endswith("rank 0 has 4..7 of its dim 0, and needs 0..3")


def test_what_is_right_and_read_well_is_innocent() -> None:
    broken = capture(RIGHT.replace("aten.tanh.default", "aten.sin.default"))
    search = searched(broken)
    product = {rank: graph.nodes[2].outs[0] for rank, graph in enumerate(broken.ranks)}
    whole = {rank: graph.nodes[3].outs[0] for rank, graph in enumerate(broken.ranks)}
    assert search.is_innocent(product)
    assert not search.is_innocent(whole)  # its reader is wrong


@pytest.mark.parametrize("fuel", [0, 3])
def test_fuel_bounds_the_search(fuel: int) -> None:
    search = searched(capture(RIGHT.replace("aten.tanh.default", "aten.sin.default")), fuel)
    assert list(search.culprits()) == []


def test_a_right_program_has_no_search() -> None:
    right = capture(RIGHT)
    assert Search.of(right, prove(right), align(right), ("out",), 100) is None


def test_what_rests_on_elements_that_a_rank_does_not_have_cannot_be_meant_there() -> None:
    body = """%6: float64[4, 3] = aten.sin.default(%5) forward
%7: float64[4, 3] = aten.add.Tensor(%6, %2) forward
output "out" = %7"""
    mend, finding = told(searched(capture(body)))
    assert mend.lack is not None
    assert mend.lack.leaf in ("x", "w")
    assert f"elements of '{mend.lack.leaf}' that rank {mend.lack.rank} does not have" in finding.headline
    assert not finding.needed  # the headline has said it


def test_nothing_is_lacking_behind_a_collective() -> None:
    mend, finding = told(searched(capture(RIGHT.replace("aten.tanh.default", "aten.sin.default"))))
    assert mend.lack is None
    assert "does not have" not in finding.headline


def test_an_order_that_all_ranks_have_is_a_layout_and_so_are_its_shards() -> None:
    layouts = searched(capture(RIGHT.replace("aten.tanh.default", "aten.sin.default"))).layouts
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    layouts.learn(8, {0: order, 1: order})
    known = {
        tuple(tuple(selection.picks[rank].tolist()) for rank in (0, 1))
        for selection in layouts.selections(8)
        if not selection.plain
    }
    assert known == {(tuple(order.tolist()),) * 2, ((0, 4, 1, 5), (2, 6, 3, 7))}


def test_what_all_ranks_have_in_order_is_no_order_of_its_own() -> None:
    layouts = searched(capture(RIGHT.replace("aten.tanh.default", "aten.sin.default"))).layouts
    before = len(layouts.selections(8))
    layouts.learn(8, {0: np.array([0, 4]), 1: np.array([0, 4])})  # some positions are on no rank
    assert len(layouts.selections(8)) == before
