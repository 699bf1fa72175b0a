"""The tools around: what action.yml runs, the pre-commit hook, and formats that are written to files beside the terminal's."""

import json
import os
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from graphguard.cli import main

from .project import WRONG, write_project

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "integrations" / "github-action.sh"
STUB = """#!/bin/bash
for argument in "$@"; do
  echo "<$argument>"
  [[ $argument == *=* ]] && echo "made by ${argument%%=*}" >"${argument#*=}"
done
exit "$STUB_CODE"
"""


def run_action(folder, **inputs):
    """The script with a stand-in for the command line: what it printed, and what it told the next steps."""
    (folder / "bin").mkdir(exist_ok=True)
    stub = folder / "bin" / "graphguard"
    stub.write_text(STUB)
    stub.chmod(0o755)
    told = folder / "told"
    told.write_text("")
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(told),
        "STUB_CODE": "0",
        "GG_SARIF_FILE": "out.sarif",
        "GG_JUNIT_FILE": "out.xml",
        **inputs,
    }
    done = subprocess.run(
        ["bash", str(SCRIPT)], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout, told.read_text()


def test_the_action_tells_the_exit_code_to_the_steps_behind_it(tmp_path):
    shown, told = run_action(tmp_path, STUB_CODE="3")
    assert "<check>\n<--output>\n<sarif=out.sarif>\n<--output>\n<junit=out.xml>\n" in shown
    assert told == "exit-code=3\nsarif=true\n"


def test_annotations_are_printed_behind_the_text(tmp_path):
    assert run_action(tmp_path)[0].endswith("made by github\n")
    assert "github" not in run_action(tmp_path, GG_ANNOTATIONS="false")[0]


def test_inputs_are_arguments_and_never_code(tmp_path):
    shown, _ = run_action(
        tmp_path,
        GG_PATHS="checks/a b.py::mlp\n$(touch injected)\n",
        GG_MESH="tp=2\ntp=4,dp=2",
        GG_BASELINE="base line.json",
        GG_JOBS="2",
    )
    for argument in ("--baseline>\n<base line.json", "--jobs>\n<2", "--mesh>\n<tp=2", "--mesh>\n<tp=4,dp=2"):
        assert f"<{argument}>" in shown
    assert "<checks/a b.py::mlp>\n<$(touch injected)>" in shown
    assert not (tmp_path / "injected").exists()


def test_the_action_gives_the_script_everything_that_it_reads():
    action = (ROOT / "action.yml").read_text()
    given = set(re.findall(r"^        (GG_\w+): ", action, re.MULTILINE))
    read = set(re.findall(r"\bGG_\w+", SCRIPT.read_text()))
    assert read <= given
    assert "run: '\"$GG_ACTION_PATH/integrations/github-action.sh\"'" in action
    assert os.access(SCRIPT, os.X_OK)
    inputs = set(re.findall(r"^  ([\w-]+):\n    description", action, re.MULTILINE))
    assert set(re.findall(r"inputs\.([\w-]+)", action)) <= inputs


def test_formats_are_written_to_files_beside_what_the_terminal_shows(project, capsys):
    write_project(project, WRONG)
    files = {"sarif": "out.sarif", "junit": "out.xml", "json": "out.json"}
    outputs = [argument for name, file in files.items() for argument in ("--output", f"{name}={file}")]
    assert main(["check", "--no-fix", *outputs]) == 1
    shown = capsys.readouterr().out
    assert "error[missing-reduction]" in shown
    assert "= fix:" not in shown, "no fix was looked for"
    assert json.loads(Path("out.sarif").read_text())["version"] == "2.1.0"
    assert json.loads(Path("out.json").read_text())["checks"][1]["diagnostics"][0]["fixes"] == []
    cases = [case.get("name") for case in ElementTree.parse("out.xml").iter("testcase")]
    assert cases == ["right[tp=2]", "wrong[tp=2]"]


@pytest.mark.parametrize("text", ["sarif", "sarif=", "text=x", "none=x"])
def test_an_output_that_is_none(capsys, text):
    with pytest.raises(SystemExit):
        main(["check", "--output", text])
    assert f"{text!r} is not FORMAT=FILE with one of the formats concise, json, sarif" in capsys.readouterr().err
