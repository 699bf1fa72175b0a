"""The layers of ARCHITECTURE.md: who may import whom, read from the sources."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "graphguard" / "trace"
SERVER = ROOT / "server"
RELATIONS = ROOT / "graphguard" / "relations"
REFINE = ROOT / "graphguard" / "refine"
CONFIRM = ROOT / "graphguard" / "confirm"
RULES = ROOT / "graphguard" / "rules"
REPAIR = ROOT / "graphguard" / "repair"
CHECKS = ROOT / "graphguard" / "checks"
WITHOUT_RINGS = (TRACE, RELATIONS, REFINE, CONFIRM, RULES, REPAIR, CHECKS, SERVER / "graphguard_server")
# A folder is read at a glance.
MOST_FILES = 25
TORCH_ALLOWED = ("graphguard/trace/", "graphguard/confirm/", "graphguard/checks/", "graphguard/frameworks/")
# What each layer may import of ours, beside itself.
ALLOWED = {
    "ops": set(),
    "ir": {"ops"},
    "trace": {"ops", "ir", "confirm"},
    "relations": {"ops", "ir"},
    "rules": {"ops", "ir", "relations"},
    "refine": {"ops", "ir", "relations", "rules", "confirm"},
    "confirm": {"ops", "ir", "relations", "rules"},
    "repair": {"ops", "ir", "relations", "rules", "refine", "confirm", "report"},
    "diagnose": {"ops", "ir", "relations", "rules", "refine", "confirm", "repair", "report"},
    "report": {"ops", "ir", "confirm"},
    "frameworks": set(),
}


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@functools.cache
def statements(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """What a file imports of absolute names, wherever in it: every test asks of the same files, which are read once."""
    tree = ast.parse(path.read_text())
    return tuple(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module and node.level == 0)
    )


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        else:
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


@pytest.mark.parametrize(
    "module",
    [
        "graphguard",
        "graphguard.checks.proving.prover",
        "graphguard.cli",
        "graphguard.trace.programs.worker",
        "graphguard_server",
    ],
)
def test_needs_no_torch(module: str) -> None:
    """The command line, the prover and the server start without torch; user code is far away from them."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def imported_modules(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it: in functions, and for type checkers alone, as well."""
    found = imports(path)
    for node in statements(path):
        if isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def graph_of(folder: Path) -> dict[str, set[str]]:
    """Which files of a folder import which others of it."""
    base = SERVER if folder.is_relative_to(SERVER) else ROOT
    files = {".".join(path.relative_to(base).with_suffix("").parts): path for path in folder.rglob("*.py")}
    named = {name for name, path in files.items() if path.name != "__init__.py"}
    return {name: (imported_modules(files[name]) & named) - {name} for name in named}


def ring_in(graph: dict[str, set[str]]) -> list[str]:
    """Some names that import each other in a ring; none where there is no ring."""
    done: set[str] = set()

    def visit(name: str, above: list[str]) -> list[str]:
        if name in above:
            return above[above.index(name) :]
        if name in done:
            return []
        ring = next(filter(None, (visit(other, [*above, name]) for other in sorted(graph.get(name, ())))), [])
        done.add(name)
        return ring

    return next(filter(None, (visit(name, []) for name in sorted(graph))), [])


def test_rings_are_found() -> None:
    assert ring_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert ring_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize("folder", WITHOUT_RINGS, ids=lambda folder: str(folder.name))
def test_no_ring_of_files(folder: Path) -> None:
    assert ring_in(graph_of(folder)) == []


@pytest.mark.parametrize("folder", WITHOUT_RINGS, ids=lambda folder: str(folder.name))
def test_no_ring_of_rooms(folder: Path) -> None:
    rooms: dict[str, set[str]] = {}
    for name, others in graph_of(folder).items():
        room = name.rpartition(".")[0]
        rooms.setdefault(room, set()).update(other.rpartition(".")[0] for other in others)
    assert len(rooms) > 3
    assert ring_in({room: others - {room} for room, others in rooms.items()}) == []


@pytest.mark.parametrize("folder", [ROOT / "graphguard", SERVER], ids=["engine", "server"])
def test_no_ring_of_files_anywhere(folder: Path) -> None:
    graph = graph_of(folder)
    assert sum(map(len, graph.values())) > 50
    assert ring_in(graph) == []


def test_rules_of_rewriting_do_not_import_each_other() -> None:
    rules = {
        name: others for name, others in graph_of(RELATIONS / "simplify").items() if name.rsplit(".")[-1] != "table"
    }
    assert len(rules) > 8
    assert {name: others for name, others in rules.items() if others} == {}


def test_trace_does_not_import_checks() -> None:
    """What a check claims is recorded in ``trace/claims``, where ``checks`` finds it."""
    found = [
        (path.relative_to(ROOT).as_posix(), name)
        for path in TRACE.rglob("*.py")
        for name in imported_modules(path)
        if f"{name}.".startswith("graphguard.checks.")
    ]
    assert found == []


@pytest.mark.parametrize("folder", WITHOUT_RINGS, ids=lambda folder: str(folder.name))
def test_rooms(folder: Path) -> None:
    """No folder is too wide, and each says what lives there."""
    for room in {path.parent for path in folder.rglob("*.py")} - {folder}:
        assert len(list(room.glob("*.py"))) - 1 <= MOST_FILES, room
        text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
        assert 1 <= len(text.splitlines()) <= 5, room


def test_trace_is_rooms_alone() -> None:
    assert {path.name for path in TRACE.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("folder", ["graphguard", "server"])
def test_no_file_counts_the_folders_above_it(folder: str) -> None:
    """A file that moves would find another folder, and a digest of its sources would be one of fewer files in silence."""
    counting = [
        path.relative_to(ROOT).as_posix()
        for path in sources(folder)
        if re.search(r"Path\(__file__\)(\.resolve\(\))?\.parent(s\[[1-9]|\.parent)", path.read_text())
    ]
    assert counting == []
