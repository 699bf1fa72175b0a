"""What must become equal becomes equal, and what differs does not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.trust.fuzz import Program, Result, fuzz, report
from graphguard.ir.fuel import Fuel
from graphguard.relations.algebra import Unsupported
from graphguard.relations.functions.piecewise import equal
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.relations.terms.kernels import Exhausted, Universe
from graphguard.relations.terms.ranges import from_parts
from graphguard.relations.terms.values import NormalValue


@pytest.fixture
def a() -> NormalForm:
    return NormalForm()


def same(a: NormalForm, x: NormalValue, y: NormalValue) -> bool:
    return equal(a.universe, x, y)


def linear(a: NormalForm, x: NormalValue, w: NormalValue) -> NormalValue:
    return a.contract([(x, "bi"), (w, "oi")], "bo")


def total(a: NormalForm, values: list[NormalValue]) -> NormalValue:
    return a.add(values)


def minus(a: NormalForm, x: NormalValue, y: NormalValue) -> NormalValue:
    return a.add([x, a.scale(y, Fraction(-1))])


def softmax(a: NormalForm, x: NormalValue) -> NormalValue:
    dim = len(x.shape) - 1
    e = a.exp(x)
    z = a.expand(a.reshape(a.sum(e, [dim]), (*x.shape[:-1], 1)), x.shape)
    return a.multiply(e, a.power(z, Fraction(-1)))


def squared_often(a: NormalForm, x: NormalValue) -> None:
    for index in range(1000):
        x = a.add([a.contract([(x, "ij"), (x, "jk")], "ik"), a.full(x.shape, Fraction(index), "float")])


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("summed", [(0, 1, 2), (0, 1), (1, 2), (0, 2)])
def test_a_sum_over_a_window_of_a_reshaped_dim_is_over_that_window(
    a: NormalForm, dim: int, summed: tuple[int, ...]
) -> None:
    elements = np.arange(1.0, 61.0) ** 2
    cube = a.reshape(a.leaf("x", (60,), "float"), (3, 4, 5))
    denotation = Denotation({"x": elements})
    for low in range(cube.shape[dim]):
        for high in range(low + 1, cube.shape[dim] + 1):
            found = denotation.value(a.sum(a.slice(cube, dim, low, high), summed))
            window = tuple(slice(low, high) if d == dim else slice(None) for d in range(3))
            assert np.array_equal(found, elements.reshape(3, 4, 5)[window].sum(summed))


@pytest.mark.parametrize("splits", [(4, 4), (2, 6), (1, 3, 4), (1,) * 8])
def test_a_row_parallel_product_is_the_sum_of_its_parts(a: NormalForm, splits: tuple[int, ...]) -> None:
    x, w = a.leaf("x", (3, 8), "float"), a.leaf("w", (5, 8), "float")
    whole = linear(a, x, w)
    a.universe.specifying = False
    parts, at = [], 0
    for size in splits:
        parts.append(linear(a, a.slice(x, 1, at, at + size), a.slice(w, 1, at, at + size)))
        at += size
    assert same(a, whole, total(a, parts))
    assert same(a, whole, total(a, parts[::-1]))
    assert not same(a, whole, total(a, parts[:-1]))
    assert not same(a, whole, total(a, [*parts, parts[0]]))


def test_a_shard_of_a_result_is_the_result_of_a_shard(a: NormalForm) -> None:
    x, w = a.leaf("x", (3, 8), "float"), a.leaf("w", (6, 8), "float")
    whole = a.apply("gelu", (), [linear(a, x, w)], "float")
    a.universe.specifying = False
    shards = [a.apply("gelu", (), [linear(a, x, a.slice(w, 0, at, at + 3))], "float") for at in (0, 3)]
    assert same(a, whole, a.concat(shards, 1))
    assert not same(a, whole, a.concat(shards[::-1], 1))


def test_a_function_of_a_partial_sum_is_not_a_partial_function(a: NormalForm) -> None:
    x, w = a.leaf("x", (3, 8), "float"), a.leaf("w", (6, 8), "float")
    whole = a.apply("gelu", (), [linear(a, x, w)], "float")
    parts = [
        a.apply("gelu", (), [linear(a, a.slice(x, 1, i, i + 4), a.slice(w, 1, i, i + 4))], "float") for i in (0, 4)
    ]
    assert not same(a, whole, total(a, parts))


def test_sums_of_slices_are_sums(a: NormalForm) -> None:
    x = a.leaf("x", (4, 3), "float")
    slices = [a.reshape(a.slice(x, 0, i, i + 1), (3,)) for i in (2, 0, 3, 1)]
    assert same(a, a.sum(x, [0]), total(a, slices))
    halves = [a.sum(a.slice(x, 0, i, i + 2), [0]) for i in (0, 2)]
    assert same(a, a.sum(x, [0]), total(a, [halves[0], slices[0], slices[2]]))
    assert not same(a, a.sum(x, [0]), total(a, [halves[0], slices[0], slices[0]]))


def test_offsets_inside_factors_lift_too(a: NormalForm) -> None:
    p, x = a.leaf("p", (4, 3), "float"), a.leaf("x", (4, 3), "float")
    products = a.multiply(p, x)
    by_hand = [
        a.multiply(a.reshape(a.slice(p, 0, i, i + 1), (3,)), a.reshape(a.slice(x, 0, i, i + 1), (3,))) for i in range(4)
    ]
    assert same(a, a.sum(products, [0]), total(a, by_hand))


def test_any_number_of_sums_of_slices_are_sums(a: NormalForm) -> None:
    x = a.leaf("x", (4, 3), "float")
    weights = [a.leaf(f"w{number}", (4, 3), "float") for number in range(9)]
    whole = total(a, [a.sum(a.multiply(x, weight), [0]) for weight in weights])

    def one(at: int) -> NormalValue:
        rows = [a.multiply(a.slice(x, 0, at, at + 1), a.slice(weight, 0, at, at + 1)) for weight in weights]
        return a.reshape(total(a, rows), (3,))

    added = one(0)
    for at in (1, 2, 3):  # as a loop over micro-batches adds them
        added = total(a, [added, one(at)])
    assert same(a, whole, added)
    assert len(added.pieces[0][1]) == len(weights)
    assert not same(a, whole, total(a, [one(0), one(1), one(2), one(2)]))


def test_one_head_a_rank_meets_the_specification(a: NormalForm) -> None:
    x, q, k = a.leaf("x", (5, 8), "float"), a.leaf("q", (4, 2, 8), "float"), a.leaf("k", (2, 2, 8), "float")

    def scores(q: NormalValue, k: NormalValue, repeat: int) -> NormalValue:
        heads = a.contract([(x, "si"), (q, "hdi")], "hsd")
        keys = a.contract([(x, "si"), (k, "hdi")], "hsd")
        shape = keys.shape
        wide = a.expand(a.reshape(keys, (shape[0], 1, *shape[1:])), (shape[0], repeat, *shape[1:]))
        return softmax(a, a.contract([(heads, "hsd"), (a.reshape(wide, heads.shape), "htd")], "hst"))

    whole = scores(q, k, 2)
    a.universe.specifying = False
    for head in range(4):
        mine = scores(a.slice(q, 0, head, head + 1), a.slice(k, 0, head // 2, head // 2 + 1), 1)
        assert same(a, a.slice(whole, 0, head, head + 1), mine)
        wrong = scores(a.slice(q, 0, head, head + 1), a.slice(k, 0, 1 - head // 2, 2 - head // 2), 1)
        assert not same(a, a.slice(whole, 0, head, head + 1), wrong)


def test_online_softmax_over_causal_blocks(a: NormalForm) -> None:
    s, v = a.leaf("s", (6, 6), "float"), a.leaf("v", (6, 2), "float")

    def masked(block: NormalValue, row: int, column: int) -> NormalValue:
        rows, columns = block.shape
        i = a.add(
            [a.expand(a.reshape(a.iota(rows), (rows, 1)), block.shape), a.full(block.shape, Fraction(row), "int")]
        )
        j = a.add(
            [
                a.expand(a.reshape(a.iota(columns), (1, columns)), block.shape),
                a.full(block.shape, Fraction(column), "int"),
            ]
        )
        return a.where(a.compare("lt", i, j), a.full(block.shape, float("-inf"), "float"), block)

    whole = a.contract([(softmax(a, masked(s, 0, 0)), "ij"), (v, "jd")], "id")
    a.universe.specifying = False
    rows = a.slice(s, 0, 3, 6)
    sums, outs = [], []
    for start in (3, 0):
        e = a.exp(masked(a.slice(rows, 1, start, start + 3), 3, start))
        sums.append(a.sum(e, [1]))
        outs.append(a.contract([(e, "ij"), (a.slice(v, 0, start, start + 3), "jd")], "id"))
    scale = a.expand(a.reshape(a.power(total(a, sums), Fraction(-1)), (3, 1)), (3, 2))
    assert same(a, a.slice(whole, 0, 3, 6), a.multiply(total(a, outs), scale))


@pytest.mark.parametrize(("shift", "holds"), [(0, True), (1, False)])
def test_masked_look_up_of_a_vocabulary_shard(a: NormalForm, shift: int, holds: bool) -> None:
    ids, table = a.leaf("ids", (5,), "int"), a.leaf("table", (8, 3), "float")
    whole = a.lookup(table, ids)
    a.universe.specifying = False
    parts = []
    for low in (0, 4):
        start = a.full((5,), Fraction(low + shift if low else 0), "int")
        outside = a.logical_or(
            a.compare("lt", ids, start), a.compare("le", a.full((5,), Fraction(low + 4), "int"), ids)
        )
        index = a.where(outside, a.full((5,), Fraction(0), "int"), a.add([ids, a.full((5,), Fraction(-low), "int")]))
        found = a.lookup(a.slice(table, 0, low, low + 4), index)
        mask = a.expand(a.reshape(outside, (5, 1)), (5, 3))
        parts.append(a.where(mask, a.full((5, 3), Fraction(0), "float"), found))
    assert same(a, whole, total(a, parts)) is holds


def test_a_look_up_without_a_mask_must_stay_in_the_table(a: NormalForm) -> None:
    ids, table = a.leaf("ids", (5,), "int"), a.leaf("table", (8, 3), "float")
    a.lookup(table, ids)
    a.universe.specifying = False
    with pytest.raises(Unsupported, match="outside the table"):
        a.lookup(a.slice(table, 0, 0, 4), ids)


def test_a_declared_range_is_never_narrowed(a: NormalForm) -> None:
    ids, table = a.leaf("ids", (5,), "int", -100, 8), a.leaf("table", (8, 3), "float")
    with pytest.raises(Unsupported, match="declared range"):
        a.lookup(table, ids)


def test_factors_are_exact(a: NormalForm) -> None:
    x = a.leaf("x", (3,), "float")
    third = a.scale(x, Fraction(1, 3))
    assert same(a, total(a, [third, third, third]), x)
    assert not same(a, total(a, [third, third]), x)
    root = a.power(a.full((3,), Fraction(8), "float"), Fraction(1, 2))
    assert same(a, a.multiply(root, root), a.full((3,), Fraction(8), "float"))


def test_different_draws_differ_and_the_same_draw_is_the_same(a: NormalForm) -> None:
    one = a.random(("seed 0", 1), "dropout", (0.5,), (3,), "float")
    assert same(a, one, a.random(("seed 0", 1), "dropout", (0.5,), (3,), "float"))
    assert not same(a, one, a.random(("seed 0", 2), "dropout", (0.5,), (3,), "float"))
    assert not same(a, one, a.random(("seed 0", 1), "dropout", (0.1,), (3,), "float"))


def test_a_large_mask_costs_nothing(a: NormalForm) -> None:
    size = 1 << 20
    i = a.expand(a.reshape(a.iota(size), (size, 1)), (size, size))
    j = a.expand(a.reshape(a.iota(size), (1, size)), (size, size))
    assert len(a.compare("le", j, i).pieces) == 1


def test_literals_are_read_by_their_elements(a: NormalForm) -> None:
    table = np.arange(12.0).reshape(3, 4) * 3 + 1
    assert np.array_equal(Denotation({}).value(a.literal(table)), table)
    triangle = np.where(np.tri(4, 5, 1, dtype=bool), 0.0, -np.inf)
    assert np.array_equal(Denotation({}).value(a.literal(triangle)), np.where(np.tri(4, 5, 1) > 0, 0.0, -np.inf))
    noise = np.random.default_rng(0).normal(size=(40, 6))
    whole = a.literal(noise)
    assert same(a, a.slice(whole, 0, 10, 20), a.literal(noise[10:20]))
    assert not same(a, a.slice(whole, 0, 10, 20), a.literal(noise[11:21]))


def test_work_is_limited() -> None:
    a = NormalForm(Universe(fuel=Fuel("nothing", 0)))
    x = a.leaf("x", (4, 4), "float")
    with pytest.raises(Exhausted):
        squared_often(a, x)


def test_what_rests_on_an_overflow_is_not_compared() -> None:
    """The sum of four exponentials of 709 is none of floats, and what is divided by it is zero there alone."""
    result = Result()
    Program(41_075_916, result).run()
    assert result.wrong == []
    assert result.nodes > 5


@pytest.mark.parametrize("seed", [88_538, 5_020_714, 31_104_846, 41_170_051])
def test_random_programs_on_which_the_engine_failed(seed: int) -> None:
    result = Result()
    Program(seed, result).run()
    assert result.nodes
    assert not result.wrong


def test_random_programs_denote_their_numbers() -> None:
    result = fuzz(3000, seed=700_000, seconds=20)
    assert not result.wrong, report(result)
    assert result.nodes > 500


def test_what_is_left_of_a_zero_by_rounding_is_no_difference() -> None:
    result = Result()
    Program(140_030_515, result).run()
    assert not result.wrong


def test_random_programs_find_a_wrong_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    right = NormalForm.sum
    monkeypatch.setattr(
        NormalForm, "sum", lambda self, v, dims: self.scale(right(self, v, dims), 1 + Fraction(1, 10**5))
    )
    assert len(fuzz(1000, seed=700_000, seconds=20).wrong) > 5


def test_infinity_is_only_ever_masked(a: NormalForm) -> None:
    x = a.leaf("x", (3,), "float")
    infinity = a.full((3,), float("-inf"), "float")
    for product in (
        lambda: a.multiply(a.full((3,), Fraction(0), "float"), infinity),
        lambda: a.scale(infinity, Fraction(0)),
        lambda: a.scale(infinity, Fraction(-1)),
        lambda: a.contract([(x, "i"), (infinity, "i")], ""),
    ):
        with pytest.raises(Unsupported, match="infinity"):
            product()


def test_what_comes_of_infinity_is_not_multiplied_away(a: NormalForm) -> None:
    infinity = a.full((3,), float("-inf"), "float")
    unknown = a.opaque("sub", (), [(a.leaf("x", (3,), "float"), "A"), (infinity, "B")], "C", (3,), "float")
    with pytest.raises(Unsupported, match="infinity"):
        a.multiply(a.full((3,), Fraction(0), "float"), unknown)


def test_quotients_that_only_meet_in_a_product_cancel(a: NormalForm) -> None:
    """Attention over two halves of the keys, merged by the sums of their exponentials."""
    scores, v = a.leaf("s", (3, 4), "float"), a.leaf("v", (4, 2), "float")
    whole = a.contract([(softmax(a, scores), "ij"), (v, "jd")], "id")
    a.universe.specifying = False
    halves = [(a.slice(scores, 1, at, at + 2), a.slice(v, 0, at, at + 2)) for at in (0, 2)]
    sums = [a.sum(a.exp(part), [1]) for part, _ in halves]
    inverse = a.power(a.add(sums), Fraction(-1))
    parts = [
        a.contract([(a.contract([(softmax(a, part), "ij"), (rows, "jd")], "id"), "id"), (weight, "i")], "id")
        for (part, rows), weight in zip(halves, [a.multiply(one, inverse) for one in sums], strict=True)
    ]
    assert same(a, whole, a.add(parts))
    assert not same(a, whole, a.add([parts[0], parts[0]]))


def test_the_logarithm_of_a_quotient(a: NormalForm) -> None:
    x = a.leaf("x", (3, 4), "float")
    line = a.sum(a.exp(x), [1])
    assert same(a, a.log(a.power(line, Fraction(-1))), a.scale(a.log(line), Fraction(-1)))
    assert same(a, a.log(a.power(line, Fraction(1, 2))), a.scale(a.log(line), Fraction(1, 2)))
    square = a.power(a.leaf("y", (3,), "float"), Fraction(2))  # of a number that may be negative
    assert not same(a, a.log(square), a.scale(a.log(a.leaf("y", (3,), "float")), Fraction(2)))


@pytest.mark.parametrize("elements", [[3, 1], [0, 1], [1, 1]])
def test_known_counts_have_one_form(a: NormalForm, elements: list[int]) -> None:
    index = a.literal(np.repeat([0, 1], elements))
    counted = a.written_down(a.sum(a.number(a.one_hot(index, 2), "float"), [0]))
    assert same(a, counted, a.literal(np.array(elements, float)))
    assert not same(a, counted, a.literal(np.array([*elements[:-1], 7], float)))


def test_numbers_that_were_rounded_are_not_written_down(a: NormalForm) -> None:
    third = a.full((2,), Fraction(1, 3), "float")
    for value in (a.exp(third), a.log(third), a.apply("sin", (), [third], "float")):
        assert a.written_down(value) is value


def test_what_a_look_up_needs_at_one_place_is_not_stated_of_all(a: NormalForm) -> None:
    """Features with tables of their own in one: only the last feature's rows are few."""
    ids, table = a.leaf("ids", (3,), "int"), a.leaf("t", (9, 2), "float")
    with pytest.raises(Unsupported):
        a.lookup(table, a.add([ids, a.literal(np.array([0, 3, 6]))]))
    assert not a.universe.facts


