"""Writes docs/messages.md: ten findings as the command line prints them.

Run as ``python -m tests.cases.messages``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from graphguard.report import text
from graphguard.report.layout import Page
from graphguard.report.sources import Sources

from .conftest import judged
from .literate import read_cases

CASES = Path(__file__).parent
SHOWN = (
    ("missing-reduction", "A module whose down projection is not reduced"),
    ("extra-reduction", "Every rank adds the bias before the all-reduce"),
    ("wrong-scale", "The sum over data-parallel ranks instead of the mean"),
    ("wrong-shard", "Every rank takes the first rows"),
    ("wrong-group", "Reduced over the data-parallel axis"),
    ("nonlinear-on-partial", "An activation before the all-reduce"),
    ("gradient-not-reduced", "The input's gradient is not reduced"),
    ("lower-precision", "Reduced in bfloat16"),
    ("dead-collective", "The result of a functional all-reduce is dropped"),
    ("collective-mismatch", "The ranks call different collectives"),
)
HEAD = """\
# Ten findings

Written by `python -m tests.cases.messages` from the literate cases: each is what `graphguard check` prints for the program of that name in
`tests/cases`.
"""


def finding(rule: str, title: str) -> str:
    """What is printed for one case."""
    case = next(case for case in read_cases((CASES / f"{rule}.md").read_text(encoding="utf-8")) if case.title == title)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["*.py"]\n')
        for name, source in case.files.items():
            (root / name).write_text(source)
        sources = Sources(root)
        return "".join(text.findings(report, sources, Page(100)) for report in judged(root, sources))


def main() -> None:
    """Write the page."""
    parts = [f"## {title}\n\n```text\n{finding(rule, title).rstrip()}\n```\n" for rule, title in SHOWN]
    (CASES.parents[1] / "docs" / "messages.md").write_text("\n".join([HEAD, *parts]), encoding="utf-8")


if __name__ == "__main__":
    main()
