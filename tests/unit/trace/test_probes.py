"""Values at places of files: what is compiled, what is seen there, and what is put there."""

import ast
import builtins
from typing import Any

import pytest
import torch

from graphguard.ir.puts import TENSOR
from graphguard.trace.source import probes
from graphguard.trace.source.probes import NAME, Probes

TEXT = """
class Layer:
    def __init__(self, mode):
        self.mode = mode

def scaled(layer, size):
    rows = 12 // size
    if layer.mode and rows:
        rows = rows + 1
    return rows
"""
FILE = "model.py"


def at(text: str, asked: bool = False) -> list[Any]:
    """The place of an expression, the first with this text."""
    node = next(each for each in ast.walk(ast.parse(TEXT)) if isinstance(each, ast.expr) and ast.unparse(each) == text)
    return [FILE, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, asked]


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_set", None)
    monkeypatch.setattr(probes, "_program", probes.SPECIFICATION)
    monkeypatch.setattr(builtins, NAME, None, raising=False)


def run(places: list[list[Any]], mode: Any, put: dict[str, Any] | None = None, program: int = 1) -> list[int]:
    """What the function gives for several sizes, on a rank."""
    probes.probe(Probes.of({"places": places, "put": put}))
    names: dict[str, Any] = {}
    exec(compile(probes.compiled(TEXT.encode(), FILE), FILE, "exec"), names)
    probes.begin(program)
    return [names["scaled"](names["Layer"](mode), size) for size in (2, 3)]


def test_what_a_place_holds_is_seen_each_time_and_what_is_in_sight_of_it() -> None:
    assert run([at("12 // size")], "column") == [7, 5]
    seen = probes.observed()
    assert [row[:3] for row in seen] == [(1, 0, 6), (1, 0, 4)]
    assert [(row[3]["size"], row[3]["layer.mode"]) for row in seen] == [(2, "column"), (3, "column")]


def test_of_what_is_asked_the_truth_is_seen_and_of_texts_nothing() -> None:
    assert run([at("layer.mode", asked=True), at("mode")], "column") == [7, 5]
    assert [row[:3] for row in probes.observed()] == [(1, 0, True), (1, 0, True)]


@pytest.mark.parametrize(
    ("text", "put", "given"),
    [
        ("12 // size", {"make": "times", "number": [2, 1]}, [13, 9]),
        ("12 // size", {"make": "times", "number": [1, 2]}, [4, 3]),
        ("12 // size", {"make": "plus", "number": -1}, [6, 4]),
        ("12 // size", {"make": "given", "number": [9, 8]}, [10, 9]),
        ("12 // size", {"make": "given", "number": [9]}, [10, 10]),
        ("layer.mode", {"make": "not"}, [6, 4]),
        ("layer.mode", {"make": "not", "where": ["size", 3]}, [7, 4]),
        ("layer.mode", {"make": "not", "where": ["layer.mode", None]}, [7, 5]),
        ("layer.mode", {"make": "alone", "number": 0}, [6, 4]),
        ("layer.mode", {"make": "alone", "number": 1}, [7, 5]),
    ],
)
def test_what_is_put_at_a_place(text: str, put: dict[str, Any], given: list[int]) -> None:
    places = [at(text, asked=text == "layer.mode")]
    assert run(places, "column", {"place": 0, "number": None, **put}) == given


def test_the_specification_keeps_its_values() -> None:
    put = {"place": 0, "make": "times", "number": 2}
    assert run([at("12 // size")], "column", put, probes.SPECIFICATION) == [7, 5]


def tensors(put: dict[str, Any] | None = None) -> list[torch.Tensor]:
    """Two parts of a tensor under two places, of which the first is written later on."""
    text = "def parts(x, y):\n    return [x, y * 1]\n"
    nodes = next(each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.List)).elts
    places = [[FILE, each.lineno, each.col_offset, each.end_lineno, each.end_col_offset, False] for each in nodes]
    probes.probe(Probes.of({"places": places, "put": put}))
    names: dict[str, Any] = {}
    exec(compile(probes.compiled(text.encode(), FILE), FILE, "exec"), names)
    probes.begin(1)
    found: list[torch.Tensor] = names["parts"](torch.zeros(2), torch.zeros(2, requires_grad=True))
    return found


def test_of_a_tensor_is_seen_whether_it_is_written_later_on_and_whether_it_learns() -> None:
    found = tensors()
    assert [row[2] for row in probes.observed()] == [[TENSOR, False, False], [TENSOR, False, True]]
    found[0][1:].add_(1)
    assert [row[2] for row in probes.observed()] == [[TENSOR, True, False], [TENSOR, False, True]]


def test_what_a_collective_writes_is_written() -> None:
    found = tensors()
    probes.wrote(([found[0].view(2, 1)], {"group": None}))
    assert [row[2][1] for row in probes.observed()] == [True, False]


def test_a_tensor_is_copied_or_cut_off() -> None:
    given = tensors({"place": 1, "make": "cut"})
    assert not given[1].requires_grad
    x = torch.zeros(2)
    probes.probe(Probes.of({"places": [], "put": {"place": 0, "make": "copy"}}))
    copied = probes.probed(0, False, x)
    assert copied is not x
    assert probes.probed(1, False, x) is x
    assert probes.probed(0, False, 3) == 3
    probes.probe(Probes.of({"places": [], "put": {"place": 0, "make": "plus", "number": 1}}))
    assert probes.probed(0, False, x) is x
    probes.begin(probes.SPECIFICATION)
    assert probes.probed(0, False, x) is x


def test_a_file_without_places_is_compiled_as_it_is() -> None:
    probes.probe(Probes.of({"places": [], "put": None}))
    assert probes.compiled(TEXT.encode(), FILE) == TEXT.encode()
