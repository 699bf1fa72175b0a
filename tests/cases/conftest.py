"""Collects the sections of the Markdown files in this folder as tests and runs the whole pipeline on each."""

import atexit
import functools
from pathlib import Path

import pytest

from graphguard.checks.configuration import Configuration, load_configuration
from graphguard.checks.discovery import discover
from graphguard.checks.driver import Options, run_checks
from graphguard.checks.worker_client import WorkerClient
from graphguard.report import text
from graphguard.report.layout import Page
from graphguard.report.sources import Sources
from graphguard.report.waivers import Waivers, with_unused

from .literate import Case, CaseError, differences, read_cases


def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".md" and file_path.name != "README.md":
        return CaseFile.from_parent(parent, path=file_path)
    return None


class CaseFile(pytest.File):
    def collect(self):
        try:
            cases = read_cases(self.path.read_text(encoding="utf-8"))
        except CaseError as error:
            raise self.CollectError(f"{self.path}: {error}") from error
        for case in cases:
            yield CaseItem.from_parent(self, name=case.title, case=case)


class CaseFailure(Exception):
    """The program is not judged as its section says."""


class CaseItem(pytest.Item):
    def __init__(self, *, case: Case, **rest) -> None:
        super().__init__(**rest)
        self.case = case
        self.funcargs: dict[str, object] = {}  # the plugin pytest-lsp fails on items without

    def runtest(self) -> None:
        run_case(self.case, Path(self.config._tmp_path_factory.mktemp("case")))

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, CaseFailure):
            return f"{self.path}:{self.case.line}: {self.case.title}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, self.case.line - 1, f"{self.path.name}: {self.case.title}"


def run_case(case: Case, folder: Path) -> None:
    """Judge a case in a real folder with a pyproject.toml of its own, as a user's project is; raises :class:`CaseFailure`."""
    (folder / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["*.py"]\n')
    for name, source in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source)
    sources = Sources(folder)
    reports = judged(folder, sources)
    wrong = differences(case, reports, sources)
    if case.gap:
        if not wrong:
            raise CaseFailure(f"the gap is closed: take '# gap: {case.gap}' away")
        pytest.xfail(case.gap)
    if wrong:
        raise CaseFailure("\n".join([*wrong, "", text.render(reports, sources, Page(120), verbose=True)]))


def judged(folder: Path, sources: Sources):
    """What `graphguard check` reports in a folder; all cases share one worker, whose children each trace one program."""
    configuration = load_configuration(folder)
    found = discover([], configuration)
    waivers = Waivers(sources, configuration.levels)
    reports = [
        waivers.apply(report)
        for report in run_checks(found, configuration, Options(cache=False), worker=_worker(configuration.python))
    ]
    return with_unused(reports, waivers.unused(check.ref.span.file for check in found if check.trouble is None))


@functools.cache
def _worker(python: tuple[str, ...]) -> WorkerClient:
    worker = WorkerClient(Configuration(Path.cwd(), python=python))
    atexit.register(worker.close)
    return worker
