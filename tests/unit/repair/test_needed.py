"""What is written at a place that holds the wrong value: expressions of what is in sight that give the right one."""

from __future__ import annotations

from typing import Any

import pytest

from graphguard.ir.puts import TENSOR, Put
from graphguard.repair.nearby.needed import expressions
from graphguard.repair.nearby.values import held, sites
from tests.unit.repair.test_values import scene, site


def written(text: str, put: dict[str, Any], *rows: tuple[int, Any, dict[str, Any]]) -> list[str]:
    known = sites(scene())
    number = site(known, text)
    observed = [[program, number, value, sight] for program, value, sight in rows]
    return expressions(known[number], held(observed)[number], Put.of({"place": number, **put}))


def test_a_constant_gives_way_to_the_question_that_tells_the_times_apart() -> None:
    put = {"make": "not", "where": ["mode", None]}
    rows = [(0, True, {"mode": None, "rank": 0}), (0, True, {"mode": "row", "rank": 0})]
    assert written("parallel=True", put, *rows) == ["mode is not None", 'mode == "row"']


def test_an_answer_is_asked_with_another_one() -> None:
    put = {"make": "alone", "number": 0}
    rows = [(program, True, {"rank": program, "size": 2}) for program in (0, 1)]
    assert written("mode", put, *rows) == ["rank == 0", "mode and rank == 0"]
    assert not written("not self.done", put, *rows)  # a branch asks it


@pytest.mark.parametrize(("alone", "texts"), [(1, ["(self.rows * 2) * size"]), (2, [])])
def test_a_factor_is_a_number_that_is_one_for_the_specification(alone: int, texts: list[str]) -> None:
    rows = [(-1, 12, {"size": alone}), (0, 6, {"size": 2}), (1, 6, {"size": 2})]
    assert written("self.rows * 2", {"make": "times", "number": [2, 1]}, *rows) == texts


def test_what_is_divided_once_more() -> None:
    rows = [(-1, 12, {"size": 1}), (0, 12, {"size": 2}), (1, 12, {"size": 2})]
    assert written("self.rows * 2", {"make": "times", "number": [1, 2]}, *rows) == ["(self.rows * 2) // size"]


def test_a_number_in_sight_takes_the_place_of_another_one() -> None:
    rows = [(-1, 5, {"seed": 5}), (0, 7, {"seed": 5}), (1, 8, {"seed": 5})]
    assert written("start", {"make": "given", "number": [5]}, *rows) == ["seed"]


def test_a_quotient_that_is_one_too_small_is_rounded_up() -> None:
    rows = [(0, 2, {}), (1, 2, {})]
    text = "weight.shape[0] // size"
    assert written(text, {"make": "plus", "number": 1}, *rows) == ["-(-weight.shape[0] // size)"]
    assert not written(text, {"make": "plus", "number": -1}, *rows)


@pytest.mark.parametrize(("make", "text"), [("copy", "start.clone()"), ("cut", "start.detach()")])
def test_a_tensor_is_copied_or_cut_off(make: str, text: str) -> None:
    assert written("start", {"make": make}, (0, [TENSOR, True, True], {})) == [text]
    assert written("self.rows * 2", {"make": make}, (0, [TENSOR, True, True], {}))[0].startswith("(self.rows * 2).")
