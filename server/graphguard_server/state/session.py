"""The state of a session, and what edits, saves and finished runs do to it.

A result belongs to the texts it was computed from.  It is fresh while they all mean the same now; an edit that changes a meaning marks it stale in the same
turn of the event loop, before anything else is answered, and only a newer run of the same check replaces it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from graphguard.ir.spans import Span
from graphguard_server.processes.engine import Engine, ProjectConfiguration
from graphguard_server.processes.processes import Process
from graphguard_server.processes.scheduler import Pauses, Scheduler
from graphguard_server.state.checks import Check, Run, RunKey
from graphguard_server.state.configuration import Settings, command
from graphguard_server.state.convert import Converter
from graphguard_server.state.projects import Project
from graphguard_server.state.starts import Executing, Start
from graphguard_server.texts.documents import Document, Documents, path_of
from graphguard_server.texts.source import meaning

log = logging.getLogger(__name__)


class Session:
    """Documents, projects, processes and runs of one client; ``changed`` is told which files' diagnostics may differ."""

    def __init__(
        self, engine: Engine, changed: Callable[[Iterable[str]], None], executing: Callable[[Session], Executing]
    ) -> None:
        self.engine = engine
        self.settings = Settings()
        self.trusted = True
        self.pull = False
        self.folders: list[str] = []
        self.folder_interpreters: dict[str, tuple[str, ...]] = {}
        self.troubles: dict[str, str] = {}
        self.misconfigured: dict[str, tuple[Span, str]] = {}
        self.documents = Documents()
        self.projects: dict[str, Project] = {}
        self.workers: dict[tuple[tuple[str, ...], str, tuple[str, ...]], Process] = {}
        self.prover = Process("prover", engine.prover, self._state_changed, busy_is_silent=True, limits=engine.limits)
        self.execution = executing(self)
        self.scheduler: Scheduler[RunKey] = Scheduler(self.execution.execute, self._state_changed)
        self.changed = changed
        self._pauses = Pauses()
        self._roots: dict[str, str] = {}
        self._inherited: dict[str, Project] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    @property
    def converter(self) -> Converter:
        """Conversion of results to the client's terms."""
        return Converter(self.documents, self.settings.docs)

    # -- projects ------------------------------------------------------------------------------------------------

    def project_of(self, path: str) -> Project:
        """The project of a file: the folder of its configuration, else its workspace folder, else its own folder."""
        folder = os.path.dirname(path)
        root = self._roots.get(folder)
        if root is None or root not in self.projects:
            root = self._open_project(folder)
            self._roots[folder] = root
        return self.projects[root]

    def reconfigure(self) -> None:
        """Read every configuration again; results stay, stale where the configuration is another, until their checks have run."""
        self._roots.clear()
        old, self.projects = self.projects, {}
        shown = {path for project in old.values() for run in project.runs() for path in run.snapshot}
        for project in old.values():
            used = any(document.path and _within(document.path, project.root) for document in self.documents)
            if not used and not any(_within(project.root, folder) for folder in self.folders):
                self.scheduler.cancel([run.key for run in project.runs()])
                continue
            self._inherited[project.root] = project
            for path in {check.file for check in project.checks.values()}:
                self.project_of(path).read(path)
        for document in self.documents:
            self.opened(document)
        self.changed(shown)

    def runs(self) -> Iterator[Run]:
        """Every run of every project."""
        for project in self.projects.values():
            yield from project.runs()

    def run_of(self, key: RunKey) -> tuple[Check, Run] | None:
        """The check and the run of a key; None where the check is gone."""
        project = self.projects.get(key.root)
        check = project.checks.get(key.check) if project is not None else None
        run = check.runs.get(key.mesh) if check is not None else None
        return None if check is None or run is None else (check, run)

    def runs_in(self, path: str) -> list[Run]:
        """Runs with something to show in a file."""
        return [run for run in self.runs() if path in run.snapshot]

    def _open_project(self, folder: str) -> str:
        configuration = self.engine.configure(folder)
        root = configuration.root or next(
            (each for each in sorted(self.folders, key=len, reverse=True) if _within(folder, each)), folder
        )
        self._note_trouble(root, configuration)
        if root not in self.projects:
            project = Project(
                replace(configuration, root=root), self.engine, self.documents, self._bequeathed(configuration, root)
            )
            self.projects[root] = project
            self.keep(asyncio.ensure_future(self._scan(project)))
        return root

    def _note_trouble(self, root: str, configuration: ProjectConfiguration) -> None:
        """Keep what is wrong with a configuration, for the status and for the place itself."""
        self.troubles.pop(root, None)
        before = self.misconfigured.pop(root, None)
        if configuration.trouble:
            self.troubles[root] = configuration.trouble
        if configuration.place is not None:
            self.misconfigured[root] = (configuration.place, configuration.trouble)
        self.changed({span.file for span, _ in filter(None, (before, self.misconfigured.get(root)))})

    def _bequeathed(self, configuration: ProjectConfiguration, root: str) -> dict[str, Check]:
        """The checks that the project knew before its configuration was read again."""
        before = self._inherited.pop(root, None)
        if before is None:
            return {}
        if replace(configuration, root=root).effective != before.configuration.effective:
            for run in before.runs():
                run.outdated = run.stale = run.known
        return before.checks

    async def _scan(self, project: Project) -> None:
        """Find the project's checks; the files are listed in a thread and read a few at a time."""
        for path in await asyncio.to_thread(self.engine.check_files, project.configuration):
            project.read(path)
            await asyncio.sleep(0)
        for document in self.documents:
            if document.path is not None and self.projects.get(project.root) is project:
                self.opened(document)
        self.changed(())

    def keep(self, task: asyncio.Future[Any]) -> None:
        """Hold on to background work, and say when it fails."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what the user does --------------------------------------------------------------------------------------

    def opened(self, document: Document) -> None:
        """A document was opened: run the checks it concerns that have no fresh result."""
        if document.path is None or document.language != "python":
            return
        project = self.project_of(document.path)
        project.read(document.path)
        self._freshen(project, document.path)
        if self.settings.mode != "manual":
            self._want(project, document.path, 0.0)
        self.changed({document.path})

    def edited(self, path: str) -> None:
        """The text of a file changed, in the editor or outside it."""
        project = self.project_of(path)
        project.read(path)
        paths = self._freshen(project, path)
        if self.settings.mode == "change":
            self._want(project, path, self._pauses.after_edit(time.monotonic()))
        self.changed({path, *paths})

    def changed_on_disk(self, path: str) -> None:
        """A file that is not open changed, appeared or went away: only projects that know it care."""
        for project in self.projects.values():
            if _within(path, project.root) or project.affected_by(path):
                self.edited(path)
                return

    def use(self, settings: Settings) -> None:
        """Take over new settings; another interpreter makes every result stale."""
        other_python = settings.interpreter != self.settings.interpreter
        self.settings = settings
        if other_python:
            for run in self.runs():
                run.outdated = run.stale = run.known
            self._retire_workers()
        for document in self.documents:
            self.opened(document)

    def saved(self, path: str) -> None:
        """A document was saved."""
        if self.settings.mode == "save":
            self._want(self.project_of(path), path, 0.0)

    def closed(self, document: Document) -> None:
        """A document was closed: from now on the disk counts."""
        if document.path is not None and document.language == "python":
            self.edited(document.path)

    def ask(self, keys: Iterable[RunKey], *, force: bool) -> int:
        """Run checks because the user says so, whatever the mode; returns how many were accepted."""
        if not self.trusted:
            return 0
        count = 0
        for key in keys:
            found = self.run_of(key)
            if found is not None and (force or found[1].stale or not found[1].known):
                self.queue(found[1], 0.0, -1)
                count += 1
        self._state_changed()
        return count

    def cancel(self, keys: Iterable[RunKey]) -> int:
        """Stop runs; their last results stay."""
        count = self.scheduler.cancel(keys)
        self._idle()
        return count

    def set_trust(self, trusted: bool) -> None:
        """Run code of the workspace from now on, or no longer."""
        self.trusted = trusted
        if not trusted:
            self.cancel([run.key for run in self.runs()])
            for worker in self.workers.values():
                self.keep(asyncio.ensure_future(worker.restart()))
        for document in self.documents:
            self.opened(document)
        self._state_changed()

    async def close(self) -> None:
        """End every run and every process."""
        for task in self._tasks:
            task.cancel()
        await self.scheduler.close()
        for process in (*self.workers.values(), self.prover):
            await process.close()

    # -- freshness -----------------------------------------------------------------------------------------------

    def _freshen(self, project: Project, path: str) -> set[str]:
        """Say anew which results are stale after a change of a file; stop runs it made obsolete; the files they show something in."""
        paths: set[str] = set()
        for check in project.affected_by(path):
            for run in check.runs.values():
                if run.known:
                    run.stale = not self.is_fresh(run)
                    paths.update(run.snapshot)
                if run.key in self.execution.underway and not self._under_way(run):
                    self.scheduler.cancel([run.key])
                    run.activity = "idle"
        return paths

    def is_fresh(self, run: Run) -> bool:
        """Whether the texts of a result still mean what they meant."""
        return not run.outdated and self._same(run.snapshot)

    def _same(self, snapshot: dict[str, str]) -> bool:
        """Whether texts still mean what they meant."""
        for path, text in snapshot.items():
            now = self.documents.text(path)
            if now != text and (now is None or meaning(now) is None or meaning(now) != meaning(text)):
                return False
        return True

    def _want(self, project: Project, path: str, delay: float) -> None:
        """Ask for the runs that a file concerns and that have no fresh result and none on its way; none while something does not parse."""
        if not self.trusted:
            return
        for check in project.affected_by(path):
            blocked = project.imports.files_of(check.file) & project.unreadable.keys()
            for run in check.runs.values():
                if blocked:
                    self.scheduler.cancel([run.key])
                    run.activity = "idle"
                elif (run.stale or not run.known) and not self._under_way(run):
                    self.queue(run, delay, 0 if check.file == path else 1)

    def _under_way(self, run: Run) -> bool:
        """Whether a run is being made of the present texts, under the present configuration."""
        start, found = self.execution.underway.get(run.key), self.run_of(run.key)
        if start is None or found is None or self.scheduler.stops(run.key):
            return False
        made_of = self.projects[run.key.root].snapshot(found[0])
        return (
            self.is_configured_as(start, run.key.root)
            and self._same(start.texts)
            and made_of.keys() <= start.texts.keys()
        )

    def is_configured_as(self, start: Start, root: str) -> bool:
        """Whether a project's configuration and interpreter are those that a run was started with."""
        project = self.projects.get(root)
        if project is None:
            return False
        now = (project.configuration.effective, self.interpreter_of(project))
        return now == (start.configuration.effective, start.interpreter)

    def queue(self, run: Run, delay: float, order: int) -> None:
        """Ask for a run; lower ``order`` comes first."""
        if run.activity == "idle":
            run.activity = "queued"
        run.attempts = 0
        self.scheduler.request(run.key, delay, order)

    def _idle(self) -> None:
        busy = {*self.scheduler.running, *self.scheduler.waiting}
        for run in self.runs():
            if run.key not in busy:
                run.activity = "idle"

    # -- processes -----------------------------------------------------------------------------------------------

    def interpreter_of(self, project: Project) -> tuple[str, ...]:
        """The command that runs a project's code: the folder's, the client's, the project's, else the server's own."""
        for folder in sorted(self.folder_interpreters, key=len, reverse=True):
            if _within(project.root, folder):
                return self.folder_interpreters[folder]
        return self.settings.interpreter or project.configuration.python

    def _key_of(self, project: Project) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        return self.interpreter_of(project), project.root, project.configuration.sources

    def worker_of(self, project: Project) -> Process:
        """The worker of the project's interpreter."""
        key = self._key_of(project)
        if key not in self.workers:
            launch = lambda: self.engine.worker(*key)  # noqa: E731 - a closure over this worker's key
            self.workers[key] = Process("worker", launch, self._state_changed, limits=self.engine.limits)
        return self.workers[key]

    def _retire_workers(self) -> None:
        """End the workers whose interpreter nobody uses any more."""
        used = {self._key_of(project) for project in self.projects.values()}
        for key in self.workers.keys() - used:
            self.keep(asyncio.ensure_future(self.workers.pop(key).close()))

    def _state_changed(self) -> None:
        self.changed(())


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def read_options(session: Session, options: Any) -> tuple[str, ...]:
    """Take over the client's initialization options; returns what was wrong with them."""
    if not isinstance(options, dict):
        return ()
    session.trusted = options.get("trusted") is not False
    session.pull = options.get("diagnostics") == "pull"
    session.settings, wrong = session.settings.updated(options.get("settings"))
    problems = list(wrong)
    try:
        if options.get("interpreter"):
            session.settings = replace(session.settings, interpreter=command(options["interpreter"]))
        for uri, value in dict(options.get("interpreters") or {}).items():
            path = path_of(uri)
            if path is not None:
                session.folder_interpreters[path] = command(value)
    except (ValueError, TypeError) as error:
        problems.append(f"interpreter: {error}")
    return tuple(problems)
