"""``--ranks`` and ``[tool.graphguard] ranks``: whether a few ranks are recorded for all of a large mesh, and that a report says so."""

import json

import pytest

from graphguard.cli import main

CHECK = """\
import torch
import torch.distributed as dist

import graphguard as gg


def half_on(odd):
    def check(mesh):
        def impl(x):
            rank, ranks = dist.get_rank(), mesh.size()
            y = x.chunk(ranks)[rank].sum()
            if rank == odd:
                y = y * 0.5
            dist.all_reduce(y)
            return y

        return gg.Refinement(lambda x: x.sum(), impl, (gg.tensor(2 * mesh.size()),), out_relations="replicate")

    return check


right = gg.check(mesh={"dp": 18})(half_on(None))
wrong = gg.check(mesh={"dp": 18})(half_on(11))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "sums.py").write_text(CHECK)
    monkeypatch.chdir(tmp_path)

    def write(settings=""):
        (tmp_path / "pyproject.toml").write_text(f'[tool.graphguard]\nchecks = ["checks/*.py"]\n{settings}\n')

    write()
    return write


def checked(capsys, *arguments):
    """Verdicts by check, and how many ranks were recorded where not all were."""
    main(["check", "--output-format", "json", "--no-cache", "--no-fix", *arguments])
    checks = json.loads(capsys.readouterr().out)["checks"]
    told = {
        one["id"].rpartition("::")[2]: [line for line in one["assumed"] if "ranks recorded" in line] for one in checks
    }
    return {one["id"].rpartition("::")[2]: one["verdict"] for one in checks}, told


VERDICTS = {"right": "refines", "wrong": "broken"}


def recorded(count):
    return f"{count} of 18 ranks recorded; the others run the same programs with literals that are functions of their coordinates"


@pytest.mark.slow
@pytest.mark.parametrize("asked", [(), ("--ranks", "auto")])
def test_reports_say_how_many_were_recorded(project, capsys, asked):
    verdicts, told = checked(capsys, *asked)
    assert verdicts == VERDICTS
    assert told["right"] == [recorded(5)]
    assert told["wrong"] in ([recorded(count)] for count in range(5, 10))  # and the odd one is among them


@pytest.mark.slow
@pytest.mark.parametrize("asked", [("--ranks", "all"), ()])
def test_all_are_recorded_where_that_is_asked(project, capsys, asked):
    project("" if asked else 'ranks = "all"')
    assert checked(capsys, *asked) == (VERDICTS, {"right": [], "wrong": []})


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "told"), [('"auto"', [recorded(5)]), ("18", []), ("17", [recorded(5)])])
def test_a_project_says_how_many(project, capsys, setting, told):
    project(f"ranks = {setting}")
    assert checked(capsys, "checks/sums.py::right")[1] == {"right": told}


@pytest.mark.parametrize("setting", ['"some"', "0", "true", "[16]", "1.5"])
def test_a_number_that_is_none(project, capsys, setting):
    project(f"ranks = {setting}")
    assert main(["check"]) == 2
    assert "pyproject.toml:3: ranks must be 'auto' or 'all'" in capsys.readouterr().err


def test_an_option_that_is_none(project, capsys):
    with pytest.raises(SystemExit):
        main(["check", "--ranks", "some"])
    assert "invalid choice: 'some'" in capsys.readouterr().err
