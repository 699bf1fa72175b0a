"""An error in a program that a check brings about, by the inputs that it gives, is shown at the check as well; how the command line is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from graphguard_server.features.checking.reproduce import command_line
from graphguard_server.state.checks import Run, RunKey
from graphguard_server.state.convert import Converter
from graphguard_server.texts.documents import Documents

from graphguard.ir.capture import CheckRef
from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Diagnostic, RelatedPlace, Report, Verdict

ROOT = Path(__file__).parents[2]


def error_run(folder: Path, mesh: str, told_at_check: bool, verdict: Verdict | None = None) -> tuple[Run, str]:
    check_file, model = str(folder / "check.py"), str(folder / "model.py")
    Path(check_file).write_text("import model\n\ndef mlp(mesh): ...\n")
    Path(model).write_text("def f(x):\n    return x @ x\n")
    place = Span(check_file, 3, 5, 3, 8)
    related = (RelatedPlace(place, "the inputs of this check are x [4, 2]"),) if told_at_check else ()
    message = "RuntimeError: sizes differ\nwhile running the specification"
    found = Diagnostic("trace-error", "trace-error", message, "error", Span(model, 2, 12, 2, 17), related)
    report = Report(CheckRef("check.py::mlp", "mlp", place), {"tp": 2}, verdict, (found,))
    return Run(RunKey(str(folder), "check.py::mlp", mesh), {"tp": 2}, report=report), check_file


def test_an_error_is_shown_at_the_check_that_gives_the_inputs(tmp_path: Path) -> None:
    run, check_file = error_run(tmp_path, "tp=2", told_at_check=True)
    again, _ = error_run(tmp_path, "tp=4", told_at_check=True)
    converter = Converter(Documents(), "")
    (cause,) = converter.causes([run, again], check_file)
    shown = converter.diagnostic(cause, related=True)
    assert shown.range.start.line == 2
    assert "this check could not be run: RuntimeError: sizes differ" in shown.message
    assert "the inputs of this check are x [4, 2]" in shown.message
    assert shown.related_information is not None
    assert shown.related_information[0].location.uri.endswith("model.py")


@pytest.mark.parametrize(("told", "verdict"), [(False, None), (True, Verdict.BROKEN)])
def test_other_findings_stay_where_they_are(tmp_path: Path, told: bool, verdict: Verdict | None) -> None:
    run, check_file = error_run(tmp_path, "tp=2", told, verdict)
    assert Converter(Documents(), "").causes([run], check_file) == []


def test_the_bundled_engine_has_its_own_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed there: the launcher alone knows where engine and libraries lie."""
    bundle = tmp_path / "bundled"
    (bundle / "libs").mkdir(parents=True)
    (bundle / "engine").mkdir()
    (bundle / "launch.py").write_text((ROOT / "client" / "launch.py").read_text())
    for package in ("graphguard", "server/graphguard_server"):
        (bundle / "engine" / Path(package).name).symlink_to(ROOT / package)
    (bundle / "engine" / "graphguard-0.dist-info").mkdir()
    (bundle / "engine" / "graphguard-0.dist-info" / "METADATA").write_text("Name: graphguard\nVersion: 7.7\n")
    monkeypatch.setenv("GRAPHGUARD_ENGINE_PATH", str(bundle / "engine"))
    command = [*command_line(), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=100, check=False)
    assert said.stdout == "graphguard 7.7\n", said.stderr


def test_an_installed_engine_is_started_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHGUARD_ENGINE_PATH", raising=False)
    assert command_line() == [sys.executable, "-P", "-m", "graphguard"]
