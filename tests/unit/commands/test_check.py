"""`graphguard check` on a project on disk, with the real pipeline."""

import json

import pytest

from graphguard.cli import main

from .project import CHECKS, UNKNOWN, WRONG, write_project


def test_all_refine(project, capsys):
    assert main(["check"]) == 0
    shown = capsys.readouterr()
    assert "checks/model.py::right  tp=2  refines" in shown.out
    assert "1 check: 1 refine" in shown.out
    assert shown.err == ""


def test_broken_comes_with_place_evidence_and_fix(project, capsys):
    write_project(project, WRONG, UNKNOWN)
    assert main(["check"]) == 1
    shown = capsys.readouterr().out
    assert "error[missing-reduction]:" in shown
    assert "  --> checks/model.py:33:13" in shown
    assert "= counterexample: rank 0, out[0, 0]:" in shown
    assert "+         dist.all_reduce(y" in shown
    assert "3 checks: 1 refine, 1 broken, 1 unknown" in shown


def test_unknown_alone_is_three(project):
    write_project(project, UNKNOWN)
    assert main(["check"]) == 3


def test_what_could_not_run_counts_most(project, capsys):
    write_project(project, WRONG)
    (project / "checks" / "raises.py").write_text(f"raise ValueError('no')\n{CHECKS}")
    assert main(["check"]) == 2
    assert "--> checks/raises.py:1:1\n" in capsys.readouterr().out


def test_one_check_of_a_file(project):
    write_project(project, WRONG)
    assert main(["check", "checks/model.py::right"]) == 0
    assert main(["check", "checks/model.py::wrong"]) == 1


def test_several_jobs_keep_the_order(project, capsys):
    write_project(project, WRONG, UNKNOWN)
    assert main(["check", "-j", "3", "--output-format", "json"]) == 1
    ids = [check["id"] for check in json.loads(capsys.readouterr().out)["checks"]]
    assert ids == ["checks/model.py::right", "checks/model.py::wrong", "checks/model.py::open_question"]


INNER = """
import graphguard as gg

def make():
    @gg.check(mesh={"tp": 2})
    def inner(mesh):
        return None
    return inner

made = make()
"""


@pytest.mark.parametrize("selector", ["inner.py", "inner.py::inner", "inner.py::made"])
def test_a_check_within_a_function_is_none_and_that_is_said(project, capsys, selector):
    (project / "inner.py").write_text(INNER)
    assert main(["check", selector]) == 2
    message = capsys.readouterr().err
    assert "'inner' on line 6 stands within a function, a class or a loop: declare it in the module itself" in message


def test_another_mesh(project, capsys):
    assert main(["check", "--mesh", "tp=4", "--output-format", "json"]) == 2  # the parts are halves
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["mesh"] == {"tp": 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "none.py"], "no such file or folder: none.py"),
        (["check", "checks/model.py::none"], "has no check named 'none'; it has right"),
        (["check", "empty"], "no checks found in empty"),
        (["check", "--baseline", "none.json"], "none.json: there is no such baseline"),
        (["explain", "dead-colective"], "did you mean 'dead-collective'?"),
        (["init", "none"], "none is not a folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(project, capsys, arguments, message):
    (project / "empty").mkdir()
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("graphguard: ")
    assert message in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "--mesh", "tp"], "'tp' is not an axis with its size"),
        (["check", "--mesh", "tp=0"], "'tp=0' is not an axis with its size"),
        (["check", "--mesh", "tp=2,tp=2"], "the axis 'tp' is there twice"),
        (["check", "-j", "0"], "'0' is not a number of jobs"),
        (["check", "--output-format", "xml"], "invalid choice: 'xml'"),
        (["verify"], "invalid choice: 'verify'"),
        (["check", "--fast"], "unrecognized arguments: --fast"),
        ([], "required: COMMAND"),
    ],
)
def test_usage_errors(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_configuration_that_is_wrong(project, capsys):
    (project / "pyproject.toml").write_text('[tool.graphguard]\ncheck = ["*.py"]\n')
    assert main(["check"]) == 2
    assert (
        "pyproject.toml:2: [tool.graphguard] has no setting 'check'; did you mean 'checks'?" in capsys.readouterr().err
    )


def test_a_waiver_makes_a_broken_check_pass(project, capsys):
    write_project(
        project,
        WRONG.replace(
            "y = F.linear(*parts(x, w))", "y = F.linear(*parts(x, w))  # graphguard: ignore[missing-reduction]"
        ),
    )
    assert main(["check"]) == 0
    assert "1 finding waived" in capsys.readouterr().out


def test_an_unused_waiver_is_reported_and_does_not_fail(project, capsys):
    write_project(project, "# graphguard: ignore[wrong-scale]\n")
    assert main(["check"]) == 0
    assert "warning[unused-ignore]: unused waiver" in capsys.readouterr().out
    assert main(["check", "checks/model.py::right"]) == 0
    assert "unused-ignore" not in capsys.readouterr().out


def test_levels_of_the_configuration(project, capsys):
    write_project(project, WRONG)
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.graphguard.rules]\nmissing-reduction = "off"\n')
    assert main(["check", "--output-format", "concise"]) == 0
    assert capsys.readouterr().out == ""


def test_a_baseline_from_its_writing_to_its_end(project, capsys):
    write_project(project, WRONG)
    arguments = ["check", "--baseline", "known.json"]
    assert main([*arguments, "--write-baseline"]) == 1
    assert "wrote known.json: 1 finding\n" in capsys.readouterr().err
    assert main(arguments) == 0

    more = WRONG.replace("def wrong", "def also_wrong")
    write_project(project, WRONG, more)
    assert main(arguments) == 1

    taken_out = "known.json: 1 finding is gone and was taken out\n"
    write_project(project)
    assert main([*arguments, "checks"]) == 0
    assert taken_out not in capsys.readouterr().err, "only a run of the whole project knows that a check is gone"
    assert main(arguments) == 0
    assert taken_out in capsys.readouterr().err
    assert json.loads((project / "known.json").read_text())["checks"] == {}

    write_project(project, WRONG)
    assert main([*arguments, "--write-baseline"]) == 1
    write_project(project, WRONG.replace("return y", "dist.all_reduce(y)\n        return y"))
    assert main(arguments) == 0
    assert taken_out in capsys.readouterr().err
    assert json.loads((project / "known.json").read_text())["checks"] == {}
