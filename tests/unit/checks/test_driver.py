"""The driver of checks with processes that are stand-ins."""

import gc
from concurrent.futures import Future
from pathlib import Path

import pytest

from graphguard.checks.judging.requests import Step
from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running import driver
from graphguard.checks.running.driver import Listener, Options, drive, run_checks
from graphguard.checks.running.worker_client import WorkerError
from graphguard.ir import CheckRef, Span, Trouble
from graphguard.report.diagnostics import Report, Verdict
from graphguard.trace.claims.declared import FoundCheck

CONFIGURATION = Configuration(Path("/project"))


def reference(name):
    return CheckRef(f"c.py::{name}", name, Span("/project/c.py", 1, 5, 1, 6))


class Process:
    """Answers with what it was asked."""

    def __init__(self, name):
        self.name = name

    def call(self, method, params):
        return (self.name, method, params)

    def close(self):
        pass


def test_each_step_goes_to_its_process_and_interim_reports_to_nobody():
    report = Report(reference("a"), {}, Verdict.REFINES)
    answers = []

    def steps():
        answers.append((yield Step("worker", "capture", {"x": 1})))
        answers.append((yield report))
        answers.append((yield Step("prover", "prove")))
        return report

    assert drive(steps(), Process("worker"), Process("prover")) is report
    assert answers == [("worker", "capture", {"x": 1}), None, ("prover", "prove", {})]


def test_nothing_is_collected_underway():
    collected = []

    class Watching(Process):
        def call(self, method, params):
            collected.append(gc.isenabled())

    def steps():
        yield Step("prover", "diagnose")
        return Report(reference("a"), {}, Verdict.REFINES)

    drive(steps(), Process("worker"), Watching("prover"))
    assert (collected, gc.isenabled()) == ([False], True)


def test_steps_that_do_not_wait_for_each_other_run_beside_each_other():
    order = []

    class Behind(Process):
        """Answers when it is asked for the answer."""

        def start_call(self, method, params):
            order.append("started")
            future = Future()
            future.result = lambda: order.append("awaited") or self.call(method, params)
            return future

    class Here(Process):
        def call(self, method, params):
            order.append("called")
            return super().call(method, params)

    def steps():
        answers = yield (Step("worker", "confirm"), Step("prover", "prove"))
        assert answers == (("worker", "confirm", {}), ("prover", "prove", {}))
        return Report(reference("a"), {}, Verdict.REFINES)

    drive(steps(), Behind("worker"), Here("prover"))
    assert order == ["started", "called", "awaited"]


def test_a_prover_is_loaded_while_the_worker_records():
    order = []

    class Recording(Process):
        def start_call(self, method, params):
            order.append("recording")
            future = Future()
            future.result = lambda: order.append("recorded")
            return future

    class Loading(Process):
        def prepare(self):
            order.append("loaded")

    def steps():
        yield Step("worker", "capture")
        return Report(reference("a"), {}, Verdict.REFINES)

    drive(steps(), Recording("worker"), Loading("prover"))
    assert order == ["recording", "loaded", "recorded"]


class Worker:
    """Stands in for the client of the tracing worker."""

    def __init__(self, configuration, printed=None):
        self.closed = False
        self.listed = {"checks": [{"name": "a", "meshes": [{"tp": 2}, {"tp": 4}]}], "troubles": []}
        Worker.last = self

    def call(self, method, params):
        assert method == "list"
        return self.listed

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    def steps(request):
        if request.name == "defect":
            raise ZeroDivisionError("of ours")
        if request.name == "gone":
            raise WorkerError("the worker died")
        yield Step("prover", "echo", {})
        return Report(reference(request.name), request.mesh, Verdict.REFINES)

    monkeypatch.setattr(driver, "WorkerClient", Worker)
    monkeypatch.setattr(driver, "LoadedProver", lambda cache: Process("prover"))
    monkeypatch.setattr(driver, "ProverClient", lambda cache: Process("prover"))
    monkeypatch.setattr(driver, "kept_reports", lambda _: None)
    monkeypatch.setattr(driver, "check_steps", steps)


class Heard(Listener):
    def __init__(self):
        self.events = []

    def planned(self, units):
        self.events.append(("planned", len(units)))

    def finished(self, report):
        self.events.append(("finished", report.check.name, report.mesh))


@pytest.mark.parametrize("jobs", [1, 4])
def test_every_check_on_every_mesh_in_order(jobs):
    found = [FoundCheck(reference("a")), FoundCheck(reference("b"), ({"dp": 3},))]
    heard = Heard()
    reports = run_checks(found, CONFIGURATION, Options(jobs=jobs), heard)
    assert [(report.check.name, report.mesh) for report in reports] == [
        ("a", {"tp": 2}),
        ("a", {"tp": 4}),
        ("b", {"dp": 3}),
    ]
    assert heard.events == [("planned", 3), *(("finished", report.check.name, report.mesh) for report in reports)]
    assert Worker.last.closed


def test_meshes_of_the_command_line_replace_those_of_the_checks():
    reports = run_checks([FoundCheck(reference("a"))], CONFIGURATION, Options(meshes=({"pp": 2},)))
    assert [report.mesh for report in reports] == [{"pp": 2}]


def test_a_file_that_does_not_parse_is_a_report():
    trouble = Trouble("trace-error", "SyntaxError: no", Span("/project/c.py", 3, 1))
    (report,) = run_checks([FoundCheck(reference(""), None, trouble)], CONFIGURATION)
    assert report.verdict is None
    assert report.diagnostics[0].message == "SyntaxError: no"
    assert report.diagnostics[0].span.line == 3


def test_a_check_that_the_file_does_not_have_when_it_runs():
    (report,) = run_checks([FoundCheck(reference("other"))], CONFIGURATION)
    assert report.verdict is None
    assert "'other' is not there when the file is imported" in report.diagnostics[0].message


@pytest.mark.parametrize(
    ("name", "message"),
    [("gone", "the worker died"), ("defect", "a defect of GraphGuard stopped this check: ZeroDivisionError")],
)
@pytest.mark.parametrize("jobs", [1, 2])
def test_what_goes_wrong_in_one_check_leaves_the_others_alone(name, message, jobs):
    found = [FoundCheck(reference(name), ({"tp": 2},)), FoundCheck(reference("b"), ({"tp": 2},))]
    wrong, right = run_checks(found, CONFIGURATION, Options(jobs=jobs))
    assert wrong.verdict is None
    assert message in wrong.diagnostics[0].message
    assert right.verdict is Verdict.REFINES


def test_an_interrupt_closes_the_worker():
    class Interrupting(Listener):
        def finished(self, report):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_checks([FoundCheck(reference("b"), ({"tp": 2},))], CONFIGURATION, listener=Interrupting())
    assert Worker.last.closed


def test_a_worker_that_is_lent_stays_open():
    worker = Worker(CONFIGURATION)
    run_checks([FoundCheck(reference("b"), ({"tp": 2},))], CONFIGURATION, worker=worker)
    assert not worker.closed
