"""The corpus as a table: ``python -m benchmarks.corpus > docs/corpus.md``; every verdict and every diagnosis is made anew."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.corpus_rules import RULES
from benchmarks.trust.programs import RECORDER, recorded_corpus
from graphguard.confirm.check import confirm
from graphguard.confirm.confirmation import Confirmation
from graphguard.diagnose.diagnosis import diagnose
from graphguard.ir import Capture
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import prove

HEAD = """# The corpus of real bugs

Made by `python -m benchmarks.corpus > docs/corpus.md`. Every record of `tests/corpus/cases.jsonl` is a program with a bug and as repaired: a report from a public
tracker where it is linked, else made after the kinds that are reported; controls look like bugs and are none. `broken` shows the first differing element at the simplest inputs found.

*Rule* is that of the first finding, and in brackets those that name the bug by judgement (`benchmarks/corpus_rules.py`) where it is none of them. *Lines* is how far the finding's line
is from the nearest line on which the program with the bug and the repaired one differ (the `FIX` in its text). *Repair*: an edit of the graphs was proved to mend the
program; the programs are text that is run, so no edit of a file is tried.

| case | where it was reported | as reported | repaired | rule | lines | repair | findings |
|---|---|---|---|---|---|---|---|"""

SIGNATURE = "def rank(r,R,FIX):"


@dataclass(frozen=True, slots=True)
class Result:
    """What was found out about one case; ``lines`` is None where the finding has no place."""

    group: str
    right: bool
    rule: str
    rule_right: bool
    lines: int | None
    repaired: bool
    findings: int


def judged(capture: Capture) -> tuple[str, Proof, Confirmation]:
    """The verdict on a program in a few words, the proof, and what numbers said."""
    proof = prove(capture)
    said = confirm(proof.capture)
    if proof.outcome.proved:
        return ("refines" if said.status != "differs" else "PROOF AND NUMBERS DISAGREE"), proof, said
    return (f"broken: {said.counterexample}" if said.status == "differs" else "unknown"), proof, said


def result(record: dict[str, Any], proof: Proof, said: Confirmation, right: bool) -> Result:
    """The diagnosis of a program with a bug against what is known of it."""
    text = record["sketch"]
    diagnosis = diagnose(proof.capture, proof, said, lambda file: text if file == f"{record['id']}.py" else None)
    first = diagnosis.findings[0]
    marked = [number for number, line in enumerate(text.splitlines(), 1) if "FIX" in line.replace(SIGNATURE, "")]
    lines = min((abs(first.span.line - line) for line in marked), default=None) if first.span is not None else None
    return Result(
        record["group"],
        right,
        first.rule,
        first.rule in RULES.get(record["id"], ()),
        lines,
        diagnosis.repairs[0] is not None,
        len(diagnosis.findings),
    )


def cells(case: str, found: Result) -> str:
    """A result as cells of the table."""
    judged_right = RULES.get(case, ())
    rule = found.rule if found.rule_right or not judged_right else f"{found.rule} ({' or '.join(judged_right)})"
    return (
        f"{rule} | {'' if found.lines is None else found.lines} | {'yes' if found.repaired else ''} | {found.findings}"
    )


def figures(rows: Iterable[tuple[str, list[Result]]]) -> list[str]:
    """The shares of every group."""
    text = [
        "\nOf the reported bugs:\n\n| group | bugs | both verdicts | rule | within a line | repair | one finding |",
        "|---|---|---|---|---|---|---|",
    ]
    for group, found in rows:
        near = sum(one.lines is not None and one.lines <= 1 for one in found)
        counts = [
            sum(one.right for one in found),
            sum(one.rule_right for one in found),
            near,
            sum(one.repaired for one in found),
            sum(one.findings == 1 for one in found),
        ]
        text.append(f"| {group} | {len(found)} | {' | '.join(map(str, counts))} |")
    return text


def main() -> int:
    """The command."""
    records = {row["id"]: row for row in map(json.loads, RECORDER.with_name("cases.jsonl").read_text().splitlines())}
    programs = dict(recorded_corpus())
    print(HEAD)
    verdicts = 0
    groups: dict[str, list[Result]] = {}
    for case, record in records.items():
        control = record["kind"] == "control"
        word, proof, said = judged(programs[f"{case}.buggy"])
        fixed, _, _ = judged(programs[f"{case}.fixed"])
        right = word.startswith("refines" if control else "broken") and fixed.startswith("refines")
        verdicts += right
        told = " | | | "
        if not control:
            found = result(record, proof, said, right)
            if case in RULES:
                groups.setdefault(found.group, []).append(found)
            told = cells(case, found)
        title = record["title"].replace("|", "/")
        report = f"[{title}]({record['source']})" if record["source"] else title
        print(f"| {case} | {report} | {word} | {fixed} | {told} |", flush=True)
    print("\n".join(figures([*groups.items(), ("all", [one for found in groups.values() for one in found])])))
    print(f"\n{verdicts} of {len(records)} cases have both verdicts right.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
