"""The configurations of docs/editors.md for editors that are not run here: the command and the options that they give start the server."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from lsp_editor import editing

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "mlp_missing_all_reduce.py"


def block(editor: str, language: str) -> str:
    """The first code block of a language in an editor's section."""
    section = re.split(r"^## ", (ROOT / "docs" / "editors.md").read_text(), flags=re.MULTILINE)
    (text,) = (part for part in section if part.startswith(editor))
    found = re.search(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    assert found is not None, f"docs/editors.md has no {language} block for {editor}"
    return found.group(1)


def helix() -> tuple[list[str], dict[str, Any]]:
    document = tomllib.loads(block("Helix", "toml"))
    server = document["language-server"]["graphguard"]
    (python,) = document["language"]
    assert python["name"] == "python"
    assert "graphguard" in python["language-servers"]
    return [server["command"], *server["args"]], server["config"]


def zed() -> tuple[list[str], dict[str, Any]]:
    document = json.loads(block("Zed", "json"))
    (name,) = document["lsp"]
    assert name in document["languages"]["Python"]["language_servers"]
    server = document["lsp"][name]
    return [server["binary"]["path"], *server["binary"]["arguments"]], server["initialization_options"]


@pytest.mark.parametrize("configuration", [helix, zed])
async def test_the_documented_configuration_finds_the_defect(configuration: Any, tmp_path: Path) -> None:
    (program, *arguments), options = configuration()
    installed = Path(sys.executable).parent / program
    assert installed.exists(), f"{program} is no command of this package"
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["check_*.py"]\n')
    text = EXAMPLE.read_text()
    (folder / "check_mlp.py").write_text(text)
    command = [str(installed), *arguments]
    async with editing(folder, tmp_path / "log", command=command, options=options) as editor:
        uri = editor.open("check_mlp.py", text)
        (found,) = await editor.until(lambda: editor.diagnostics(uri), 90)
        assert found.code == "missing-reduction"
