"""Sets show another order in every process, where their elements are hashed otherwise there; files that were compiled before are compiled again to ask for it."""

import ast
import builtins
import os
from enum import Enum

import pytest

from graphguard.trace.depends import orders
from graphguard.trace.depends.unshared import Process, memory_in_use, standing_for
from graphguard.trace.source.recompiled import new_code, objects_of_user
from graphguard.trace.source.rewriting import IN_ORDER, NAME, TAKEN, rewritten
from graphguard.trace.worlds import patches

NAMES = ["alpha", "beta", "gamma", "delta"]


class Colour(Enum):
    """Hashed by a text."""

    RED = 1
    BLUE = 2


@pytest.fixture(autouse=True)
def _installed():
    patches.install()


def _in_each(ask, numbers=(-1, 0, 1, 2, 3)):
    found = []
    for number in numbers:
        with standing_for(Process(number)):
            found.append(ask())
    return found


@pytest.mark.parametrize(
    "elements",
    [set(NAMES), frozenset(NAMES), {name.encode() for name in NAMES}, {(name, 1) for name in NAMES}, set(Colour), {str, int, dict}],
    ids=["texts", "frozen", "bytes", "pairs", "enum", "types"],
)  # fmt: skip
def test_neighbours_have_other_orders(elements):
    of_spec, *of_ranks = _in_each(lambda: list(orders.in_order(elements)))
    assert all(set(found) == elements for found in (of_spec, *of_ranks))
    for one, other in [(0, 1), (0, 2), (1, 3), (2, 3)]:
        assert of_ranks[one] != of_ranks[other]
    assert of_spec != of_ranks[0]


@pytest.mark.parametrize(
    "same", [{3, 1, 2}, {(1, 2.0), (3, None)}, {1}, {"one"}, [3, 1], {"a": 1, "b": 2}, range(3), "text"]
)
def test_what_has_one_order_is_left_alone(same):
    assert all(found is same for found in _in_each(lambda: orders.in_order(same)))


def test_what_neighbours_make_lies_elsewhere():
    """Whatever its size, and whoever keeps memory of its kind for itself."""
    makers = [object, list, dict, lambda: (object(), 1), lambda: float("2.5"), lambda: bytes(100), lambda: bytes(400)]
    for make in makers:
        before = id(make())
        in_use = memory_in_use(Process(1))
        assert id(make()) != before
        assert in_use
    assert len(memory_in_use(Process(0))) < len(memory_in_use(Process(1))) < len(memory_in_use(Process(-1)))
    assert memory_in_use(Process(1, "alike")) == []


def test_outside_of_a_recording_nothing_is_another():
    names = set(NAMES)
    assert orders.in_order(names) is names


def test_taking_out_takes_all():
    def empty():
        left = set(NAMES)
        return [orders.taken(left) for _ in NAMES], left

    (one, rest), (other, _) = _in_each(empty, (0, 1))
    assert one != other
    assert sorted(one) == sorted(other) == sorted(NAMES)
    assert not rest
    assert orders.taken([1, 2]) == 2


def test_folders_are_listed_in_other_orders(tmp_path):
    for name in NAMES:
        (tmp_path / name).touch()
    for ask in (lambda: os.listdir(tmp_path), lambda: [path.name for path in tmp_path.iterdir()], lambda: [one.name for one in os.scandir(tmp_path)]):  # fmt: skip
        one, other = _in_each(ask, (0, 1))
        assert one != other
        assert sorted(one) == sorted(other) == sorted(NAMES)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("for n in set(x):\n    pass", "for n in I(set(x)):\n    pass"),
        ("y = [n for n in {1, 2} if n]", "y = [n for n in I({1, 2}) if n]"),
        ("y = list(frozenset(x))", "y = list(I(frozenset(x)))"),
        ("f(*{*x})\ng = set", "f(*I({*I(x)}))\ng = set"),
        ("a, b = set(x)", "a, b = I(set(x))"),
        ("y = ','.join(set(x))", "y = ','.join(I(set(x)))"),
        ("y = set(x).pop()", "y = T(set(x))"),
        ("y = sorted(set(x), key=f)", "y = sorted(I(set(x)), key=f)"),
        ("y = sorted(set(x))", "y = sorted(set(x))"),
        ("for n in sorted(set(x)):\n    pass", "for n in sorted(set(x)):\n    pass"),
        ("for i, n in enumerate(set(x)):\n    pass", "for i, n in enumerate(I(set(x))):\n    pass"),
        ("y = n in set(x)", "y = n in set(x)"),
        ("y = d.pop(k)\ng = set", "y = d.pop(k)\ng = set"),
    ],
)
def test_what_is_asked_for_order(text, becomes):
    tree = rewritten(text.encode(), "f.py")
    assert isinstance(tree, ast.AST)
    assert ast.dump(tree) == ast.dump(ast.parse(becomes.replace("I(", f"{IN_ORDER}(").replace("T(", f"{TAKEN}(")))


def test_functions_that_are_there_get_new_code(tmp_path, monkeypatch):
    assert hasattr(builtins, NAME)
    file = tmp_path / "program.py"
    file.write_text("def outer(names):\n    def inner():\n        return [n for n in set(names)]\n    return inner\n")
    names = {"__name__": "program", "__file__": str(file)}
    exec(compile(file.read_text(), str(file), "exec"), names)
    inner = names["outer"](NAMES)
    code = new_code(objects_of_user().functions, [names], str(tmp_path))
    assert {function for function, _ in code.pairs} == {inner, names["outer"]}
    monkeypatch.setattr(inner, "__code__", inner.__code__)
    code.put()
    assert IN_ORDER in inner.__code__.co_names
    one, other = _in_each(inner, (0, 1))
    assert sorted(one) == sorted(other)
    assert not any(mine == theirs for mine, theirs in zip(one, other, strict=True))
