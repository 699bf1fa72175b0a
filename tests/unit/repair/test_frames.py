"""Which functions the ranks run just as the specification does."""

import pytest

from graphguard.ir import Capture, CheckRef, Frame, Graph, Span
from graphguard.repair.text.frames import Sources

TEXT = """
def helper(x):
    return x @ x

def copied(x, group):
    return x if group is None else copy(x, group)

def column(x, group):
    return helper(copied(x, group))

def trained(x, group, finish):
    return finish(column(x, group))

def reduced(y):
    return all_reduce(y)
"""


def frame(function: str, text: str) -> Frame:
    """A frame in a function, at a text."""
    line = TEXT.count("\n", 0, TEXT.index(text, TEXT.index(f"def {function}("))) + 1
    return Frame(Span("model.py", line, 5, line, 5 + len(text)), function)


HELPED = frame("helper", "x @ x"), frame("column", "helper(copied(x, group))"), frame("trained", "column(x, group)")
COPIED = frame("copied", "copy(x, group)"), frame("column", "copied(x, group)"), frame("trained", "column(x, group)")
REDUCED = frame("reduced", "all_reduce(y)"), frame("trained", "finish(column(x, group))")


def graph(*stacks: tuple[Frame, ...]) -> Graph:
    frames = tuple(dict.fromkeys(frame for stack in stacks for frame in stack))
    return Graph({}, {}, (), {}, {}, frames=frames, stacks=tuple(tuple(map(frames.index, stack)) for stack in stacks))


@pytest.mark.parametrize(
    ("stack", "shared"),
    [(COPIED, [True, False, False, False]), (REDUCED, [True, True, True, True])],
    ids=["another line of a function", "what another function does where it is called"],
)
def test_code_is_shared_where_ranks_run_no_other_line_of_it(stack: tuple[Frame, ...], shared: list[bool]) -> None:
    plain = frame("copied", "x if"), *COPIED[1:]
    spec = graph(HELPED, plain, (frame("trained", "finish(column(x, group))"),))
    check = CheckRef("model.py::c", "c", Span("model.py", 1))
    capture = Capture(check, {"tp": 2}, (), spec, (graph(HELPED, stack), graph(HELPED, stack)), ())
    sources = Sources.of(capture, lambda file: TEXT if file == "model.py" else None)
    asked = (HELPED[0], plain[0], HELPED[1], HELPED[2])
    assert [sources.is_alike(each) for each in asked] == shared
    assert all(map(sources.is_shared, asked))
    assert not sources.is_shared(REDUCED[0])
