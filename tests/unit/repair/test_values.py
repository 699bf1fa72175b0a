"""Other values for those that programs hold: at which places they are looked for, and what is tried there."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from fractions import Fraction
from typing import Any

from graphguard.ir import Span
from graphguard.ir.puts import TENSOR
from graphguard.refine.finding import Finding
from graphguard.repair.nearby.near import scene_of
from graphguard.repair.nearby.scene import Scene
from graphguard.repair.nearby.slices import rested_on
from graphguard.repair.nearby.values import LEARNS, WRITTEN, Site, depths, held, sites, trials
from graphguard.repair.text.frames import Sources
from tests.unit.repair.test_nearby import FILE, HEAD, sources

LAYER = """
    class Layer:
        def __init__(self, weight, mode, rank, size):
            self.mode = mode
            self.done = False
            self.rows = weight.shape[0] // size
            mark(weight, parallel=True)

        def forward(self, x, dim=0):
            start = self.rows * 2
            if self.mode == "row" and not self.done:
                return x.sum(0)[start:]
            return x.narrow(-1, 0, start)

    def build(weight, mode, rank, size):
        return Layer(weight, mode, rank, size)
"""


def scene(text: str = LAYER, **mesh: int) -> Scene:
    text = HEAD + textwrap.dedent(text).lstrip("\n")
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "return" in each)
    known = sources(text)
    known = Sources.of(replace(known.capture, mesh=mesh or {"tp": 2}), known.read)
    return scene_of(Finding("wrong-relation", "x", Span(FILE, line, 1, line, 2)), known)


def site(known: list[Site], text: str) -> int:
    return next(number for number, each in enumerate(known) if each.text == text)


def tried(
    text: str,
    rows: dict[int, list[Any]],
    sights: Any = None,
    rule: str = "wrong-relation",
    rested: bool = True,
    factor: Fraction | None = None,
    **mesh: int,
) -> list[str]:
    """What is told of the values at an expression, which programs hold."""
    around = scene(**mesh)
    known = sites(around)
    number = site(known, text)
    observed = [
        [program, number, value, (sights or [{}] * len(values))[time]]
        for program, values in rows.items()
        for time, value in enumerate(values)
    ]
    found = trials(known, held(observed), around.sizes, factor, rule, {each.node for each in known} if rested else ())
    assert {each.site for each in found} <= {number}
    return [each.told.removeprefix(f"'{text}' ") for each in found]


def test_what_is_assigned_given_asked_and_cut_by_is_looked_at() -> None:
    texts = [each.text for each in sites(scene())]
    assert {"mode", "weight.shape[0] // size", "parallel=True", "self.rows * 2", "start", "not self.done"} <= set(texts)
    assert not {"0", "-1", "2", "False"} & set(texts)  # dims, and what an object holds at first
    asked = {each.text for each in sites(scene()) if each.place[-1]}
    assert asked == {'self.mode == "row" and not self.done', 'self.mode == "row"', "not self.done", "self.done"}


def test_what_the_specification_has_at_the_same_place_comes_first() -> None:
    told = tried("weight.shape[0] // size", {-1: [12], 0: [4], 1: [4]})
    assert told[:3] == [
        "is 4 where the specification has 12",
        "comes out as 1/2 of what is needed",
        "comes out 2 times as large as is needed",
    ]
    assert told[3:] == ["comes out one too small", "comes out one too large"]


def test_the_number_of_a_rank_is_another_one_without_being_wrong() -> None:
    assert tried("rank", {-1: [0], 0: [0], 1: [1]}) == ["is 1 where the specification has 0"]
    assert tried("rank", {-1: [5], 0: [7], 1: [8]})[:2] == [
        "is 7 where the specification has 5",
        "is each rank's own, where all ranks need the same",
    ]


def test_of_a_factor_only_factors_are_tried_one_for_each_size_of_the_mesh() -> None:
    told = tried("self.rows * 2", {0: [12], 1: [12]}, rule="wrong-scale", dp=3, tp=2, pp=1)
    assert told == [
        "comes out as 1/2 of what is needed",
        "comes out 2 times as large as is needed",
        "comes out as 1/3 of what is needed",
        "comes out 3 times as large as is needed",
    ]
    assert not tried("self.rows * 2", {0: [12], 1: [12]}, rule="gradient-not-reduced")
    assert not tried("self.rows * 2", {0: [12], 1: [12]}, rested=False)
    told = tried("self.rows * 2", {0: [1.5], 1: [1.5]}, rule="wrong-scale", factor=Fraction(5, 2))
    assert told == ["comes out as 2/5 of what is needed", "comes out as 5/2 of what is needed"]
    told = tried("self.rows * 2", {0: [4], 1: [4]}, rule="wrong-scale", factor=Fraction(5, 2))
    assert told == ["comes out as 2/5 of what is needed"]  # rows are counted


def test_an_answer_is_turned_or_given_on_one_rank_alone() -> None:
    assert tried("parallel=True", {0: [True], 1: [True]}) == [
        "is True where False is needed",
        "is True on every rank, and must be so on the first one alone",
        "is True on every rank, and must be so on the last one alone",
    ]
    assert tried("not self.done", {0: [True, False], 1: [True, False]}) == [
        "must be True every time",
        "must be False every time",
    ]
    assert not tried("not self.done", {0: [True], 1: [False]})  # it asks which rank this is


def test_an_answer_is_turned_where_something_in_sight_has_a_value() -> None:
    sights = [{"mode": None, "rank": 0}, {"mode": "row", "rank": 0}, {"mode": None, "rank": 0}]
    told = tried("parallel=True", {0: [True] * 3, 1: [True] * 3}, sights)
    assert told[1:3] == [
        "is True where 'mode' is 'row', and must be False there",
        "is True where 'mode' is None, and must be False there",
    ]
    assert not any("'rank'" in each for each in told)


def test_an_answer_or_a_number_that_makes_it_one_process_is_not_put() -> None:
    assert not tried("parallel=True", {-1: [False], 0: [True], 1: [True]})
    assert tried("self.rows * 2", {-1: [1], 0: [2], 1: [2]}, rule="wrong-scale") == [
        "comes out as 1/2 of what is needed"
    ]


def test_a_tensor_is_copied_where_it_is_written_later_on_and_cut_off_where_it_learns() -> None:
    assert tried("start", {0: [[TENSOR, True, False]], 1: [[TENSOR, False, False]]}) == [WRITTEN]
    assert tried("start", {0: [[TENSOR, False, True]], 1: [[TENSOR, False, True]]}) == [LEARNS]
    assert not tried("start", {0: [[TENSOR, False, False]], 1: [4]})


def test_a_tensor_that_the_specification_has_alike_is_seldom_to_blame() -> None:
    around = scene()
    known = sites(around)
    own, alike = site(known, "start"), site(known, "self.rows * 2")
    held_by = [
        [0, own, [TENSOR, True, True], {}],
        [0, alike, [TENSOR, True, True], {}],
        [-1, alike, [TENSOR, True, True], {}],
    ]
    found = trials(known, held(held_by), around.sizes, None, "wrong-relation", ())
    assert {each.site for each in found[:2]} == {own}


def test_what_a_value_comes_from_is_behind_it() -> None:
    around = scene()
    known = sites(around)
    away = depths(around, known, site(known, "self.rows * 2"))
    assert away[site(known, "weight.shape[0] // size")] == 1
    assert site(known, "size") not in away
    assert site(known, "parallel=True") not in away


def test_numbers_are_tried_of_what_a_finding_rests_on() -> None:
    around = scene()
    text = next(iter({each.program for each in around.scopes})).text
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "return x.narrow" in each)
    column = text.splitlines()[line - 1].index("x.narrow") + 1
    rested = rested_on(around, [Span(FILE, line, column, line, column + len("x.narrow(-1, 0, start)"))])
    texts = {each.text for each in sites(around) if each.node in rested}
    assert {"start", "self.rows * 2", "weight.shape[0] // size"} <= texts
    assert not {"parallel=True", "mode"} & texts
