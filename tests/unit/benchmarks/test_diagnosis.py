"""Spoiled programs: the lists fit their programs, and a short sample is diagnosed as they say (the long run: ``python -m benchmarks.diagnosis``)."""

from __future__ import annotations

import ast

import pytest

from benchmarks.diagnosis import run
from benchmarks.mutants.edit import ROOT
from benchmarks.mutants.lists import EDITS
from benchmarks.mutants.table import MARKS, document
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient

SAMPLE = (
    "functional_mlp: mean",
    "vllm_mlp: results not reduced by flag",
    "adapters: scale forgotten",
    "synchronized_norm: count without the ranks",
)


def test_every_edit_fits_its_program():
    assert len(EDITS) >= 200
    assert len({edit.name for edit in EDITS}) == len(EDITS)
    for edit in EDITS:
        assert edit.places()
        assert ast.dump(ast.parse(edit.spoiled())) != ast.dump(ast.parse((ROOT / edit.file).read_text())), edit.name


@pytest.fixture(scope="module")
def rows():
    worker = WorkerClient(Configuration(ROOT))
    found = {edit.name: run(edit, worker) for edit in EDITS if edit.name in SAMPLE}
    worker.close()
    return found


@pytest.mark.slow  # whole programs
@pytest.mark.parametrize("name", SAMPLE)
def test_sample(rows, name):
    row = rows[name]
    assert row.marks == dict.fromkeys(MARKS, True), (row.findings, row.place)


@pytest.mark.slow  # whole programs
def test_the_table_says_what_failed(rows):
    text = document(list(rows.values()))
    assert f"{len(SAMPLE)}/{len(SAMPLE)} (100.0 %)" in text
    assert "**no**" not in text
