"""Every program of the corpus through tracing, numbers and proof: bugs are broken, repairs and controls refine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphguard.confirm.check import confirm
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import prove

RECORDS = [json.loads(line) for line in Path(__file__).with_name("cases.jsonl").read_text().splitlines()]
PROGRAMS = [(record["id"], variant, record["kind"]) for record in RECORDS for variant in ("buggy", "fixed")]
MEMO = Memo()  # one for all programs: what it knows of one must not be taken for another


@pytest.mark.parametrize(("case", "variant", "kind"), PROGRAMS)
def test_verdict(capture, recorded, case, variant, kind):
    program = capture(case, variant)
    assert not program.troubles, program.troubles[0].message
    said, proof = confirm(program), prove(program)
    outcome = proof.outcome
    right = variant == "fixed" or kind == "control"
    assert said.status == ("equal" if right else "differs"), said
    assert outcome.proved == right, (outcome.gaps, outcome.promises)
    assert replace(prove(program, MEMO).outcome, fuel=0.0) == replace(outcome, fuel=0.0)
    if not right:
        assert said.counterexample is not None
        assert said.counterexample.expected != said.counterexample.found
    assert not recorded.compare(f"{case}.{variant}", record(proof))


def record(proof: Proof) -> dict[str, object]:
    """What is recorded of a proof: every promise with what was found for it, and the relation of every tensor."""
    promises = {each.name: each.found if each.holds else f"not {each.needed}" for each in proof.outcome.promises}
    return {
        "proved": proof.outcome.proved,
        "promises": promises,
        "relations": [f"{name} = {relation}" for name, relation in proof.relations().items()],
    }


def test_every_record_is_of_a_program(recorded):
    assert not recorded.only(f"{case}.{variant}" for case, variant, _ in PROGRAMS)
