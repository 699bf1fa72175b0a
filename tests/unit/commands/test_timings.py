"""``--timings``: the phases of a command add up to what was waited for."""

import json
from dataclasses import replace

import pytest

from graphguard.commands.timings import PHASES, Timings, since_start, table
from graphguard.ir import CheckRef, Span
from graphguard.report.diagnostics import Report, Verdict
from graphguard.report.json_document import render, with_timings
from graphguard.report.sources import Sources

REPORT = Report(CheckRef("c.py::c", "c", Span("c.py", 1)), {"tp": 2}, Verdict.REFINES)


def phases(timings, *seconds):
    found = timings.phases([replace(REPORT, seconds=each) for each in seconds])
    assert sum(each for phase, each in found.items() if phase != "total") == pytest.approx(found["total"])
    assert list(found) == [phase for phase in (*PHASES, "total") if phase in found]
    return found


def test_what_no_phase_accounts_for_is_shown():
    found = phases(Timings(begun=2.0), {"trace": 0.0})
    assert found["start"] == 2.0
    assert 0 < found["cache"] < 2.0
    assert found["total"] > 2.0


def test_checks_beside_each_other_are_counted_in_full_and_what_overlaps_is_told():
    found = phases(Timings(), {"trace": 500.0}, {"trace": 500.0, "infer": 100.0})
    assert (found["trace"], found["infer"]) == (1000.0, 100.0)
    assert found["at the same time"] == pytest.approx(-1100.0, abs=60.0)


def test_phases_of_the_command_itself():
    timings = Timings()
    with pytest.raises(ValueError, match="no"), timings.phase("find"):
        raise ValueError("no")
    assert phases(timings)["find"] > 0


def test_a_process_knows_when_it_began():
    first = since_start()
    assert 0 < first < since_start() + 1.0


def test_the_table_leaves_out_what_took_no_time():
    shown = table({"start": 0.25, "find": 0.0001, "total": 0.2501})
    assert (
        shown
        == "\nwhere the time went\nstart               0.250 s  starting Python and GraphGuard\ntotal               0.250 s\n"
    )


def test_in_json_the_document_is_the_same_with_one_key_more():
    rendered = render([REPORT], Sources())
    document = json.loads(with_timings(rendered, {"start": 0.5, "total": 0.5}))
    assert document.pop("timings") == {"start": 0.5, "total": 0.5}
    assert document == json.loads(rendered)
