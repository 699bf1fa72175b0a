from dataclasses import replace

import pytest

from graphguard.report.baseline import Baseline, BaselineError, baseline_of, read_baseline

from .reports import BROKEN, MISSING, NOT_RUN, REFINES, TEXT, UNKNOWN, moved_down, sources


def test_known_findings_are_waived_and_new_ones_are_not():
    baseline = baseline_of([BROKEN], sources())
    report = replace(BROKEN, diagnostics=(*BROKEN.diagnostics, *UNKNOWN.diagnostics))
    silenced = baseline.apply(report, sources())
    assert silenced.waived == BROKEN.diagnostics
    assert silenced.diagnostics == UNKNOWN.diagnostics


def test_lines_inserted_above_change_nothing():
    baseline = baseline_of([BROKEN], sources())
    assert baseline.apply(moved_down(BROKEN, 3), sources("\n\n\n" + TEXT)).diagnostics == ()


def test_another_text_on_the_line_is_a_new_finding():
    baseline = baseline_of([BROKEN], sources())
    assert (
        baseline.apply(BROKEN, sources(TEXT.replace("self.down(h)", "self.down(x)"))).diagnostics == BROKEN.diagnostics
    )


def test_a_second_finding_of_the_same_kind_is_new():
    baseline = baseline_of([BROKEN], sources())
    twice = replace(BROKEN, diagnostics=(MISSING, MISSING))
    assert baseline.apply(twice, sources()).diagnostics == (MISSING,)


def test_meshes_of_one_check_share_their_findings():
    other = replace(BROKEN, mesh={"tp": 4})
    baseline = baseline_of([BROKEN, other], sources())
    assert baseline.total() == 1
    assert baseline.apply(other, sources()).diagnostics == ()
    assert baseline.apply(BROKEN, sources()).diagnostics == ()


def test_it_shrinks_by_what_is_no_longer_found():
    baseline = baseline_of([BROKEN, UNKNOWN], sources())
    baseline.apply(UNKNOWN, sources())
    assert baseline.shrunk() == 1
    assert baseline.total() == 1


def test_checks_that_did_not_run_keep_their_findings():
    baseline = baseline_of([BROKEN], sources())
    baseline.apply(replace(REFINES, check=replace(REFINES.check, id="other.py::other")), sources())
    assert baseline.shrunk() == 0
    assert baseline.total() == 1


def test_the_file_is_read_back(tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(baseline_of([BROKEN], sources()).text())
    assert read_baseline(path).known == baseline_of([BROKEN], sources()).known


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"version": 2, "checks": {}}', '{"version": 1}', '{"version": 1, "checks": {"a": {"b": "c"}}}', "\xff"],
)
def test_what_is_no_baseline(tmp_path, text):
    path = tmp_path / "baseline.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(BaselineError, match=r"baseline\.json: not a baseline"):
        read_baseline(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(BaselineError, match="--write-baseline"):
        read_baseline(tmp_path / "none.json")


def test_an_empty_baseline_waives_nothing():
    assert Baseline().apply(BROKEN, sources()) == BROKEN


def test_a_check_that_could_not_be_run_keeps_its_findings():
    baseline = baseline_of([BROKEN], sources())
    baseline.apply(NOT_RUN, sources())
    assert NOT_RUN.check.id == BROKEN.check.id
    assert baseline.shrunk() == 0


def test_a_check_that_is_no_longer_there_is_forgotten_by_a_run_of_the_whole_project():
    baseline = baseline_of([BROKEN], sources())
    assert baseline.shrunk() == 0
    assert baseline.shrunk({"examples/mlp.py"}) == 0  # the file does not parse, so its checks are not known
    assert baseline.shrunk({"examples/other.py::other"}) == 1
    assert baseline.total() == 0


def test_one_mesh_that_still_has_the_finding_keeps_it():
    baseline = baseline_of([BROKEN], sources())
    baseline.apply(replace(REFINES, mesh={"tp": 4}), sources())
    baseline.apply(BROKEN, sources())
    assert baseline.shrunk() == 0