def test_parts_of_an_index_state_a_range_together(a: NormalForm) -> None:
    ids = a.leaf("ids", (2, 3), "int")
    small, large = a.leaf("s", (4, 2), "float"), a.leaf("l", (9, 2), "float")
    a.lookup(small, a.slice(ids, 0, 0, 1))
    assert from_parts(a.universe) == ({}, {"ids"})  # nothing is said of the other line
    a.lookup(large, a.slice(ids, 0, 1, 2))
    assert not a.universe.facts
    assert from_parts(a.universe) == ({"ids": (0, 9)}, set())
    a.lookup(small, a.slice(ids, 0, 1, 2))
    assert from_parts(a.universe) == ({"ids": (0, 4)}, set())


def test_overlapping_parts_of_an_index(a: NormalForm) -> None:
    ids = a.leaf("ids", (2, 6), "int")
    table = a.leaf("t", (4, 2), "float")
    a.lookup(table, a.slice(ids, 1, 0, 5))
    assert from_parts(a.universe) == ({}, {"ids"})
    a.lookup(table, a.slice(ids, 1, 1, 6, 2))
    assert from_parts(a.universe) == ({"ids": (0, 4)}, set())


def test_a_part_of_an_index_states_nothing_of_the_rest(a: NormalForm) -> None:
    ids = a.leaf("ids", (3,), "int")
    for rows in (9, 4, 9):
        a.lookup(a.leaf(f"t{rows}", (rows, 2), "float"), ids)
    assert a.universe.facts == {"ids": (0, 4)}
    with pytest.raises(Unsupported, match="says nothing of the rest"):
        a.lookup(a.leaf("t2", (2, 2), "float"), a.slice(ids, 0, 0, 1))


@pytest.mark.parametrize("number", [1, 3])
def test_whole_powers_of_roots_are_powers(a: NormalForm, number: int) -> None:
    """Whichever of the terms leads, and so with which sign the sum is held."""
    x, y = a.leaf("x", (4,), "float"), a.leaf("y", (4,), "float")
    for value in (
        minus(a, x, y),
        minus(a, y, x),
        minus(a, a.full((4,), Fraction(1), "float"), x),
        a.scale(x, Fraction(-3)),
    ):
        root = a.power(a.scale(value, Fraction(number)), Fraction(-1, 2))
        squared = a.multiply(root, root)
        assert same(a, squared, a.scale(a.power(value, Fraction(-1)), Fraction(1, number)))
        assert not same(a, squared, a.scale(a.power(value, Fraction(-1)), Fraction(-1, number)))
        assert same(a, a.multiply(squared, value), a.full((4,), Fraction(1, number), "float"))
        assert same(a, a.multiply(root, squared), a.power(a.scale(value, Fraction(number)), Fraction(-3, 2)))
