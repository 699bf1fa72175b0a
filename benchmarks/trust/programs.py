"""Captures of correct programs to mutate: the checks of files, recorded by the product's worker; the corpus's repaired programs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphguard.ir import Capture, capture_from_json

ROOT = Path(__file__).parents[2]
RECORDING_SECONDS = 3600
RECORDER = ROOT / "tests" / "corpus" / "recording.py"


def recorded_checks(files: list[Path]) -> Iterator[tuple[str, Capture]]:
    """Every check of the files on each of its meshes; recorded in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.trust.record_checks", folder, *map(str, files)]
        subprocess.run(command, check=True, timeout=RECORDING_SECONDS, stdout=subprocess.DEVNULL, cwd=ROOT)
        yield from _read(Path(folder))


def recorded_corpus() -> Iterator[tuple[str, Capture]]:
    """Every program of the corpus, named after its case and variant (``buggy`` or ``fixed``)."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, RECORDER, folder], check=True, timeout=RECORDING_SECONDS, stdout=subprocess.DEVNULL
        )
        yield from _read(Path(folder))


def _read(folder: Path) -> Iterator[tuple[str, Capture]]:
    for path in sorted(folder.glob("*.json")):
        capture = capture_from_json(path.read_bytes())
        if not capture.troubles:
            yield path.stem, capture
