"""Writes docs/messages.md: ten findings as the command line prints them, as pictures and as text.

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
from .pictures import picture

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


def finding(rule: str, title: str) -> tuple[str, str]:
    """What is printed for one case, on a terminal and in a pipe."""
    case = next(case for case in read_cases((CASES / f"{rule}.md").read_text(encoding="utf-8")) if case.title == title)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["*.py"]\n')
        for name, source in case.files.items():
            (root / name).write_text(source)
        sources = Sources(root)
        reports = judged(root, sources)
        return text.findings(reports, sources, Page(100, colour=True)), text.findings(reports, sources, Page(100))


def main() -> None:
    """Write the page."""
    docs = CASES.parents[1] / "docs"
    (docs / "images" / "messages").mkdir(parents=True, exist_ok=True)
    parts = [HEAD]
    for rule, title in SHOWN:
        coloured, plain = finding(rule, title)
        (docs / "images" / "messages" / f"{rule}.svg").write_text(picture(coloured), encoding="utf-8")
        shown = f"![{plain.partition(chr(10))[0]}](images/messages/{rule}.svg)"
        more = f"<details><summary>as text</summary>\n\n```text\n{plain.rstrip()}\n```\n\n</details>"
        parts.append(f"## {title}\n\nRule [{rule}](rules/{rule}.md).\n\n{shown}\n\n{more}\n")
    (docs / "messages.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
