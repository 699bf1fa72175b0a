"""Numbers beside proofs: what they refute of an edited program, and that they refute nothing that holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphguard.ir import Capture, CheckRef, Leaf, Placement, Promise, Span, Var
from graphguard.ir.capture import Like
from graphguard.refine.proving.prove import prove
from graphguard.repair.numbers.refuting import Refuter
from tests.graph_text import graph_from_text

CHECK = CheckRef("check.py::check", "check", Span("check.py", 1, 1, 1, 1))
LEAVES = 'input %0: float64[4, 6] = "x"\ninput %1: float64[6, 4] = "w"\n'

PRODUCT = """%2: float64[4, 4] = aten.mm.default(%0, %1) forward
output "out" = %2"""

PART = """%2: float64[4, 3] = aten.slice.Tensor(%0, 1, {start}, {stop}) forward
%3: float64[3, 4] = aten.slice.Tensor(%1, 0, {start}, {stop}) forward
%4: float64[4, 4] = aten.mm.default(%2, %3) forward
{reduced}
output "out" = %{out}"""

REDUCED = '%5: float64[4, 4] = gg.all_reduce(%4, "sum", [0, 1]) forward'
DOUBLED = "%5: float64[4, 4] = aten.mul.Tensor(%4, 2) forward"


def capture(spec: str, *ranks: str, wanted: object = "infer") -> Capture:
    graphs = [graph_from_text(LEAVES + text) for text in (spec, *ranks)]
    leaves = tuple(Leaf(name, "input", graphs[0].types[var]) for var, name in graphs[0].inputs.items())
    promises = (Promise("out", wanted),)  # type: ignore[arg-type]
    return Capture(CHECK, {"tp": len(ranks)}, leaves, graphs[0], tuple(graphs[1:]), promises)


def parts(reduced: str, wanted: object) -> Capture:
    texts = [PART.format(start=start, stop=start + 3, reduced=reduced, out=5 if reduced else 4) for start in (0, 3)]
    return capture(PRODUCT, *texts, wanted=wanted)


def possible(before: Capture, edited: Capture) -> list[str]:
    refuter = Refuter.of(before)
    assert refuter is not None
    return kept(refuter, edited, "out")


def kept(refuter: Refuter, edited: Capture, name: str) -> list[str]:
    changed = refuter.point.changed(edited)
    assert changed is not None
    return [] if refuter.refuted(changed, [name]) else [name]


@pytest.mark.parametrize("wanted", ["infer", {"tp": Placement("replicate")}])
def test_an_edit_is_refuted_unless_it_mends(wanted: object) -> None:
    broken = parts(DOUBLED, wanted)
    assert possible(broken, broken) == []
    assert possible(broken, parts(REDUCED, wanted)) == ["out"]


def test_where_any_relation_will_do_a_sum_over_the_ranks_is_one() -> None:
    assert possible(parts(DOUBLED, "infer"), parts("", "infer")) == ["out"]
    whole = {"tp": Placement("replicate")}
    assert possible(parts(DOUBLED, whole), parts("", whole)) == []
    assert possible(parts(DOUBLED, whole), parts("", {"tp": Placement("partial")})) == ["out"]


def test_parts_are_joined_as_they_are_promised() -> None:
    rows = """%2: float64[2, 6] = aten.slice.Tensor(%0, 0, {0}, {1}) forward
%3: float64[2, 4] = aten.mm.default(%2, %1) forward
output "out" = %3"""
    first, second = rows.format(0, 2), rows.format(2, 4)
    wanted = {"tp": Placement("shard", 0)}
    right, reverse = capture(PRODUCT, first, second, wanted=wanted), capture(PRODUCT, second, first, wanted=wanted)
    assert possible(reverse, reverse) == []
    assert possible(reverse, right) == ["out"]
    assert possible(right, reverse) == []


def test_a_part_of_an_output_is_laid_out_as_its_leaf() -> None:
    own = """%2: float64[2, 6] = aten.slice.Tensor(%0, 0, {0}, {1}) prelude
