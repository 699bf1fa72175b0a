"""Strangers' programs say where their bug is, in comments that neither text keeps."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.strangers.program import ORDINARY, PROGRAMS, STYLES, Program, programs
from graphguard.report.catalogue import RULES

TEXT = '''"""A bug.

Source: nowhere
Rule: wrong-scale, wrong-relation
"""
def f(x):
    y = x / 2  # fixed: y = x
    # fixed, insert: y = y + 1
    z = y  # fault
    return z  # near
'''


def test_comments_become_two_texts_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(TEXT, encoding="utf-8")
    program = Program.of(path)
    assert program.buggy.splitlines()[-4:] == ["def f(x):", "    y = x / 2", "    z = y", "    return z"]
    assert program.repaired.splitlines()[-4:] == ["    y = x", "    y = y + 1", "    z = y", "    return z"]
    assert program.lines == {7, 8}
    assert program.rules == {"wrong-scale", "wrong-relation"}


def test_a_program_that_says_nothing_of_its_bug_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="'Rule:'"):
        Program.of(path)


@pytest.mark.parametrize(
    "program",
    [each for folder in (PROGRAMS, ORDINARY, STYLES) for each in programs(folder=folder)],
    ids=lambda program: program.path.stem,
)
def test_both_texts_are_python_and_the_rules_are_known(program: Program) -> None:
    for text in (program.buggy, program.repaired):
        ast.parse(text)
        assert "# fixed" not in text
        assert "# DEL" not in text
    assert program.rules <= set(RULES)
    assert program.path.parent in (ORDINARY, STYLES) or "\nSource: " in program.buggy
