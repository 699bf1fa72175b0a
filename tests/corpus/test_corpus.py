"""Every program of the corpus through tracing, numbers and proof: bugs are broken, repairs and controls refine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphguard.confirm.check import confirm
from graphguard.ir import Capture, capture_from_json
from graphguard.refine.prove import prove

RECORDS = [json.loads(line) for line in Path(__file__).with_name("cases.jsonl").read_text().splitlines()]
PROGRAMS = [(record["id"], variant, record["kind"]) for record in RECORDS for variant in ("buggy", "fixed")]


def read(folder: Path, case: str, variant: str) -> Capture:
    capture = capture_from_json((folder / f"{case}.{variant}.json").read_bytes())
    assert not capture.troubles, capture.troubles[0].message
    return capture


@pytest.mark.parametrize(("case", "variant", "kind"), PROGRAMS)
def test_verdict(captures, case, variant, kind):
    capture = read(captures, case, variant)
    said, outcome = confirm(capture), prove(capture).outcome
    right = variant == "fixed" or kind == "control"
    assert said.status == ("equal" if right else "differs"), said
    assert outcome.proved == right, (outcome.gaps, outcome.promises)
    if not right:
        assert said.counterexample is not None
        assert said.counterexample.expected != said.counterexample.found
