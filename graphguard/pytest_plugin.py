"""The pytest plugin: check files are collected, one test for each check and mesh, ``checks/mlp.py::mlp[tp=2]``.

Collected are the files of the ``checks`` patterns in ``[tool.graphguard]``, and files that are named on pytest's command line.  Nothing of them is run until a
test is; every process of pytest-xdist has its own tracing worker, started with its first check that is not answered from the cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from graphguard.commands.mesh import MeshError, parse_mesh

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr

    from graphguard.checks.project.configuration import Configuration
    from graphguard.checks.running.driver import LoadedProver
    from graphguard.checks.running.worker_client import WorkerClient
    from graphguard.report.diagnostics import Report
    from graphguard.report.sources import Sources
    from graphguard.trace.claims.declared import FoundCheck

Mesh = dict[str, int]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, of the names that the command line has."""
    group = parser.getgroup("graphguard", "checks of GraphGuard")
    group.addoption(
        "--graphguard-mesh",
        action="append",
        metavar="tp=4,dp=2",
        type=_mesh,
        help="verify checks on this mesh in place of their own; may be repeated",
    )
    group.addoption("--graphguard-no-cache", action="store_true", help="trace everything anew")
    group.addoption("--graphguard-no-fix", action="store_true", help="look for no fixes")


def _mesh(text: str) -> Mesh:
    try:
        return parse_mesh(text)
    except MeshError as error:
        raise pytest.UsageError(f"--graphguard-mesh: {error}") from error


def pytest_configure(config: pytest.Config) -> None:
    """Projects and their processes live as long as the run."""
    config.addinivalue_line("markers", "graphguard: a check that the plugin of GraphGuard collected")
    config.stash[_PROJECTS] = Projects(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the workers."""
    projects = config.stash.get(_PROJECTS, None)
    if projects is not None:
        projects.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A check file is collected beside whatever else it is to pytest."""
    if file_path.suffix != ".py" or not parent.config.stash[_PROJECTS].has(file_path):
        return None
    collector: pytest.Collector = CheckFile.from_parent(parent, path=file_path)
    return collector


class CheckFile(pytest.File):
    """The checks of one file."""

    def collect(self) -> Iterator[pytest.Item]:
        """One test for each check and mesh; a check whose meshes only running it tells is one test."""
        meshes: list[Mesh] = self.config.getoption("graphguard_mesh") or []
        for check in self.config.stash[_PROJECTS].checks(self.path):
            name = check.ref.name or self.path.name
            for mesh in meshes or check.meshes or (None,):
                shown = name if mesh is None else f"{name}[{_text(mesh)}]"
                yield CheckItem.from_parent(self, name=shown, check=check, mesh=mesh)


def _text(mesh: Mesh) -> str:
    return ",".join(f"{axis}={size}" for axis, size in mesh.items())


class ChecksFailedError(Exception):
    """Reports that are not all ``refines``."""

    def __init__(self, reports: Sequence[Report]) -> None:
        super().__init__("a check does not refine its specification")
        self.reports = reports


class CheckItem(pytest.Item):
    """A check on a mesh; ``mesh`` is None where the check itself says on which."""

    def __init__(self, *, check: FoundCheck, mesh: Mesh | None, **keywords: object) -> None:
        super().__init__(**keywords)  # type: ignore[arg-type]
        self.check = check
        self.mesh = mesh
        self.funcargs: dict[str, object] = {}  # other plugins look for fixtures in every test
        self.add_marker("graphguard")

    def runtest(self) -> None:
        """Verify; raises :class:`ChecksFailedError` unless the verdict is ``refines``, or what is found is waived."""
        from graphguard.report.outcomes import exit_code

        reports = self.config.stash[_PROJECTS].verify(self.path, self.check, self.mesh)
        if exit_code(reports):
            raise ChecksFailedError(reports)

    def repr_failure(
        self,
        excinfo: pytest.ExceptionInfo[BaseException],
        style: object = None,  # noqa: ARG002 - as pytest calls it
    ) -> str | TerminalRepr:
        """What the terminal shows of ``graphguard check``."""
        if not isinstance(excinfo.value, ChecksFailedError):
            return super().repr_failure(excinfo)
        from graphguard.report.layout import page_for
        from graphguard.report.text import render

        sources = self.config.stash[_PROJECTS].sources(self.path)
        return render(excinfo.value.reports, sources, page_for(sys.stdout, "never")).rstrip()

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the check is defined."""
        return self.path, self.check.ref.span.line - 1, f"check {self.name}"


class Projects:
    """The projects of the collected files, each with its configuration and, once a check runs, its processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._base = config.invocation_params.dir
        self._named = {(self._base / argument.partition("::")[0]).resolve() for argument in config.args}
        self._cache = not config.getoption("graphguard_no_cache")
        self._fixes = not config.getoption("graphguard_no_fix")
        self._configurations: dict[Path, Configuration] = {}
        self._files: dict[Path, frozenset[Path]] = {}
        self._running: dict[Path, tuple[WorkerClient, LoadedProver]] = {}

    def has(self, file: Path) -> bool:
        """Whether a file is to be looked into for checks."""
        from graphguard.trace.claims.declared import may_declare

        configuration = self._configuration(file)
        root = configuration.root
        if root not in self._files:
            found = (path for pattern in configuration.checks for path in root.glob(pattern))
            self._files[root] = frozenset(path.resolve() for path in found)
        if file.resolve() not in self._files[root] and file.resolve() not in self._named:
            return False
        return may_declare(file.read_bytes().decode("latin-1")) and bool(self.checks(file))

    def checks(self, file: Path) -> list[FoundCheck]:
        """The checks of a file; one that does not parse is an entry with a trouble."""
        from graphguard.checks.project.discovery import discover

        return discover([file], self._configuration(file))

    def verify(self, file: Path, check: FoundCheck, mesh: Mesh | None) -> list[Report]:
        """The reports of a check on a mesh, or on all of its own, with what is waived taken out."""
        from graphguard.checks.running.driver import LoadedProver, Options, run_checks
        from graphguard.checks.running.worker_client import WorkerClient
        from graphguard.report.waivers import Waivers

        configuration = self._configuration(file)
        if configuration.root not in self._running:
            self._running[configuration.root] = WorkerClient(configuration), LoadedProver(self._cache)
        worker, prover = self._running[configuration.root]
        options = Options(() if mesh is None else (mesh,), cache=self._cache, fixes=self._fixes)
        waivers = Waivers(self.sources(file), configuration.levels)
        reports = run_checks([check], configuration, options, worker=worker, prover=prover)
        return [waivers.apply(report) for report in reports]

    def sources(self, file: Path) -> Sources:
        """The texts of a file's project; files are named from where pytest was called."""
        from graphguard.report.sources import Sources

        return Sources(self._configuration(file).root, base=self._base)

    def close(self) -> None:
        """End the workers."""
        for worker, _ in self._running.values():
            worker.close()
        self._running.clear()

    def _configuration(self, file: Path) -> Configuration:
        from graphguard.checks.project.configuration import ConfigurationError, load_configuration

        folder = file.parent
        if folder not in self._configurations:
            try:
                self._configurations[folder] = load_configuration(folder)
            except ConfigurationError as error:
                raise pytest.UsageError(str(error)) from error
        return self._configurations[folder]


_PROJECTS = pytest.StashKey[Projects]()
