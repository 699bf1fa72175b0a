"""What became of spoiled programs, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STRANGERS = Path(__file__).parents[1] / "strangers" / "first_runs.md"
"""What was reached on programs that were seen for the first time, kept at the end of the document."""
BOUNDS = {"diagnosis": 0.3, "fixes": 2.0}
"""Seconds that a part may take for one decoder layer."""
SLOWEST = 10
MARKS = ("broken", "line", "rule", "fix", "one", "numbers")

HEAD = """# Diagnosis of spoiled programs

Made by `make diagnosis`. Every row is a correct program
with one source edit from the lists in `benchmarks/mutants`, which say the line and the rule in advance. *line*: the primary range of the first finding is on a line where
the repair belongs; *rule*: its rule is one that names this defect; *fix*: it carries a source edit that was traced and proved again; *one*: it is the only finding; *numbers*:
a counterexample is shown.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one spoiled program; ``parts`` is processor time in seconds by what it was spent on, ``revision`` that of the code it ran on."""

    name: str
    program: str
    rules: tuple[str, ...]
    marks: dict[str, bool]
    findings: list[str]
    fixes: list[str]
    place: str
    seconds: float
    parts: dict[str, float]
    revision: str = "an earlier one"

    @property
    def rule(self) -> str:
        """The rule of the first finding."""
        return self.findings[0].split(":")[0] if self.findings else "none"


def shares(rows: Sequence[Row]) -> dict[str, str]:
    """How many rows have each mark."""
    count = len(rows)
    reached = {mark: sum(row.marks[mark] for row in rows) for mark in MARKS}
    return {mark: f"{number}/{count} ({100 * number / count:.1f} %)" for mark, number in reached.items()}


def document(rows: Sequence[Row]) -> str:
    """The document of all rows."""
    revisions = ", ".join(f"{count} at {name}" for name, count in Counter(row.revision for row in rows).most_common())
    parts = [
        HEAD,
        f"{len(rows)} spoiled programs. Revision of the code: {revisions}.\n",
        "| figure | reached |",
        "|---|---|",
    ]
    parts += [f"| {mark} | {share} |" for mark, share in shares(rows).items()]
    parts.append(_times(rows))
    for program in dict.fromkeys(row.program for row in rows):
        parts.append(
            f"\n## {program}\n\n| edit | {' | '.join(MARKS)} | rule | first fix |\n|---|{'---|' * (len(MARKS) + 2)}"
        )
        parts += [_line(row) for row in rows if row.program == program]
    return "\n".join(parts) + "\n" + STRANGERS.read_text(encoding="utf-8")


def _line(row: Row) -> str:
    cells = ["yes" if row.marks[mark] else "**no**" for mark in MARKS]
    fix = row.fixes[0].replace("|", "/") if row.fixes else ""
    return f"| {row.name} | {' | '.join(cells)} | {row.rule} | {f'`{fix}`' if fix else ''} |"


def _times(rows: Sequence[Row]) -> str:
    """How long diagnosis and fix search take, against their bounds, and where they take longest."""
    lines = [
        "\nProcessor time, of which the search for fixes has most in the tracing of edited programs. Bounds are for one decoder layer.\n",
        "| | in the middle | 9 of 10 | at most | bound | within it |",
        "|---|---|---|---|---|---|",
    ]
    for part, bound in BOUNDS.items():
        seconds = sorted(row.parts[part] for row in rows if part in row.parts)
        if seconds:
            kept = sum(each <= bound for each in seconds)
            shown = (seconds[len(seconds) // 2], seconds[len(seconds) * 9 // 10], seconds[-1], bound)
            figures = " | ".join(f"{1000 * each:.0f} ms" for each in shown)
            lines.append(f"| {part} | {figures} | {kept}/{len(seconds)} ({100 * kept / len(seconds):.1f} %) |")
    for part in BOUNDS:
        slowest = sorted((row for row in rows if part in row.parts), key=lambda row: -row.parts[part])[:SLOWEST]
        told = "; ".join(f"{row.name} ({1000 * row.parts[part]:.0f} ms)" for row in slowest)
        lines.append(f"\nSlowest {part}: {told}.")
    return "\n".join(lines)
