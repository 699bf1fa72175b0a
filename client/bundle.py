"""Fills ``bundled/`` with what the extension needs beside the user's own Python and torch: engine, server, and their pure-Python dependencies.

Beside them lies the wheel, from which the command line is installed into an environment.

The dependencies are pinned by hash in ``client/bundled-requirements.txt``; wheels are taken as they are for any platform, native
accelerators left out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUNDLED = ROOT / "bundled"
LIBRARIES = BUNDLED / "libs"
PACKAGES = (ROOT / "graphguard", ROOT / "server" / "graphguard_server")
SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", "tests")


def bundle_engine() -> None:
    """Copy engine, server and launcher."""
    for package in PACKAGES:
        shutil.copytree(package, BUNDLED / "engine" / package.name, ignore=SKIPPED)
    shutil.copytree(Path("docs/rules"), BUNDLED / "engine" / "docs" / "rules")
    shutil.copy(ROOT / "client" / "launch.py", BUNDLED / "launch.py")
    bundle_metadata()


def bundle_metadata() -> None:
    """Leave what ``importlib.metadata.version("graphguard")`` reads."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    folder = BUNDLED / "engine" / f"graphguard-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: graphguard\nVersion: {version}\n", encoding="utf-8")


def bundle_wheel() -> None:
    """Build what pip installs."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", BUNDLED, ROOT], check=True)


def bundle_libraries() -> None:
    """Install the pinned wheels, then drop what no import needs."""
    requirements = ROOT / "client" / "bundled-requirements.txt"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]
    # One platform for every host: the wheels are the same but for native accelerators, which are dropped below.
    options = ["--platform", "manylinux2014_x86_64", "--python-version", "3.11"]
    options += ["--no-deps", "--only-binary=:all:", "--no-compile", "--require-hashes"]
    subprocess.run([*pip, "install", *options, "--target", LIBRARIES, "-r", requirements], check=True)
    for pattern in ("bin", "**/tests", "**/__pycache__", "**/*.so", "**/*.pyd"):
        for path in [*LIBRARIES.glob(pattern)]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


if __name__ == "__main__":
    shutil.rmtree(BUNDLED, ignore_errors=True)
    bundle_engine()
    bundle_wheel()
    bundle_libraries()
