"""Installs the wheel into fresh environments, one for each Python and each torch, and tries it there: ``make matrix`` prints what was found as a table.

A torch of ``none`` is an environment of a tool: GraphGuard alone, which records in the interpreter that runs this script; ``system`` is the torch that the Python has
already, as one from a distribution's packages.  Environments are made in a scratch folder and removed.  ``TORCH_ARGS`` go to pip where it installs torch: ``--index-url URL`` for a build without CUDA, ``--no-index`` for what lies on this machine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = {"llama.py": 0, "mlp_missing_all_reduce.py": 1}  # one refines, one is broken
EXTRAS = "[dask,mcp,server]"


def ran(*command: object, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder, with nothing of ours in its environment."""
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**bare, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def done(*command: object, folder: Path, **variables: str) -> str:
    """What a command prints; raises ``RuntimeError`` with its last line where it fails."""
    found = ran(*command, folder=folder, **variables)
    if found.returncode:
        lines = (found.stderr.strip() or found.stdout.strip()).splitlines()
        raise RuntimeError(f"{Path(str(command[0])).name} {command[1]}: {lines[-1] if lines else found.returncode}")
    return found.stdout.strip()


def by_pip(wheel: Path, python: str, torch: str, folder: Path) -> Path:
    """The scripts' folder of an environment with torch, if any, and then GraphGuard."""
    seen = ["--system-site-packages"] if torch == "system" else []
    done(python, "-m", "venv", *seen, folder / "venv", folder=folder)
    scripts = folder / "venv" / "bin"
    if torch not in ("none", "system"):
        arguments = shlex.split(os.environ.get("TORCH_ARGS", ""))
        done(scripts / "pip", "install", "--no-deps", *arguments, f"torch=={torch}", folder=folder)
        done(scripts / "pip", "install", f"torch=={torch}", folder=folder)  # what it needs
    before = torch_in(scripts / "python", folder)
    done(scripts / "pip", "install", f"graphguard{EXTRAS} @ {wheel.as_uri()}", folder=folder)
    if torch_in(scripts / "python", folder) != before:
        raise RuntimeError(f"pip changed torch from {before or 'none'} to {torch_in(scripts / 'python', folder)}")
    return scripts


def by_uv(wheel: Path, python: str, torch: str, folder: Path) -> Path:
    """The scripts' folder of ``uv tool``."""
    assert torch == "none"
    found = shutil.which(python)
    tools = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    tool = f"graphguard{EXTRAS} @ {wheel.as_uri()}"
    done("uv", "tool", "install", "--python", found, tool, folder=folder, **tools)
    return folder / "tools" / "graphguard" / "bin"


def torch_in(python: Path, folder: Path) -> str:
    """The version of torch that an interpreter has; empty where there is none."""
    return ran(python, "-c", "import importlib.metadata as m; print(m.version('torch'))", folder=folder).stdout.strip()


def tried(scripts: Path, torch: str, folder: Path) -> Iterator[str]:
    """What does not do as it should, one sentence each."""
    project = folder / "project"
    project.mkdir()
    recording = f'python = ["{sys.executable}"]\n' if torch == "none" else ""
    (project / "pyproject.toml").write_text(f"[tool.graphguard]\n{recording}")
    state = {
        "GRAPHGUARD_CACHE_DIR": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    expected = {
        "doctor": 0,
        "explain missing-reduction": 0,
        **{f"check {name}": code for name, code in EXAMPLES.items()},
    }
    if torch != "none":
        use = 'import torch, graphguard as gg; gg.assert_refines(torch.relu, lambda mesh: torch.relu, inputs=(gg.tensor(2),), mesh={"tp": 2})'
        found = ran(scripts / "python", "-c", use, folder=project, **state)
        if found.returncode:
            yield f"gg.assert_refines: {found.stderr.strip().splitlines()[-1]}"
    for name in EXAMPLES:
        shutil.copy(ROOT / "examples" / name, project)
    for words, code in expected.items():
        found = ran(scripts / "graphguard", *words.split(), folder=project, **state)
        if found.returncode != code:
            said = (found.stdout + found.stderr).strip().splitlines()
            yield f"graphguard {words}: status {found.returncode} in place of {code}: {said[-1] if said else ''}"


def main(pythons: list[str], torches: list[str]) -> int:
    """Print a row for each environment; 1 where one does not do as it should."""
    print("| Python | torch | installed by | |\n|---|---|---|---|", flush=True)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="graphguard-matrix-") as scratch:
        wheels = Path(scratch, "wheel")
        done(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", wheels, ROOT, folder=Path(scratch))
        (wheel,) = wheels.glob("*.whl")
        rows = [(python, torch, by_pip) for python in pythons for torch in torches]
        if shutil.which("uv") and "none" in torches:
            rows += [(python, "none", by_uv) for python in pythons]
        for python, torch, install in rows:
            folder = Path(tempfile.mkdtemp(dir=scratch))
            try:
                scripts = install(wheel, python, torch, folder)
                troubles = list(tried(scripts, torch, folder))
                release = done(
                    scripts / "python", "-c", "import platform; print(platform.python_version())", folder=folder
                )
                has = (
                    torch_in(scripts / "python", folder)
                    or f"none; {torch_in(Path(sys.executable), folder)} in the project's"
                )
            except RuntimeError as error:
                troubles, release, has = [f"not installed: {error}"], python, torch
            bad += bool(troubles)
            tool = "pip" if install is by_pip else "uv tool"
            print(f"| {release} | {has} | {tool} | {'; '.join(troubles) or 'works'} |", flush=True)
            shutil.rmtree(folder)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].split(), sys.argv[2].split()))
