"""Verify the tasks of a folder of peer-pair/1 files: ``python -m benchmarks.paper DIR [--json]``.

Every task goes through the product's own engine; what is not proved is run on numbers.  With ``--json`` standard output is a list of
``{"task", "verdict", "seconds"}`` and nothing else.  The status is 0 whatever the verdicts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer_pair.convert import Converted, convert
from benchmarks.peer_pair.document import DocumentError, read_task
from benchmarks.peer_pair.operators import ConversionError
from graphguard.ir import Capture
from graphguard.ir.fuel import SECOND
from graphguard.ir.joining import join
from graphguard.refine.proving.prove import finished, prove

NUMBERS = 30 * SECOND


@dataclass(frozen=True, slots=True)
class Row:
    """The verdict on one task; ``engine`` is the prover's part of ``seconds``."""

    task: str
    verdict: str
    seconds: float
    engine: float = 0.0
    reason: str = ""
    truth: str = ""


def verify(path: Path) -> Row:
    """The verdict on the task in a file."""
    name = path.name.removesuffix(".json.gz")
    started = time.perf_counter()
    try:
        converted = convert(read_task(path))
    except (DocumentError, ConversionError) as error:
        return Row(name, "unknown", time.perf_counter() - started, reason=str(error))
    except Exception as error:  # noqa: BLE001  one document that contradicts itself must not cost the other tasks their verdicts
        reason = f"the document contradicts itself: {type(error).__name__} {error}"
        return Row(name, "unknown", time.perf_counter() - started, reason=reason)
    if converted.conflicts:
        reason = f"conflicting-relations: {converted.conflicts[0]}"
        return Row(name, "unknown", time.perf_counter() - started, reason=reason)
    verdict, reason, engine = _judged(converted)
    return Row(name, verdict, time.perf_counter() - started, engine, reason)


def _judged(converted: Converted) -> tuple[str, str, float]:
    """Verdict, reason and the seconds of the prover: one attempt first, then numbers, and a second attempt only for what they do not refute, as the product does."""
    capture, began = converted.capture, time.perf_counter()
    proof = prove(capture, effort="hasty")
    engine = time.perf_counter() - began
    hang = join(capture.ranks).mismatches
    if hang:
        return "broken", f"collective-mismatch: {hang[0].message.splitlines()[0]}", engine
    said = None
    if not proof.outcome.proved:
        said = _on_numbers(proof.capture)
        if said[0] != "broken":
            began = time.perf_counter()
            proof = finished(proof)
            engine += time.perf_counter() - began
    if not proof.outcome.proved:
        assert said is not None
        return *said, engine
    if converted.unchecked:
        return "unknown", f"not all outputs can be checked: {converted.unchecked[0]}", engine
    return "refines", "; ".join((*capture.assumed, *proof.outcome.assumed)), engine


def _on_numbers(capture: Capture) -> tuple[str, str]:
    """Broken with a counterexample, or unknown with the reason."""
    from graphguard.confirm.check import confirm  # torch is imported only where something is not proved

    said = confirm(capture, steps=NUMBERS)
    if said.status == "differs":
        return "broken", str(said.counterexample or f"{', '.join(said.differing)} differ")
    return "unknown", f"not proved; numbers: {said.reason or said.status}"


def truths(folder: Path) -> dict[str, str]:
    """The known truth of every task, where the folder has an index."""
    index = folder / "INDEX.json"
    if not index.is_file():
        return {}
    rows = json.loads(index.read_text())
    return {str(row["task"]): str(row.get("truth", "")) for row in rows}


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print only JSON on standard output")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    known = truths(options.folder)
    rows = []
    for path in sorted(options.folder.glob("*.json.gz")):
        row = verify(path)
        rows.append(row)
        if not options.json:
            truth = f"   truth: {known[row.task]}" if row.task in known else ""
            print(f"{row.verdict:8} {row.seconds:7.3f} s (engine {row.engine * 1e3:7.1f} ms)  {row.task}{truth}")
            if row.verdict != "refines":
                print(f"         {row.reason}")
    if options.json:
        print(
            json.dumps([{"task": row.task, "verdict": row.verdict, "seconds": round(row.seconds, 4)} for row in rows])
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
