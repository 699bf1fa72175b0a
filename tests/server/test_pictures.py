"""What the relation explorer is told of a picture."""

from __future__ import annotations

from typing import Any

from graphguard_server.state.checks import Run, RunKey
from graphguard_server.state.pictures import KEPT, Picture, Pictures, nearest, needed_and_found

from graphguard.ir.capture import CheckRef
from graphguard.ir.plain import to_plain
from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Diagnostic, Report, Verdict

LAYER = "def layer(x):\n    h = up(\n        x)\n    return down(h)\n"
UP = Span("m.py", 2, 9, 3, 11)
DOWN = Span("m.py", 4, 12, 4, 19)
CALL = Span("m.py", 9, 9, 9, 17)


def picture(layers: int, broken: int) -> Picture:
    """Layers that share their code, two rows each in both phases; of one the last row is off the relation."""
    sites = [
        {"kind": "operator", "operators": ["aten.mm.default"], "spans": [to_plain(span), to_plain(CALL)]}
        for span in (UP, DOWN)
    ]
    rows: list[dict[str, Any]] = []
    for phase in ("forward", "backward"):
        for layer in range(layers):
            for site in (0, 1):
                cell = {"site": site, "name": f"w{layer}", "shape": [2], "text": ""}
                state = "broken" if (phase, layer, site) == ("forward", broken, 1) else "proved"
                row = {
                    "module": f"layers.{layer}",
                    "phase": phase,
                    "state": state,
                    "layout": "Replicate",
                    "relation": "r",
                }
                rows.append({**row, "cells": [cell, cell], "reads": []})
    finding = Diagnostic("missing-reduction", "missing-reduction", "no sum", "error", UP)
    check = CheckRef("m.py::m", "m", Span("m.py", 8, 1, 8, 2))
    report = Report(check, {"tp": 2}, Verdict.BROKEN, (finding,), proof="p")
    run = Run(RunKey("", "m", ""), {"tp": 2}, report=report, snapshot={"m.py": LAYER})
    return Picture(run, "p", [[0]], rows, [], sites)


def test_of_layers_that_share_their_code_the_finding_is_in_the_one_before_the_frontier() -> None:
    assert picture(4, broken=2).frontier == [5]
    assert picture(4, broken=2).found() == {UP: 4}


def test_an_expression_is_found_in_its_phase_before_the_calls_around_it() -> None:
    shown = picture(3, broken=1)
    assert shown.at(DOWN, "forward") == [1, 3, 5]
    assert shown.at(DOWN, "backward") == [7, 9, 11]
    assert shown.at(CALL, "forward") == [0, 1, 2, 3, 4, 5]
    assert shown.at(Span("m.py", 1, 1, 1, 2)) == []


def test_cells_say_what_stands_in_the_source() -> None:
    assert picture(1, broken=0).code == ["h = up( x)", "down(h)"]


def test_a_text_is_found_in_code_names_and_modules() -> None:
    shown = picture(3, broken=1)
    assert shown.finds("LAYERS.1") == [2, 3, 8, 9]
    assert shown.finds("w2") == [4, 5, 10, 11]
    assert shown.finds("down(h)") == [1, 3, 5, 7, 9, 11]


def test_the_nearest_row_is_the_one_next_to_the_break() -> None:
    assert nearest([1, 5, 9], [6]) == 5
    assert nearest([1, 5, 9], []) == 1
    assert nearest([], [6]) is None


def test_only_the_last_pictures_are_kept() -> None:
    pictures = Pictures()
    answer = {"ranks": [], "rows": [], "groups": [], "sites": []}
    for number in range(KEPT + 1):
        pictures.keep(picture(1, 0).run, str(number), answer)
    assert pictures.named("0") is None
    assert pictures.named(str(KEPT)) is not None


def test_what_is_needed_and_found_is_read_from_the_message() -> None:
    message = "'y' is a partial sum\nneeded: y: Replicate\nfound:  y: Partial(sum) over tp\nfix: all_reduce(y)"
    assert needed_and_found(message) == {"needed": "y: Replicate", "found": "y: Partial(sum) over tp"}
    assert needed_and_found("needed: y: Replicate\nsum: 3") == {"needed": "y: Replicate"}
