"""The import graph, read from source."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphguard_server.texts.imports import ImportGraph

FILES = {
    "check.py": "import pkg.model\nfrom helpers import a, b\nimport torch\n",
    "helpers/__init__.py": "from . import a\n",
    "helpers/a.py": "def late():\n    from ..shared import x\n",
    "helpers/b.py": "",
    "pkg/__init__.py": "",
    "pkg/model.py": "from .layers import Layer\nfrom . import other\n",
    "pkg/layers.py": "import shared\n",
    "pkg/other.py": "import pkg.model\n",
    "src/installed.py": "",
    "shared.py": "import installed\n",
    "unrelated.py": "import shared\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def graph_of(root: Path, texts: dict[str, str] | None = None) -> ImportGraph:
    def read(path: str) -> str | None:
        name = Path(path).relative_to(root).as_posix()
        return (texts or {}).get(name, Path(path).read_text() if Path(path).is_file() else None)

    graph = ImportGraph(str(root), read)
    graph.add(str(root / "check.py"))
    return graph


def names(root: Path, paths: frozenset[str]) -> set[str]:
    return {Path(path).relative_to(root).as_posix() for path in paths}


def test_a_check_is_made_of_all_it_imports(root: Path) -> None:
    found = names(root, graph_of(root).files_of(str(root / "check.py")))
    assert found == set(FILES) - {"unrelated.py"}


def test_a_change_concerns_those_who_import_the_file(root: Path) -> None:
    graph = graph_of(root)
    assert names(root, graph.users_of(str(root / "pkg/layers.py"))) == {
        "pkg/layers.py", "pkg/model.py", "pkg/other.py", "check.py",
    }  # fmt: skip
    assert names(root, graph.users_of(str(root / "unrelated.py"))) == {"unrelated.py"}


def test_unsaved_imports_count_and_a_text_that_does_not_parse_keeps_the_last(root: Path) -> None:
    texts = {"check.py": "import shared\n"}
    graph = graph_of(root, texts)
    check = str(root / "check.py")
    assert names(root, graph.files_of(check)) == {"check.py", "shared.py", "src/installed.py"}
    texts["check.py"] = "import (\n"
    graph.add(check)
    assert names(root, graph.files_of(check)) == {"check.py", "shared.py", "src/installed.py"}
    texts["check.py"] = "x = 1\n"
    graph.add(check)
    assert names(root, graph.files_of(check)) == {"check.py"}


def test_imports_that_only_running_shows_are_kept(root: Path) -> None:
    graph = graph_of(root, {"check.py": "x = 1\n"})
    check, hidden = str(root / "check.py"), str(root / "unrelated.py")
    graph.learn(check, [hidden])
    graph.add(check)
    assert hidden in graph.files_of(check)
    assert check in graph.users_of(hidden)
