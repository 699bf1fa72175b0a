"""Statements in another order: which ones hand something on to each other, and can be run the other way round."""

from __future__ import annotations

import ast
import textwrap

from graphguard.ir import Frame, Graph, Node, Span, Var
from graphguard.repair.nearby.flows import Flows
from graphguard.repair.nearby.order import moved
from graphguard.repair.nearby.scene import Scene
from tests.unit.repair.test_nearby import FILE, HEAD, sources


def titles(text: str, *calls: tuple[str, tuple[int, ...], int]) -> list[str]:
    """What is drafted; ``calls`` are recorded: a piece of the line that makes one, the tensors that it reads, and the one that it gives."""
    text = HEAD + textwrap.dedent(text).lstrip("\n")
    known = sources(text)
    scene = Scene.of(known.programs(), [], known.capture)
    lines = [next(number for number, line in enumerate(text.splitlines(), 1) if at in line) for at, _, _ in calls]
    frames = tuple(Frame(Span(FILE, line, 1, line, 2), "f") for line in lines)
    nodes = tuple(
        Node("aten.neg.default", tuple(map(Var, reads)), {}, (Var(given),), stack=number)
        for number, (_, reads, given) in enumerate(calls)
    )
    stacks = tuple((number,) for number in range(len(calls)))
    scene.flows = Flows((Graph({}, {}, nodes, {}, {}, frames=frames, stacks=stacks),))
    return [mistake.title for scope in scene.scopes for mistake in moved(scope, scene)]


STEP = """
    def step(buffer, other):
        buffer.scatter()
        other.reduce()
"""


def test_what_is_handed_on_through_a_buffer_is_seen_in_the_calls() -> None:
    assert titles(STEP, ("scatter", (0,), 1), ("reduce", (1,), 2)) == ["other.reduce() before buffer.scatter()"]


def test_calls_of_other_tensors_hand_on_nothing() -> None:
    assert titles(STEP, ("scatter", (0,), 1), ("reduce", (0,), 2)) == []


def test_what_is_set_for_the_first_time_is_not_read_before() -> None:
    text = """
        def step(x):
            y = first(x)
            second(y)
    """
    assert titles(text, ("first", (0,), 1), ("second", (1,), 2)) == []


def test_a_value_of_another_branch_is_none() -> None:
    text = """
        def step(x, flag):
            if flag:
                y = x
            else:
                y = first(x)
                second(y)
    """
    assert titles(text, ("first", (0,), 1), ("second", (1,), 2)) == []


def test_a_loop_is_moved_as_one_statement_and_over_others() -> None:
    text = """
        def step(model, optimizer):
            clip(model)
            note(model)
            for p in model:
                reduce(p)
    """
    found = titles(text, ("clip", (0,), 1), ("reduce", (1,), 2))
    assert found == ["for p in model: reduce(p) before clip(model)"] * 2  # the one before, or the other behind


def test_a_flag_of_an_object_that_is_run() -> None:
    text = """
        def step(model, x):
            model(x)
            model.sync = True
    """
    assert titles(text) == ["model.sync = True before model(x)"]


def test_flows_are_seen_through_the_functions_that_were_running() -> None:
    frames = tuple(Frame(Span(FILE, line, 1, line, 2), "f") for line in (9, 1, 2))
    nodes = (Node("a", (Var(0),), {}, (Var(1),), stack=0), Node("b", (Var(1),), {}, (Var(2),), stack=1))
    flows = Flows((Graph({}, {}, nodes, {}, {}, frames=frames, stacks=((0, 1), (0, 2))),))
    first, second = ast.parse("one()\ntwo()").body
    assert flows.between(FILE, first, second)
    assert not flows.between(FILE, second, first)
    assert not flows.between("other.py", first, second)


def test_a_statement_that_would_be_read_no_more_is_not_moved() -> None:
    text = """
        def step(model, x, is_parallel):
            if is_parallel:
                x = part(x)
            loss = model(x)
            loss.backward()
    """
    calls = ("part", (0,), 1), ("model(x)", (1,), 2), ("backward", (2,), 3)
    assert not any("before if is_parallel" in title for title in titles(text, *calls))


def test_a_statement_that_the_next_pass_reads_is() -> None:
    text = """
        def step(model, x, count):
            for _ in range(count):
                y = model(x)
                x = part(y)
                model.step(x)
    """
    calls = ("y = model(x)", (0,), 1), ("part(y)", (1,), 2), ("model.step", (2,), 3)
    assert any(title.startswith("model.step(x) before") for title in titles(text, *calls))
