"""Reports on disk: told again without a process as long as nothing has changed that they depend on."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from graphguard.checks.judging.requests import CheckRequest
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.project.discovery import discover
from graphguard.checks.running.driver import Options, run_checks
from graphguard.checks.running.kept import kept_reports
from graphguard.ir import CheckRef, Span
from graphguard.report.diagnostics import Report, Verdict
from graphguard.report.json_document import document
from graphguard.report.sources import Sources

CHECK = """import os
import torch.distributed as dist
import graphguard as gg

def impl(x):
    x = x * float(open("scale.txt").read())
    dist.all_reduce(x)
    return x / 2

@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(lambda x: x * 2, impl, (gg.tensor(4),), out_relations="replicate")
"""


class NoProcess:
    def call(self, method, params):
        raise AssertionError(f"{method} is asked although the report is kept")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHGUARD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "check.py").write_text(CHECK)
    (tmp_path / "scale.txt").write_text("2.0")
    return tmp_path


def run(project, options=None, **processes):
    configuration = Configuration(project)
    (report,) = run_checks(discover([project / "check.py"], configuration), configuration, options, **processes)
    return report


def test_it_is_told_again_without_a_process(project):
    first = run(project)
    assert first.verdict is Verdict.REFINES
    assert not first.cached
    again = run(project, worker=NoProcess(), prover=NoProcess())
    assert again.cached
    assert again.seconds == {}
    assert {name: str(relation) for name, relation in first.relations.items()} == again.relations
    plain = {"seconds": {}, "cached": False, "proof": "", "relations": {}, "depends": None}
    assert replace(again, **plain) == replace(first, **plain)


UNASKED = """
import sys
from pathlib import Path
from graphguard.cli import main
status = main(["check", "check.py", "--output-format", "json"])
loaded = {"torch", "numpy", "graphguard.checks.proving.prover", "graphguard.relations"} & set(sys.modules)
sys.exit(f"loaded: {loaded}" if loaded else status)
"""


def test_nothing_is_loaded_for_what_is_kept(project):
    # Processes of their own both: this one has other folders on its path, so its requests have other keys.
    first = [sys.executable, "-m", "graphguard", "check", "check.py", "--output-format", "json"]
    made = subprocess.run(first, cwd=project, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    told = subprocess.run([sys.executable, "-c", UNASKED], cwd=project, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    (check,) = json.loads(told.stdout)["checks"]
    assert (check["verdict"], check["seconds"]) == ("refines", {})


def test_relations_that_are_kept_serve_who_does_not_ask_for_them_and_not_the_other_way(project):
    kept = kept_reports(Configuration(project))
    asking = CheckRequest(str(project / "check.py"), "check", {"tp": 2}, str(project))
    report = Report(
        CheckRef("check.py::check", "check", Span("check.py", 1)),
        {"tp": 2},
        Verdict.REFINES,
        depends={"sources": {}, "environment": {}, "answers": {}},
    )
    silent = replace(asking, relations=False)
    kept.keep(silent, report)
    assert kept.find(asking) is None
    kept.shelf.clear()
    kept.keep(asking, report)
    assert kept.find(silent).verdict is Verdict.REFINES


def test_what_is_broken_is_told_with_its_fixes(project):
    (project / "check.py").write_text(CHECK.replace("    dist.all_reduce(x)\n", ""))
    first = run(project)
    assert first.verdict is Verdict.BROKEN
    assert first.diagnostics[0].fixes
    again = run(project, worker=NoProcess(), prover=NoProcess())
    assert again.diagnostics == first.diagnostics
    assert again.counterexample == first.counterexample


@pytest.mark.parametrize(
    "change",
    [
        lambda project: (project / "scale.txt").write_text("3.0"),
        lambda project: (project / "check.py").write_text(CHECK + "# a comment: findings quote lines\n"),
        lambda project: next((project / "state" / "graphguard").iterdir()).write_bytes(os.urandom(32)),
    ],
    ids=["a file that it read", "a comment", "another user's key"],
)
def test_it_is_not_told_where_something_has_changed(project, change):
    run(project)
    change(project)
    assert "capture is asked" in run(project, worker=NoProcess(), prover=NoProcess()).diagnostics[0].message


def test_other_options_are_another_report(project):
    run(project, Options(fixes=False))
    assert run(project, worker=NoProcess(), prover=NoProcess()).verdict is None


def test_without_a_cache_none_is_read_or_written(project):
    run(project, Options(cache=False))
    assert not list(project.glob("cache/reports/*/*"))


def test_a_damaged_entry_is_none(project):
    run(project)
    (entry,) = project.glob("cache/reports/*/*")
    entry.write_bytes(entry.read_bytes().replace(b"refines", b"broken"))
    assert run(project).verdict is Verdict.REFINES


def test_another_interpreter_keeps_its_packages_to_itself(project):
    assert kept_reports(Configuration(project)) is not None
    assert kept_reports(Configuration(project, python=("/usr/bin/python3",))) is None


def test_documents_are_equal(project):
    first, again = (document([run(project)], Sources(project)) for _ in range(2))
    for each in (first, again):
        each["checks"][0].pop("seconds")
    assert first == again
