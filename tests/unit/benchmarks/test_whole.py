"""The commands that whole commands are measured by: every file of theirs has the checks that the table speaks of."""

import sys

import pytest

from benchmarks import whole_projects
from benchmarks.whole import Taken, main, median, rows, taken
from graphguard.checks.project.configuration import load_configuration
from graphguard.checks.project.discovery import discover


def found(tmp_path, name):
    project = whole_projects.project(tmp_path / "project")
    (row,) = (row for row in rows() if row.name == name)
    paths = [project / file for file in row.files(project)]
    return discover(paths, load_configuration(project))


@pytest.mark.parametrize(
    ("name", "checks"), [("one small check", 1), ("40 verdicts of 20 files, -j 2", 40), ("the examples, -j 1", 10)]
)
def test_checks_are_declared(tmp_path, name, checks):
    every = found(tmp_path, name)
    assert sum(len(check.meshes) for check in every) == checks
    assert not any(check.trouble for check in every)


@pytest.mark.parametrize(("name", "ranks"), [("one 8B-shaped layer, tp 64", 64), ("126 405B-shaped layers, tp 16", 16)])
def test_a_stack_is_of_as_many_ranks_as_its_name_says(tmp_path, name, ranks):
    (check,) = found(tmp_path, name)
    assert check.meshes == ({"tp": ranks},)


def test_a_command_that_cannot_run_is_no_measurement(tmp_path):
    assert taken([sys.executable, "-c", ""], tmp_path, {}).memory > 0
    with pytest.raises(RuntimeError, match="status 2"):
        taken([sys.executable, "-c", "raise SystemExit(2)"], tmp_path, {})


def test_medians():
    assert median([Taken(1.0, 9.0, 5), Taken(2.0, 7.0, 1), Taken(9.0, 8.0, 2)]) == Taken(2.0, 8.0, 2)


def test_help_says_what_it_is(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "Whole commands" in capsys.readouterr().out
