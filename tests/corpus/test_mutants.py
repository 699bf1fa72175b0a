"""Mutants of the repaired programs: what is proved is equal on numbers, what is refuted differs (the long run: ``python -m benchmarks.trust mutate``)."""

from __future__ import annotations

from benchmarks.trust.judge import judge


def test_no_proof_of_a_program_that_differs(capture, blocks):
    programs = [(case, capture(case, "fixed")) for block in blocks[::3] for case in block]
    tally = judge(programs, count=2, seed=11)
    assert tally.mutants > 100
    assert tally.counts["broken"] > 50
    assert not tally.wrong
    assert tally.share_unknown <= 0.05, tally.unknown
