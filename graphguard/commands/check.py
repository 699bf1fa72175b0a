"""``graphguard check``: finds checks, runs them and says what was found."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from graphguard.checks.project.configuration import Configuration, ConfigurationError, load_configuration, repository
from graphguard.checks.project.discovery import DiscoveryError, discover, inner_text, unreached
from graphguard.checks.running.driver import Executor, Listener, LoadedProver, Options, Unit, run_checks
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.commands.failure import CommandError
from graphguard.commands.formats import FOR_PEOPLE, WHOLE, WITH_RELATIONS
from graphguard.commands.progress import Progress
from graphguard.commands.timings import Timings, since_start, table
from graphguard.commands.watch import watch
from graphguard.report import text
from graphguard.report.baseline import Baseline, BaselineError, baseline_of, read_baseline
from graphguard.report.diagnostics import Diagnostic, Report
from graphguard.report.folding import mesh_text
from graphguard.report.json_document import with_timings
from graphguard.report.layout import Page, page_for
from graphguard.report.outcomes import exit_code
from graphguard.report.sources import Sources
from graphguard.report.waivers import Waivers, with_unused
from graphguard.trace.claims.declared import FoundCheck


def run(arguments: argparse.Namespace) -> int:
    """Run the command; the exit code is 0 all refine, 1 something broken, 2 something could not run, 3 something unknown."""
    timings = Timings(since_start())
    try:
        configuration = load_configuration(_start(arguments.paths))
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    if not arguments.watch:
        return Session(arguments, configuration).once(timings)
    with WorkerClient(configuration) as worker:  # kept from run to run: it is warm, and the prover knows its proofs
        prover = LoadedProver(cache=not arguments.no_cache)
        return watch(Session(arguments, configuration, worker, prover).once, configuration.root)


def _start(paths: Sequence[str]) -> Path:
    """Where the configuration is looked for: the first path that was named, else the current folder."""
    if not paths:
        return Path.cwd()
    return Path(paths[0].partition("::")[0]).absolute()


@dataclass(slots=True)
class Display(Listener):
    """Silences each report as it comes, shows its findings, and draws progress."""

    immediate: bool
    page: Page
    sources: Sources
    waivers: Waivers
    baseline: Baseline | None
    timings: Timings
    verbose: int = 0
    reports: list[Report] = field(default_factory=list)
    told: set[Hashable] = field(default_factory=set)
    _left: Counter[str] = field(default_factory=Counter)
    _waiting: list[Report] = field(default_factory=list)
    progress: Progress = field(default_factory=lambda: Progress(sys.stderr, page_for(sys.stderr).width))

    def planned(self, units: Sequence[Unit]) -> None:
        """Progress counts checks on meshes."""
        self.progress.total = len(units)
        self._left = Counter(unit.check.id for unit in units)

    def started(self, unit: Unit) -> None:
        """Say what runs."""
        self.progress.show(f"{unit.check.id} {mesh_text(unit.mesh or {})}")

    def printed(self, line: str) -> None:
        """Show what programs print where that was asked for; findings may go to the other stream, so each line is whole."""
        if self.verbose:
            self.progress.clear()
            sys.stderr.write(line)
            sys.stderr.flush()

    def finished(self, report: Report) -> None:
        """Keep the report; in the text format findings are shown as soon as all meshes of their check are done."""
        silenced = self.waivers.apply(report)
        if self.baseline is not None:
            silenced = self.baseline.apply(silenced, self.sources)
        self.reports.append(silenced)
        self.progress.done += 1
        self._waiting.append(silenced)
        self._left[report.check.id] -= 1
        if self._left[report.check.id] <= 0:
            self.show()

    def show(self) -> None:
        """Show what is found and not yet shown."""
        if self.immediate and self._waiting:
            self.progress.clear()
            with self.timings.phase("show"):
                sys.stdout.write(text.findings(self._waiting, self.sources, self.page, self.told))
                sys.stdout.flush()
        self._waiting.clear()


@dataclass(slots=True)
class Session:
    """One invocation: what was asked for, and the streams it writes to."""

    arguments: argparse.Namespace
    configuration: Configuration
    worker: WorkerClient | None = None
    prover: LoadedProver | None = None
    sources: Sources = field(init=False)
    page: Page = field(init=False)
    timings: Timings = field(init=False)

    def __post_init__(self) -> None:
        self.page = page_for(sys.stdout, self.arguments.color)
        self.sources = self._sources(self.arguments.output_format)

    def _sources(self, name: str) -> Sources:
        """The files' texts, and how files are named: for people, from where they called the command; for a pull request, from its repository's folder."""
        base = Path.cwd() if name in FOR_PEOPLE else repository(self.configuration.root) if name == "github" else None
        return Sources(self.configuration.root, base=base)

    def once(self, timings: Timings | None = None) -> int:
        """Run the checks and say what was found; the exit code."""
        self.timings = timings or Timings()
        self.sources = self._sources(self.arguments.output_format)
        with self.timings.phase("find"):
            found, baseline = self._found()
        if not found:
            raise CommandError(self._nothing())
        self._tell_of_others()
        waivers = Waivers(self.sources, self.configuration.levels)
        reports = self._reports(found, waivers, baseline)
        unused = self._unused(found, reports, waivers)
        if unused and self.arguments.output_format == "text":
            sys.stdout.write(text.findings([replace(reports[0], diagnostics=tuple(unused))], self.sources, self.page))
        reports = with_unused(reports, unused)
        self._finish(reports)
        self._store(found, reports, baseline)
        return exit_code(reports)

    def _found(self) -> tuple[list[FoundCheck], Baseline | None]:
        try:
            return discover([Path(path) for path in self.arguments.paths], self.configuration), self._baseline()
        except (DiscoveryError, BaselineError) as error:
            raise CommandError(str(error)) from error

    def _reports(self, found: Sequence[FoundCheck], waivers: Waivers, baseline: Baseline | None) -> list[Report]:
        meshes = tuple(self.arguments.mesh or ())
        text_only = self.arguments.output_format == "text"
        options = Options(
            meshes=meshes,
            jobs=self.arguments.jobs or 1,
            cache=not self.arguments.no_cache,
            fixes=not self.arguments.no_fix,
            audit=self.arguments.audit,
            ranks=self.arguments.ranks,
            relations=bool(self.arguments.verbose) if text_only else self.arguments.output_format in WITH_RELATIONS,
        )
        display = Display(
            text_only, self.page, self.sources, waivers, baseline, self.timings, verbose=self.arguments.verbose
        )
        display.progress.show("starting the tracing worker")
        try:
            with self._executor() as executor:
                run_checks(found, self.configuration, options, display, self.worker, self.prover, executor)
        finally:
            display.progress.clear()
        return display.reports

    @contextmanager
    def _executor(self) -> Iterator[Executor | None]:
        """Where the checks run; None: on this machine."""
        address: str | None = self.arguments.executor
        if address is None:
            yield None
            return
        from graphguard.checks.running.cluster import ClusterError, cluster

        if address and self.arguments.jobs:
            raise CommandError(
                "-j is for this machine: the workers of a scheduler say how many checks run at the same time"
            )
        try:
            with cluster(address, self.arguments.jobs or 0) as executor:
                yield executor
        except ClusterError as error:
            raise CommandError(f"--executor dask: {error}") from error

    def _nothing(self) -> str:
        where = (
            ", ".join(self.arguments.paths) or f"{self.configuration.root} (checks = {list(self.configuration.checks)})"
        )
        inner = unreached([Path(path) for path in self.arguments.paths], self.configuration)
        if inner:
            file = Path(inner[0].span.file).name
            return f"no checks found in {where}: in {file}, {inner_text(inner[0])}"
        return (
            f"no checks found in {where}: a check is a function decorated with @graphguard.check(mesh=...); "
            "graphguard init writes a first one"
        )

    def _tell_of_others(self) -> None:
        """Say which functions are decorated as checks, beside those that are found, and are none; nothing where checks were asked for by name."""
        if any("::" in path for path in self.arguments.paths):
            return
        for one in unreached([Path(path) for path in self.arguments.paths], self.configuration):
            sys.stderr.write(f"graphguard: {self.sources.shown(one.span.file)}: not run: {inner_text(one)}\n")

    def _baseline(self) -> Baseline | None:
        if self.arguments.baseline is None or self.arguments.write_baseline:
            return None
        return read_baseline(Path(self.arguments.baseline))

    def _unused(self, found: Sequence[FoundCheck], reports: Sequence[Report], waivers: Waivers) -> list[Diagnostic]:
        """Unused waivers of the files whose checks all ran on their declared meshes: elsewhere a check that did not run may need them."""
        if self.arguments.mesh or any("::" in path for path in self.arguments.paths):
            return []
        files = dict.fromkeys(check.ref.span.file for check in found if check.trouble is None)
        if not self.arguments.paths:
            files |= dict.fromkeys(file for report in reports for file in report.sources)
        return waivers.unused(files)

    def _finish(self, reports: Sequence[Report]) -> None:
        with self.timings.phase("show"):
            if self.arguments.output_format == "text":
                whole = text.summary(reports, self.page, self.sources, verbose=self.arguments.verbose)
            else:
                whole = WHOLE[self.arguments.output_format](reports, self.sources)
        if self.arguments.timings:
            phases = self.timings.phases(reports)
            if self.arguments.output_format == "json":
                whole = with_timings(whole, phases)
            elif self.arguments.output_format == "text":
                whole += table(phases)
            else:
                sys.stderr.write(table(phases))
        sys.stdout.write(whole)
        sys.stdout.flush()
        for name, file in self.arguments.output:
            Path(file).write_text(
                WHOLE[name](reports, self._sources(name)), encoding="utf-8", errors="backslashreplace"
            )

    def _store(self, found: Sequence[FoundCheck], reports: Sequence[Report], baseline: Baseline | None) -> None:
        """Write the baseline, or what is left of it; a run on other meshes than the declared ones says nothing of what is gone."""
        if self.arguments.write_baseline:
            path = Path(self.arguments.baseline or "graphguard-baseline.json")
            written = baseline_of(reports, self.sources)
            _write(path, written)
            sys.stderr.write(f"wrote {path}: {_findings(written.total())}\n")
        elif baseline is not None and not self.arguments.mesh:
            there = None if self.arguments.paths else {check.ref.id for check in found}
            if gone := baseline.shrunk(there):
                _write(Path(self.arguments.baseline), baseline)
                were = "is gone and was" if gone == 1 else "are gone and were"
                sys.stderr.write(f"{self.arguments.baseline}: {_findings(gone)} {were} taken out\n")


def _findings(count: int) -> str:
    return f"{count} finding{'' if count == 1 else 's'}"


def _write(path: Path, baseline: Baseline) -> None:
    try:
        path.write_text(baseline.text(), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: the baseline cannot be written: {error.strerror or error}") from error
