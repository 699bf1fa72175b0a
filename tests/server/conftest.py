"""A workspace and a client for tests of the server; specification warnings are errors."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent))

from lsp_editor import CHECK, MODEL, Editor, editing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/server" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("error::pytest_lsp.LspSpecificationWarning"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[tool.graphguard]\n")
    (folder / "model.py").write_text(MODEL)
    (folder / "check_mlp.py").write_text(CHECK)
    return folder


@pytest_asyncio.fixture
async def editor(workspace: Path, tmp_path: Path) -> AsyncIterator[Editor]:
    async with editing(workspace, tmp_path / "log") as found:
        yield found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"
