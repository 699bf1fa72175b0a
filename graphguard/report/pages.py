"""Writes docs/rules from the registry: ``python -m graphguard.report.pages docs/rules``."""

from __future__ import annotations

import sys
from pathlib import Path

from graphguard.report.catalogue import RULES
from graphguard.report.registry import index, page


def pages() -> dict[str, str]:
    """File name to text of every generated page."""
    return {"README.md": index(), **{f"{rule.name}.md": page(rule) for rule in RULES.values()}}


def write(folder: Path) -> None:
    """Write every page and remove pages of rules that no longer exist."""
    wanted = pages()
    folder.mkdir(parents=True, exist_ok=True)
    for stale in set(folder.glob("*.md")) - {folder / name for name in wanted}:
        stale.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