%3: float64[2, 6] = aten.mul.Tensor(%2, {2}) forward
label %2 = "x"
output "grad(x)" = %3"""
    spec = '%2: float64[4, 6] = aten.mul.Tensor(%0, 2) forward\noutput "grad(x)" = %2'

    def scaled(factor: int) -> Capture:
        made = capture(spec, own.format(0, 2, factor), own.format(2, 4, factor))
        return replace(made, promises=(Promise("grad(x)", Like("x")),))

    right, wrong = scaled(2), scaled(3)
    assert prove(right).outcome.proved
    refuter = Refuter.of(wrong)
    assert refuter is not None
    assert kept(refuter, wrong, "grad(x)") == []
    refuter = Refuter.of(right)
    assert refuter is not None
    assert kept(refuter, right, "grad(x)") == ["grad(x)"]


def test_copies_of_other_ranks_are_looked_at_where_the_first_is_right() -> None:
    whole = {"tp": Placement("replicate")}
    doubled = PRODUCT.replace("output", "%3: float64[4, 4] = aten.mul.Tensor(%2, 2) forward\noutput").replace(
        "= %2", "= %3"
    )
    right, second = (capture(PRODUCT, PRODUCT, each, wanted=whole) for each in (PRODUCT, doubled))
    assert possible(second, second) == []
    assert possible(second, right) == ["out"]


def test_promises_are_looked_at_while_enough_are_left() -> None:
    """What was not looked at is not said to be broken."""
    spec = """%2: float64[4, 4] = aten.mm.default(%0, %1) forward
%3: float64[4, 4] = aten.mul.Tensor(%2, 2) forward
output "a" = %2
output "b" = %3
output "c" = %3"""
    own = spec.replace("%2, 2)", "%2, 3)")
    promises = tuple(Promise(name, "infer") for name in "abc")
    wrong = replace(capture(spec, own, own), promises=promises)
    refuter = Refuter.of(wrong)
    assert refuter is not None
    changed = refuter.point.changed(wrong)
    assert changed is not None
    assert refuter.refuted(changed, ["a", "b", "c"]) == {"b", "c"}
    assert len(refuter.refuted(changed, ["a", "b", "c"], fewest=3)) == 1


def test_what_has_no_rule_is_a_function_of_what_it_reads() -> None:
    """Equal calls give equal numbers, whatever they compute; another operand gives others."""
    closed = """%2: float64[4, 4] = mine.secret.default(%{0}, 3) forward
output "out" = %2"""
    same = capture(closed.format(0), closed.format(0), closed.format(0))
    assert prove(same).outcome.proved
    other = capture(closed.format(0), closed.format(1), closed.format(1))
    assert possible(other, same) == ["out"]
    assert possible(same, other) == []


def test_what_rules_keep_closed_is_not_refuted() -> None:
    """A proof knows of a median that it is one for every line; numbers that are none say nothing."""
    spec = """%2: float64[4], %3: int64[4] = aten.median.dim(%0, 1) forward
output "out" = %2"""
    own = """%2: float64[2, 6] = aten.slice.Tensor(%0, 0, {0}, {1}) forward
%3: float64[2], %4: int64[2] = aten.median.dim(%2, 1) forward
output "out" = %3"""
    halves = capture(spec, own.format(0, 2), own.format(2, 4))
    assert prove(halves).outcome.proved
    assert possible(halves, halves) == ["out"]


def test_an_edit_whose_operands_do_not_fit_mends_nothing() -> None:
    broken = parts(DOUBLED, "infer")
    unfit = '%5: float64[4, 4] = aten.add.Tensor(%4, %3) forward\n%6: float64[4, 4] = gg.all_reduce(%5, "sum", [0, 1]) forward'
    texts = [PART.format(start=start, stop=start + 3, reduced=unfit, out=6) for start in (0, 3)]
    assert possible(broken, capture(PRODUCT, *texts)) == []


def test_ranks_hold_a_tensor_again_where_one_of_their_new_tensors_is_a_part_of_it() -> None:
    broken = parts(DOUBLED, {"tp": Placement("replicate")})
    refuter = Refuter.of(broken)
    assert refuter is not None
    for edited, regained in ((broken, False), (parts(REDUCED, {"tp": Placement("replicate")}), True)):
        changed = refuter.point.changed(edited)
        assert changed is not None
        assert refuter.may_hold(changed, [Var(2)]) is regained


def test_programs_that_are_large_are_not_run() -> None:
    """Their numbers would take more memory, and more time, than proofs of their edits."""
    wide = LEAVES.replace("[4, 6]", "[4096, 6]")
    body = "%{0}: float64[4096, 6] = aten.mul.Tensor(%{1}, 2) forward"
    calls = [body.format(place, 0 if place == 2 else place - 1) for place in range(2, 402)]
    text = "\n".join([*calls, 'output "out" = %401'])
    graphs = [graph_from_text(wide + text) for _ in range(2)]
    leaves = tuple(Leaf(name, "input", graphs[0].types[var]) for var, name in graphs[0].inputs.items())
    deep = Capture(CHECK, {"tp": 1}, leaves, graphs[0], (graphs[1],), (Promise("out", "infer"),))
    assert Refuter.of(deep) is None
