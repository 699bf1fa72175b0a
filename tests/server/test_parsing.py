"""Parsing around an edit gives the tree that parsing the whole text gives."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest
from graphguard_server.texts import parsing
from graphguard_server.texts.parsing import LONG, outcome

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
LONG_TEXT = (
    "\n".join(path.read_text() for path in EXAMPLES)
    + "a = 1; b = \\\n3\nc = (\n    4)\n\n\n@d\n@e(\n1)\ndef f(): pass\n"
)


@pytest.fixture(autouse=True)
def nothing_known():
    outcome.cache_clear()
    parsing._lately.clear()


def whole(text: str) -> str | None:
    try:
        return ast.dump(ast.parse(text), include_attributes=True)
    except SyntaxError:
        return None


def around(text: str) -> str | None:
    found = outcome(text)
    return ast.dump(found, include_attributes=True) if isinstance(found, ast.Module) else None


def edited(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    line = lines[at]
    place = chance.randrange(len(line) + 1)
    pieces = (
        "x",
        " ",
        "(",
        ")",
        '"',
        "#",
        "else:",
        "    ",
        ":",
        ";",
        "\\",
        '"""',
        "= 1",
        "@",
        "\t",
        "é",
        "if x:",
        "\n",
    )
    choice = chance.random()
    if choice < 0.6:
        lines[at] = line[:place] + chance.choice(pieces) + line[place:]
    elif choice < 0.8:
        lines[at] = line[:place] + line[place + chance.randint(1, 4) :]
    elif choice < 0.9:
        lines[at] = chance.choice(lines)
    else:
        lines[at] = "    " + line
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(4))
def test_any_edit_gives_the_tree_of_the_whole_text(seed: int) -> None:
    assert LONG_TEXT.count("\n") > LONG
    chance = random.Random(seed)
    text = LONG_TEXT
    parsed = 0
    for _ in range(40):
        changed = edited(text, chance)
        tree = whole(changed)
        assert around(changed) == tree
        parsed += tree is not None
        if tree is not None and chance.random() < 0.7:
            text = changed  # otherwise the edit is undone
        assert around(text) == whole(text)
    assert parsed > 10


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if a:\n    b\n\nc\n", "if a:\n    b\nelse:\nc\n"),
        ("if a:\n    b\n#\nc\n", "if a:\n    b\nelse: d\nc\n"),
        ("def f():\n    b\n\nc\n", "def f():\n    b\n    d\nc\n"),
        ("a = 1; b = \\\n3\n", "a = 1; b = \\\n4\n"),
        ("a = 1 \\\n\nb\n", "a = 1 \\\n+ 2\nb\n"),
        ("a\nb\n@d\ndef f(): pass\n", "a\n@b\n@d\ndef f(): pass\n"),
        ("a\nb\nc = '''\n'''\n", "a\n'''\nc = '''\n'''\n"),
        ("a\nb = (\nc\n)\nd\n", "a\nb = c\nc\n(c)\nd\n"),
    ],
)
def test_edits_at_the_ends_of_statements(before: str, after: str) -> None:
    rest = "x = 1\n" * LONG
    for head, tail in (("", rest), (rest, ""), (rest, rest)):
        outcome(head + before + tail)
        assert around(head + after + tail) == whole(head + after + tail)


def test_an_edit_within_a_line_leaves_the_other_statements_alone() -> None:
    before, after = outcome(LONG_TEXT), outcome(LONG_TEXT.replace("self.down(F.gelu", "self.down(F.relu", 1))
    assert isinstance(before, ast.Module)
    assert isinstance(after, ast.Module)
    assert sum(a is not b for a, b in zip(before.body, after.body, strict=True)) == 1
