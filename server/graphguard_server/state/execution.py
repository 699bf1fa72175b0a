"""Runs checks for a session and takes over what they say."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from graphguard.checks.judging.requests import CheckRequest, Step
from graphguard.ir.plain import CodecError, from_plain
from graphguard.report.diagnostics import Report
from graphguard_server.processes.processes import CallFailedError, Process, ProcessDiedError
from graphguard_server.processes.runner import RunFailedError, run_steps
from graphguard_server.state.checks import Check, Run, RunKey
from graphguard_server.state.meshes import listed
from graphguard_server.state.projects import Project
from graphguard_server.state.session import Session
from graphguard_server.state.starts import Start
from graphguard_server.texts.places import Place

log = logging.getLogger(__name__)

ATTEMPTS: Final = 6
LIST_GRACE: Final = 30.0
LOOK_UP_SECONDS: Final = 60.0
DECODED_AT_ONCE: Final = 100


class Execution:
    """The job of the scheduler; ``underway`` maps each run in progress to what it was started from."""

    def __init__(self, session: Session) -> None:
        self.underway: dict[RunKey, Start] = {}
        self._session = session

    async def execute(self, key: RunKey) -> None:
        """Run a check and take over its result; a process that ends underway is no result."""
        found = self._session.run_of(key)
        if found is None:
            return
        check, run = found
        if not self._session.trusted:
            run.activity = "idle"
            return
        project = self._session.projects[key.root]
        start = Start(project.snapshot(check), project.configuration, self._session.interpreter_of(project))
        self.underway[key] = start
        try:
            await self._run(project, check, run, start)
        except ProcessDiedError as error:
            self._died(run, start.texts, str(error))
        except RunFailedError as error:
            self._failed(run, start.texts, str(error))
        finally:
            self.underway.pop(key, None)
            self._searched(run)
            self._rest(run)

    def _rest(self, run: Run) -> None:
        """The verdict is there, or will not come; what else the job does keeps nobody waiting."""
        if run.key not in self._session.scheduler.waiting:
            run.activity = "idle"

    async def _run(self, project: Project, check: Check, run: Run, start: Start) -> None:
        request = CheckRequest(
            file=check.file,
            name=check.ref.name,
            mesh=run.mesh,
            root=project.root,
            overlay=self._session.documents.overlay(),
            levels=project.configuration.levels or {},
            fixes=self._session.settings.fixes,
            relations=False,  # asked for afterwards: the verdict does not wait for them
            timeout=project.configuration.timeout,
            ranks=project.configuration.ranks,
        )

        def stage(step: Step) -> None:
            run.activity = "proving" if step.process == "prover" else "tracing"
            self._session.changed(())

        worker = self._session.worker_of(project)
        if check.meshes is None and check.listed_for != check.text:
            await self._list_meshes(project, check, request, worker)
            if self._session.run_of(run.key) is None:
                return
        report = await run_steps(
            self._session.engine.steps,
            request,
            worker,
            self._session.prover,
            lambda interim: self._interim(project, check, run, interim, start),
            stage,
            project.configuration.memory,
        )
        self._searched(run)
        self._rest(run)
        self._finished(project, check, run, report, start)
        if run.places is None and not await self._look_up(run):
            self._look_up_again(run)

    def _interim(self, project: Project, check: Check, run: Run, report: Report, start: Start) -> None:
        """Show a verdict whose fixes are still being proved, and have something to hover over meanwhile."""
        run.search = run.search or asyncio.Event()
        self._finished(project, check, run, report, start)
        self._session.keep(asyncio.ensure_future(self._look_up(run)))

    def _searched(self, run: Run) -> None:
        """No fix is looked for any more."""
        if run.search is not None:
            run.search.set()
            run.search = None
            self._session.changed(run.snapshot)

    async def _list_meshes(self, project: Project, check: Check, request: CheckRequest, worker: Process) -> None:
        """Learn which meshes the check is for, and queue a run for each that is new."""
        params = {"file": check.file, "root": project.root, "overlay": request.overlay, "timeout": request.timeout}
        text = check.text
        check.listed = await listed(worker, check, params, request.timeout + LIST_GRACE)
        check.listed_for = text
        check.plan()
        for run in check.runs.values():
            if run.stale or not run.known:
                self._session.queue(run, 0.0, 0)

    def _finished(self, project: Project, check: Check, run: Run, report: Report, start: Start) -> None:
        """Take over a result, unless the check is gone; it is marked stale at once where texts or configuration have moved on."""
        snapshot = start.texts
        project.imports.learn(check.file, report.sources)
        for path in report.sources:
            text = self._session.documents.text(path)
            if path not in snapshot and text is not None:
                snapshot[path] = text
        before = set(run.snapshot)
        if run.report is None or run.report.proof != report.proof or run.snapshot != snapshot:
            run.places, run.relations, run.layouts, run.claimed = None, {}, {}, ()
        run.report = self._session.engine.waive(report, snapshot, project.configuration.levels or {})
        run.failure, run.snapshot = "", snapshot
        run.outdated = not self._session.is_configured_as(start, run.key.root)
        run.stale = not self._session.is_fresh(run)
        run.attempts = 0
        self._session.changed(before | set(snapshot))

    def _died(self, run: Run, snapshot: dict[str, str], why: str) -> None:
        """A process ended underway: try again, for it is seldom the check's fault; give up where it happens every time."""
        run.attempts += 1
        if run.attempts < ATTEMPTS:
            run.activity = "queued"
            self._session.scheduler.request(run.key, 0.05, 0)
        else:
            self._failed(run, snapshot, f"{why} ({run.attempts} times)")

    def _failed(self, run: Run, snapshot: dict[str, str], why: str) -> None:
        run.failure = why
        run.snapshot = run.snapshot or snapshot
        run.stale = False if run.report is None else run.stale
        self._session.changed(set(run.snapshot))

    async def _look_up(self, run: Run) -> bool:
        """Ask what the tensors are, for hover and hints; the verdict was shown before.  Returns whether there was an answer, or nothing to ask."""
        report = run.report
        if report is None or not report.proof:
            return True
        try:
            rows = await self._session.prover.call("places", {"proof": report.proof}, LOOK_UP_SECONDS)
            places = await _decoded(rows)
            asked = {"proof": report.proof}
            names = await self._session.prover.call("relations", asked, LOOK_UP_SECONDS)
            layouts = await self._session.prover.call("layouts", asked, LOOK_UP_SECONDS)
            claimed = await self._session.prover.call("claimed", asked, LOOK_UP_SECONDS)
        except (ProcessDiedError, CallFailedError, CodecError) as error:
            log.warning("no hover data for %s: %s", run.key, error)
            return False
        if run.report is not None and run.report.proof == report.proof:
            run.places, run.relations, run.layouts = places, _texts(names), _texts(layouts)
            run.claimed = tuple(map(str, claimed or ()))
            run.lookups = 0
            self._session.changed(run.snapshot)
        return True

    def _look_up_again(self, run: Run) -> None:
        """The process that had the proof is gone: prove again, for it is seldom the check's fault."""
        run.lookups += 1
        if run.lookups < ATTEMPTS:
            self._session.scheduler.request(run.key, 0.05, 0)


def _texts(answer: Any) -> dict[str, str]:
    """A prover's answer of texts by the names of tensors."""
    return {str(name): str(text) for name, text in dict(answer or {}).items()}


async def _decoded(rows: list[Any]) -> tuple[Place, ...]:
    """Places from plain data, a few at a time: large programs have many, and requests are to be answered meanwhile."""
    found: list[Place] = []
    for start in range(0, len(rows), DECODED_AT_ONCE):
        found.extend(from_plain(Place, row) for row in rows[start : start + DECODED_AT_ONCE])
        await asyncio.sleep(0)
    return tuple(found)
