"""Collects the sections of the Markdown files in this folder as tests and runs the whole pipeline on each."""

import contextlib
from pathlib import Path

import pytest
from graphguard.checks.configuration import load_configuration
from graphguard.checks.discovery import discover

from graphguard.checks.driver import Options, run_checks
from graphguard.report import text
from graphguard.report.layout import Page
from graphguard.report.sources import Sources
from graphguard.report.waivers import Waivers

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

    def runtest(self) -> None:
        # a real folder with a pyproject.toml of its own, as a user's project is
        folder = Path(self.config._tmp_path_factory.mktemp("case"))
        (folder / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["*.py"]\n')
        for name, source in self.case.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(source)
        with contextlib.chdir(folder):
            reports = self._reports(folder)
        sources = Sources(folder)
        wrong = differences(self.case, reports, sources)
        if wrong:
            shown = text.render(reports, sources, Page(120), verbose=True)
            raise CaseFailure("\n".join([*wrong, "", shown]))

    def _reports(self, folder: Path):
        configuration = load_configuration(folder)
        found = discover([], configuration)
        reports = run_checks(found, configuration, Options(cache=False))
        waivers = Waivers(Sources(folder), configuration.levels)
        return [waivers.apply(report) for report in reports]

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, CaseFailure):
            return f"{self.path}:{self.case.line}: {self.case.title}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, self.case.line - 1, f"{self.path.name}: {self.case.title}"
