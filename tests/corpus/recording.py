"""Record every program of the corpus as a capture: ``python recording.py FOLDER [ID ...]``; one JSON file per case and variant.

A process of its own, so that the recorder's forks never come from a test runner.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from torch.distributed.tensor import Replicate, Shard
from vocabulary import Case, load, records

from graphguard.ir import Capture, CheckRef, Span
from graphguard.ir.codec import capture_to_json
from graphguard.trace.claims.api import Refinement
from graphguard.trace.process.limits import Limits, default_memory
from graphguard.trace.programs import ranks
from graphguard.trace.programs.rehearsal import rehearse

AXIS = "r"


def placement(promise: str):
    """A promise in DTensor's terms."""
    return Replicate() if promise == "rep" else Shard(int(promise.removeprefix("cat")))


def refinement(case: Case, variant: str) -> Refinement:
    """The pair of programs as a user states it."""
    result = case.spec(*case.inputs)
    outputs = case.promises(len(result) if isinstance(result, tuple) else 1)
    wanted = tuple({AXIS: placement(promise)} for promise in outputs)
    single = wanted[0] if len(wanted) == 1 else wanted
    return Refinement(case.spec, getattr(case, variant), case.inputs, out_relations=single, grads=False)


def recorded(case: Case, variant: str) -> Capture:
    """The capture of one variant of a case."""
    check = CheckRef(f"{case.id}.py::{variant}", variant, Span(f"{case.id}.py", 1))
    limits = Limits(60.0, default_memory())
    job = ranks.Job(lambda _: refinement(case, variant), {AXIS: case.world}, check, ".", limits, time.monotonic())
    return ranks.record(job, print)[0]


def main() -> None:
    """The command."""
    folder, chosen = Path(sys.argv[1]), set(sys.argv[2:])
    rehearse()
    ranks.settle()
    for record in records():
        if not chosen or record["id"] in chosen:
            case = load(record)
            for variant in ("buggy", "fixed"):
                (folder / f"{case.id}.{variant}.json").write_bytes(capture_to_json(recorded(case, variant)))


if __name__ == "__main__":
    main()
