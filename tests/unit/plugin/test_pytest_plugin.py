"""The pytest plugin as its users meet it: what is collected, chosen, and said. Checks are not run here but in the last test."""

import pytest

from graphguard.checks.running import driver
from graphguard.report.diagnostics import Diagnostic, Report, Verdict

pytest_plugins = ["pytester"]

CHECKS = """
import graphguard as gg

@gg.check(mesh=[{"tp": 2}, {"tp": 4, "dp": 2}])
def mlp(mesh): ...

@gg.check(mesh={"tp": 2})
def broken(mesh): ...

MESHES = [{"tp": 8}]

@gg.check(mesh=MESHES)
def computed(mesh): ...
"""
VERDICTS = {"mlp": Verdict.REFINES, "computed": Verdict.REFINES, "broken": Verdict.BROKEN, "open": Verdict.UNKNOWN}


def run_checks(found, configuration, options, listener=None, worker=None, prover=None):
    """A report for each check and mesh, as its name says."""
    reports = []
    for check in found:
        for mesh in options.meshes or check.meshes or ({"tp": 8},):
            verdict = VERDICTS[check.ref.name]
            severity = "warning" if verdict is Verdict.UNKNOWN else "error"
            told = Diagnostic("wrong-scale", "wrong-scale", "twice what it should be", severity, check.ref.span)
            reports.append(Report(check.ref, mesh, verdict, () if verdict is Verdict.REFINES else (told,)))
    return reports


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(driver, "run_checks", run_checks)
    pytester.makepyprojecttoml('[tool.graphguard]\nchecks = ["checks/*.py"]\n')
    (pytester.path / "checks").mkdir()
    (pytester.path / "checks" / "layers.py").write_text(CHECKS)
    return pytester


def run(project, *arguments):
    return project.runpytest_inprocess("-p", "graphguard.pytest_plugin", *arguments)


def names(result):
    return [line.rpartition("/")[2] for line in result.outlines if "::" in line]


def test_every_check_and_mesh_is_a_test(project):
    found = run(project, "--collect-only", "-q")
    assert names(found) == [
        "layers.py::mlp[tp=2]",
        "layers.py::mlp[tp=4,dp=2]",
        "layers.py::broken[tp=2]",
        "layers.py::computed",
    ]


@pytest.mark.parametrize(
    ("chosen", "passed"),
    [
        (["-k", "mlp"], 2),
        (["-k", "mlp and dp"], 1),
        (["checks/layers.py::mlp[tp=2]"], 1),
        (["checks/layers.py::mlp"], 2),
        (["-m", "graphguard", "-k", "not broken"], 3),
    ],
)
def test_tests_are_chosen_as_others_are(project, chosen, passed):
    run(project, *chosen).assert_outcomes(passed=passed, deselected=None)


def test_a_failure_reads_as_on_the_terminal(project):
    result = run(project, "-k", "broken")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(
        [
            "*check broken?tp=2?*",
            "error?wrong-scale?: twice what it should be",
            "*--> checks/layers.py:8:5",
            "checks/layers.py::broken  tp=2  broken*",
            "FAILED checks/layers.py::broken?tp=2?*",
        ]
    )
    assert "Traceback" not in result.stdout.str()


def test_a_waiver_holds_here_too(project):
    file = project.path / "checks" / "layers.py"
    file.write_text(CHECKS.replace("def broken(mesh): ...", "def broken(mesh): ...  # graphguard: ignore[wrong-scale]"))
    run(project, "-k", "broken").assert_outcomes(passed=1, deselected=3)


def test_what_is_unknown_does_not_pass(project):
    (project.path / "checks" / "layers.py").write_text(CHECKS.replace("def broken", "def open"))
    run(project, "-k", "open").assert_outcomes(failed=1, deselected=3)


def test_another_mesh(project):
    found = run(project, "--collect-only", "-q", "--graphguard-mesh", "tp=8", "--graphguard-mesh", "pp=2,tp=2")
    assert names(found)[:2] == ["layers.py::mlp[tp=8]", "layers.py::mlp[pp=2,tp=2]"]


def test_a_mesh_that_is_none(project):
    result = run(project, "--graphguard-mesh", "tp")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--graphguard-mesh: 'tp' is not an axis with its size: write, for example, tp=4,dp=2*"]
    )


def test_only_check_files_are_collected(project):
    (project.path / "checks" / "model.py").write_text("import graphguard\nx = 1\n")
    (project.path / "other.py").write_text(CHECKS)
    project.makepyfile(test_own="def test_own(): pass\n" + CHECKS)
    assert {name.partition("::")[0] for name in names(run(project, "--collect-only", "-q"))} == {
        "layers.py",
        "test_own.py",
    }
    assert names(run(project, "--collect-only", "-q", "other.py"))[0] == "other.py::mlp[tp=2]", (
        "a file that is named is looked into"
    )


def test_a_configuration_that_is_wrong_is_told(project):
    project.makepyprojecttoml("[tool.graphguard]\nchekcs = []\n")
    result = run(project)
    result.stdout.fnmatch_lines(["*pyproject.toml:2: *has no setting 'chekcs'; did you mean 'checks'?*"])
    assert result.ret != 0


def test_a_file_that_does_not_parse_fails(project):
    (project.path / "checks" / "layers.py").write_text("import graphguard\ndef (:\n")
    assert len(names(run(project, "--collect-only", "-q"))) == 1
