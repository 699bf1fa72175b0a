"""The corpus as a table: ``python -m benchmarks.corpus > docs/corpus.md``; every verdict is made anew."""

from __future__ import annotations

import json
import sys

from benchmarks.trust.programs import RECORDER, recorded_corpus
from graphguard.confirm.check import confirm
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture
from graphguard.refine.prove import prove

HEAD = """# The corpus of real bugs

Made by `python -m benchmarks.corpus > docs/corpus.md`. Every record of `tests/corpus/cases.jsonl` is a bug report from a public tracker, as a program with the
bug and as repaired; controls were reported as bugs and are none. `broken` shows the first differing element at the simplest inputs found.

| case | where it was reported | as reported | repaired |
|---|---|---|---|"""


def verdict(capture: Capture) -> tuple[str, Confirmation]:
    """The verdict on a program, and what numbers said."""
    proved, said = prove(capture).outcome.proved, confirm(capture)
    if proved:
        return ("refines" if said.status != "differs" else "PROOF AND NUMBERS DISAGREE"), said
    return ("broken" if said.status == "differs" else "unknown"), said


def cell(capture: Capture) -> str:
    """A verdict in a few words."""
    word, said = verdict(capture)
    return f"{word}: {said.counterexample}" if word == "broken" else word


def main() -> int:
    """The command."""
    records = {row["id"]: row for row in map(json.loads, RECORDER.with_name("cases.jsonl").read_text().splitlines())}
    programs = dict(recorded_corpus())
    print(HEAD)
    verdicts = 0
    for case, record in records.items():
        words = [cell(programs[f"{case}.{variant}"]) for variant in ("buggy", "fixed")]
        right = ("refines" if record["kind"] == "control" else "broken", "refines")
        verdicts += all(word.startswith(start) for word, start in zip(words, right, strict=True))
        title = record["title"].replace("|", "/")
        print(f"| {case} | [{title}]({record['source']}) | {words[0]} | {words[1]} |")
    print(f"\n{verdicts} of {len(records)} cases have both verdicts right.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
