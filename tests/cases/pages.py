"""Pages of the documentation as tests: the files that a page gives, and the commands that it runs on them with what they print.

A page is followed from top to bottom in one folder, as a reader follows it:

- a ``python`` or ``toml`` block with ``title="checks/mlp.py"`` is written to that file;
- a ``diff`` block with a title changes the file: its lines are one place of it;
- a ``console`` block runs its ``$`` lines, of ``graphguard`` and ``pytest``; what follows is what they print.  Times are not compared, and a line
  ``...`` stands for any lines.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?[^\n]*\n(?P<body>.*?)^```$', re.M | re.S)
_TIME = re.compile(r"\b\d+(?:\.\d+)? ?m?s\b(?: \(\d+:\d\d:\d\d\))?|\bcached\b")
# Where packages lie, as a page says it.
INSTALLED = ".venv/lib/python3/site-packages"
_COMMANDS = {"graphguard": "graphguard.cli", "pytest": "pytest"}


class PageError(Exception):
    """A page does not do what it says; the message says where."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its file (empty: none), its text, and where that lies in the page."""

    language: str
    title: str
    body: str
    start: int
    end: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        Block(found["language"], found["title"] or "", found["body"], found.start("body"), found.end("body"))
        for found in _FENCE.finditer(page)
    ]


def packages(page: str) -> set[str]:
    """The top-level packages that the page's files import; raises ``SyntaxError`` where one is no Python."""
    trees = [ast.parse(block.body) for block in blocks(page) if block.language == "python"]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a ``console`` block, each with what it prints."""
    for each in re.split(r"^\$ ", block.body, flags=re.M)[1:]:
        command, _, printed = each.partition("\n")
        yield command.strip(), printed


def followed(page: str, folder: Path) -> str:
    """The page with what its commands print today, where that is not what it says; files are written to ``folder``."""
    changed: list[tuple[Block, str]] = []
    for block in blocks(page):
        if block.language == "console":
            changed.append((block, "".join(_session(block, folder))))
        elif block.title:
            _write(block, folder / block.title)
    for block, text in reversed(changed):
        page = page[: block.start] + text + page[block.end :]
    return page


def _write(block: Block, path: Path) -> None:
    if block.language != "diff":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.body)
        return
    rows = block.body.splitlines(keepends=True)
    before, after = ("".join(row[1:] for row in rows if row[0] in signs) for signs in (" -", " +"))
    source = path.read_text()
    if source.count(before) != 1:
        raise PageError(f"{block.title} has {source.count(before)} places as in the block\n{block.body}")
    path.write_text(source.replace(before, after))


def _session(block: Block, folder: Path) -> Iterator[str]:
    said = list(commands(block))
    for place, (command, printed) in enumerate(said):
        found = _printed(command, folder)
        gap = "" if place == len(said) - 1 else "\n"
        yield f"$ {command}\n" + (printed if _like(printed, found) else found + gap)


def _printed(command: str, folder: Path) -> str:
    program, *arguments = command.split()
    if program not in _COMMANDS:
        raise PageError(f"a page runs {', '.join(_COMMANDS)}, not {program!r}")
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    environment.pop("FORCE_COLOR", None)
    done = subprocess.run(
        [sys.executable, "-m", _COMMANDS[program], *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = done.stdout.replace(sysconfig.get_path("purelib"), INSTALLED)
    return "".join(f"{line.rstrip()}\n" for line in said.splitlines())


def _like(said: str, found: str) -> bool:
    """Whether what a page says is what a command printed, but for times and what ``...`` stands for."""
    parts = ["" if line == "..." else re.escape(_TIME.sub("TIME", line)) + "\n" for line in said.strip().splitlines()]
    pattern = "".join(part or "(?:.*\n)*?" for part in parts)
    return re.fullmatch(pattern, _TIME.sub("TIME", found.strip() + "\n")) is not None


def untried(page: str) -> list[str]:
    """The Python files of a page that no command names and no other file imports."""
    run = [command for block in blocks(page) if block.language == "console" for command, _ in commands(block)]
    if "graphguard check" in run:
        return []
    imported = packages(page)
    titles = dict.fromkeys(block.title for block in blocks(page) if block.language == "python")
    return [
        title
        for title in titles
        if Path(title).stem not in imported and not any(title and title in command for command in run)
    ]
