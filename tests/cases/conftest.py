"""Collects the sections of the Markdown files in this folder as tests and runs the whole pipeline on each."""

import atexit
import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graphguard.checks.project.configuration import Configuration, load_configuration
from graphguard.checks.project.discovery import discover
from graphguard.checks.proving.prover import Prover
from graphguard.checks.running.driver import Options, run_checks
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.report import text
from graphguard.report.layout import Page
from graphguard.report.sources import Sources
from graphguard.report.waivers import Waivers, with_unused

from ..recorded import Recording, record_of
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
        yield RecordItem.from_parent(self, name="every record is of a case", titles=[case.title for case in cases])


class CaseFailure(Exception):
    """The program is not judged as its section says."""


class CaseItem(pytest.Item):
    def __init__(self, *, case: Case, **rest) -> None:
        super().__init__(**rest)
        self.case = case
        if case.slow:
            self.add_marker(pytest.mark.slow)
        self.funcargs: dict[str, object] = {}  # the plugin pytest-lsp fails on items without

    def runtest(self) -> None:
        run_case(self.case, Path(self.config._tmp_path_factory.mktemp("case")), recording(self))

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, CaseFailure):
            return f"{self.path}:{self.case.line}: {self.case.title}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, self.case.line - 1, f"{self.path.name}: {self.case.title}"


class RecordItem(pytest.Item):
    """Nothing is recorded of a case that is no longer there."""

    def __init__(self, *, titles: list[str], **rest) -> None:
        super().__init__(**rest)
        self.titles = titles
        self.funcargs: dict[str, object] = {}

    def runtest(self) -> None:
        assert not recording(self).only(self.titles)

    def reportinfo(self):
        return self.path, 0, f"{self.path.name}: records"


def recording(item: pytest.Item) -> Recording:
    """The records of an item's file, in the folder ``recorded`` beside it."""
    path = item.path.parent / "recorded" / f"{item.path.stem}.json"
    return Recording(path, update=item.config.getoption("--record"))


def run_case(case: Case, folder: Path, recorded: Recording | None = None) -> None:
    """Judge a case in a real folder with a pyproject.toml of its own, as a user's project is; raises :class:`CaseFailure`."""
    (folder / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["*.py"]\n')
    records: list[object] = []
    counted = Counted(worker(load_configuration(folder).python)) if case.edits else None
    for state in (case, *case.edits):
        for name, source in state.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(source)
        sources = Sources(folder)
        reports = judged(folder, sources, counted)
        wrong = differences(state, reports, sources, counted and counted.taken())
        records.append(record_of(reports, sources))
        if wrong:
            where = [f"after the edit of line {state.line}:"] if state is not case else []
            raise CaseFailure("\n".join([*where, *wrong, "", text.render(reports, sources, Page(120), verbose=True)]))
    if recorded is not None and (changed := recorded.compare(case.title, records)):
        raise CaseFailure("\n".join(changed))


class Counted:
    """Worker and prover that keep what they know from one state of a case to the next, and count what they do anew."""

    def __init__(self, worker: WorkerClient) -> None:
        self.worker, self.prover = _Counting(worker, self), _Counting(Prover(), self)
        self.counts: Counter[str] = Counter()
        self.fixing = False

    def heard(self, method: str, params: dict[str, Any], answer: Any) -> None:
        """Count what is done for the checks themselves, not for the edits that are tried as fixes."""
        if method == "capture":
            self.fixing = bool(params["overlay"])
            self.counts["traced"] += not self.fixing and not answer.get("cached")
        elif method == "prove":
            anew = not self.fixing and not answer["cached"]
            self.counts["proved"] += anew
            if anew:
                self.counts.update({name: answer[name] for name in ("calls", "evaluated")})

    def taken(self) -> dict[str, int]:
        """The counts since the last time."""
        counts, self.counts = dict(self.counts), Counter()
        return counts


class _Counting:
    def __init__(self, process: Any, counted: Counted) -> None:
        self._process, self._counted = process, counted

    def call(self, method: str, params: dict[str, Any]) -> Any:
        answer = self._process.call(method, params)
        self._counted.heard(method, params, answer)
        return answer


def judged(folder: Path, sources: Sources, counted: Counted | None = None):
    """What `graphguard check` reports in a folder; all cases share one worker, whose children each trace one program.

    A case with edits is checked with caches, the others without.
    """
    configuration = load_configuration(folder)
    found = discover([], configuration)
    waivers = Waivers(sources, configuration.levels)
    process = counted.worker if counted else worker(configuration.python)
    prover = counted.prover if counted else None
    options = Options(cache=counted is not None)
    reports = [
        waivers.apply(report) for report in run_checks(found, configuration, options, worker=process, prover=prover)
    ]
    return with_unused(reports, waivers.unused(check.ref.span.file for check in found if check.trouble is None))


@functools.cache
def worker(python: tuple[str, ...]) -> WorkerClient:
    """One tracing worker for all cases."""
    client = WorkerClient(Configuration(Path.cwd(), python=python))
    atexit.register(client.close)
    return client
