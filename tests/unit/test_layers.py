"""The layers of ARCHITECTURE.md: who may import whom, read from the sources."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCH_ALLOWED = ("graphguard/trace/", "graphguard/confirm/", "graphguard/checks/")
# What each layer may import of ours, beside itself.
ALLOWED = {
    "ir": set(),
    "trace": {"ir", "confirm"},
    "relations": {"ir"},
    "rules": {"ir", "relations"},
    "refine": {"ir", "relations", "rules", "confirm"},
    "confirm": {"ir", "relations", "rules"},
    "repair": {"ir", "relations", "rules", "refine", "confirm", "report"},
    "report": {"ir", "confirm"},
}


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", sources("graphguard"), ids=lambda path: str(path.relative_to(ROOT)))
def test_engine_layers(path: Path) -> None:
    relative = path.relative_to(ROOT).as_posix()
    layer = relative.split("/")[1]
    for name in imports(path):
        root = name.split(".")[0]
        assert root not in {"graphguard_server", "pygls", "lsprotocol"}, f"{relative} imports {name}"
        if root == "torch":
            assert relative.startswith(TORCH_ALLOWED), f"{relative} imports torch"
        if root == "graphguard" and layer in ALLOWED and name.count("."):
            other = name.split(".")[1]
            assert other == layer or other in ALLOWED[layer], f"{relative} imports {name}"


@pytest.mark.parametrize("module", ["graphguard", "graphguard.checks.prover", "graphguard.cli", "graphguard_server"])
def test_needs_no_torch(module: str) -> None:
    """The command line, the prover and the server start without torch; user code is far away from them."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
