"""Where a number was decided that a call brings in."""

import pytest

from graphguard.diagnose.origins import origin
from graphguard.ir import Capture, CheckRef, Frame, Graph, Node, Span, Var
from graphguard.repair.text.frames import Sources

FILE = "model.py"
TEXT = """class Averager:
    def __init__(self, group, divisor=1):
        self.group, self.divisor = group, divisor
        self.size = len(group)

    def mean(self, value):
        value = value / self.divisor
        return sized(value / self.size)


def made(group, divisor=1):
    return Averager(group, divisor)


losses = made("tp", 2)
scores = made("tp")
print(losses.mean(1), scores.mean(1))
"""


def told(*places: tuple[str, int]) -> int | None:
    """The line told of an operator that comes from texts, the innermost first; each with its line."""
    lines = TEXT.splitlines()
    spans = [
        Span(FILE, line, at + 1, line, at + 1 + len(text))
        for text, line in places
        for at in [lines[line - 1].index(text)]
    ]
    graph = Graph(
        {}, {}, (Node("aten.div.Tensor", (), {}, (Var(0),), stack=0),), {}, {},
        frames=tuple(Frame(span, "f") for span in spans), stacks=(tuple(range(len(spans))),),
    )  # fmt: skip
    capture = Capture(CheckRef(f"{FILE}::c", "c", Span(FILE, 1)), {"tp": 2}, (), None, (graph,), ())
    found = origin(graph, graph.nodes[0], Sources.of(capture, lambda file: TEXT if file == FILE else None))
    return None if found is None else found.line


@pytest.mark.parametrize(("call", "line"), [("losses.mean(1)", 15), ("scores.mean(1)", 16)])
def test_the_object_that_was_made_with_another_number_is_told(call: str, line: int) -> None:
    assert told(("value / self.divisor", 7), (call, 17)) == line


def test_one_of_several_that_nothing_tells_apart_is_not_told() -> None:
    assert told(("value / self.divisor", 7), ("print(losses.mean(1), scores.mean(1))", 17)) is None


def test_what_is_worked_out_where_it_is_kept_is_told_there() -> None:
    assert told(("value / self.size", 8)) is None
