"""The command line's cache: projects whose checks ask things, an edit of what was asked, and a second run against one without the cache."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.trust.programs import ROOT
from benchmarks.trust.world.questions import Question, question

_CHECKS = 8  # of a project
_OLD = 1e8  # seconds: when a file was written, before the edit
_SECONDS = 600
HEADER = """\
import glob
import importlib.util
import linecache
import mmap
import os
import pkgutil
import shutil
import subprocess
from pathlib import Path

import numpy as np

import graphguard as gg


def opened(path):
    try:
        return len(open(path).read()) > 0
    except OSError:
        return 0


def status(path):
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return 0


def imported(name):
    try:
        return importlib.import_module(name).VALUE
    except ModuleNotFoundError:
        return 0


def claim(scale):
    return gg.Refinement(lambda x: x * 2, lambda x: x * (2 + int(scale())), (gg.tensor(4),), grads=False)
"""
# Where the question is asked: while the check's file is imported, while it is built, while the implementation runs.
_ASKED = {
    "import": "ANSWER_{0} = {1}\n\n@gg.check(mesh={{'tp': 2}})\ndef check_{0}(mesh):\n    return claim(lambda: ANSWER_{0})\n",
    "building": "@gg.check(mesh={{'tp': 2}})\ndef check_{0}(mesh):\n    answer = {1}\n    return claim(lambda: answer)\n",
    "running": "@gg.check(mesh={{'tp': 2}})\ndef check_{0}(mesh):\n    return claim(lambda: {1})\n",
}


@dataclass(frozen=True, slots=True)
class Stale:
    """A check whose second run differs from one without a cache."""

    question: Question
    asked: str
    first: str
    second: str
    fresh: str

    def __str__(self) -> str:
        """In one line."""
        return f"asked while {self.asked}: {self.question.expression}: {self.first}, after the edit {self.second}, without the cache {self.fresh}"


def run(checks: int, seed: int, jobs: int) -> tuple[list[Stale], int, int]:
    """The stale answers among so many checks, how many the edit changed, and how many there were."""
    numbers = range(seed, seed + -(-checks // _CHECKS))
    stale, changed = [], 0
    with ThreadPoolExecutor(jobs) as pool:
        for found, differ in pool.map(project, numbers):
            stale += found
            changed += differ
            print(f"{changed} answers changed, {len(stale)} stale", file=sys.stderr, flush=True)
    return stale, changed, len(numbers) * _CHECKS


def project(number: int) -> tuple[list[Stale], int]:
    """One project: run, edit, run again, and once more without the cache."""
    rng = random.Random(number)
    with Folders() as folders:
        questions = [question(rng, f"thing{number}of{place}", folders.places) for place in range(_CHECKS)]
        asked = [rng.choice(list(_ASKED)) for _ in questions]
        folders.write(questions, asked)
        folders.arrange(*(each.before for each in questions))
        first = folders.verdicts(*(each.variables[0] for each in questions))
        folders.arrange(*(each.after for each in questions), edited=True)
        variables = [each.variables[1] for each in questions]
        second = folders.verdicts(*variables)
        fresh = folders.verdicts(*variables, cache=False)
    rows = [
        Stale(each, when, first[name], second[name], fresh[name])
        for name, each, when in zip(sorted(fresh), questions, asked, strict=True)
    ]
    return [row for row in rows if row.second != row.fresh], sum(row.first != row.fresh for row in rows)


class Folders:
    """A project's folder, one beside it, one among the system's temporary files and one in memory, and a cache of its own."""

    def __init__(self) -> None:
        self._made = [Path(tempfile.mkdtemp(prefix="world-cache-")) for _ in range(2)]
        memory = Path("/dev/shm")
        self._made.append(Path(tempfile.mkdtemp(prefix="world-cache-", dir=memory if memory.is_dir() else None)))
        base = self._made[0]
        self.places = {
            "project": str(base / "project"),
            "beside": str(base / "beside"),
            "temporary": str(self._made[1]),
            "memory": str(self._made[2]),
        }
        for folder in ("project/data", "project/.hidden", "beside"):
            (base / folder).mkdir(parents=True)
        self._base = base

    def __enter__(self) -> Folders:
        """They are there."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take them away."""
        for folder in self._made:
            shutil.rmtree(folder)

    def write(self, questions: list[Question], asked: list[str]) -> None:
        """One file for each check: what one asks while it is imported is nothing to the others."""
        for place, (each, when) in enumerate(zip(questions, asked, strict=True)):
            text = f"{HEADER}\n\n{each.prelude}\n\n{_ASKED[when].format(place, each.expression)}"
            (self._base / "project" / f"check_{place}.py").write_text(text)

    def arrange(self, *files: dict[str, str | None], edited: bool = False) -> None:
        """Make these files what they shall be; before the edit they are old."""
        for path, text in (item for each in files for item in each.items()):
            if text is None:
                Path(path).unlink(missing_ok=True)
                continue
            Path(path).write_text(text)
            if not edited:
                os.utime(path, (_OLD, _OLD))

    def verdicts(self, *variables: dict[str, str], cache: bool = True) -> dict[str, str]:
        """The verdict of every check, by its file, as the command line gives it."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        environment |= {"GRAPHGUARD_CACHE_DIR": str(self._base / "cache"), "XDG_STATE_HOME": str(self._base / "state")}
        for each in variables:
            environment |= each
        command = [
            sys.executable,
            "-m",
            "graphguard",
            "check",
            "--output-format",
            "json",
            *([] if cache else ["--no-cache"]),
            ".",
        ]
        done = subprocess.run(
            command,
            cwd=self._base / "project",
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        return dict(_verdicts(json.loads(done.stdout)))


def _verdicts(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for row in document["checks"]:
        yield Path(row["file"]).name, str(row["verdict"])
