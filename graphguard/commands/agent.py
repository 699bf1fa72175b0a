"""What an agent may ask, as plain functions: ``graphguard mcp`` offers them by the Model Context Protocol.

The trust rule: verifying runs the project's code.  Unless whoever starts the server trusts the folder, nothing is run; and no file outside of it is looked at.
"""

from __future__ import annotations

import difflib
import textwrap
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graphguard.checks.project.configuration import Configuration, ConfigurationError, load_configuration
from graphguard.checks.project.discovery import DiscoveryError, discover
from graphguard.checks.running.driver import LoadedProver, Options, run_checks
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.commands.mesh import MeshError, parse_mesh
from graphguard.report import registry
from graphguard.report.diagnostics import Report
from graphguard.report.edits import EditError, changed_files
from graphguard.report.json_document import document
from graphguard.report.layout import Page
from graphguard.report.sources import Sources
from graphguard.report.text import render
from graphguard.report.waivers import Waivers
from graphguard.trace.claims.declared import FoundCheck


class RefusedError(Exception):
    """Why a question is not answered; the message is for the agent, and says what to do."""


_PAIR = """\
import torch
from torch.distributed.tensor import Partial, Replicate, Shard

import graphguard as gg
from implementation import implementation
from specification import specification


@gg.check(mesh={mesh!r})
def pair(mesh):
    return gg.Refinement(specification, implementation(mesh), {inputs}, out_relations={out_relations})
"""


@dataclass(slots=True)
class Agent:
    """One agent's view of one folder; its tracing worker is started with the first check that runs, and serves one question at a time."""

    folder: Path
    trusted: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _worker: WorkerClient | None = None
    _prover: LoadedProver = field(default_factory=lambda: LoadedProver(cache=True))

    def list_checks(self, path: str = "") -> list[dict[str, Any]]:
        """List the checks of a file or folder, or of the whole project; nothing is run."""
        return [
            {
                "id": check.ref.id,
                "line": check.ref.span.line,
                "meshes": None if check.meshes is None else list(check.meshes),
            }
            for check in self._found(path)
        ]

    def verify(self, check: str, mesh: str = "", fixes: bool = False) -> dict[str, Any]:
        """Verify ``file.py::name``, or all checks of a file; ``text`` is what the terminal shows.

        Verdicts are refines (proved), broken (refuted by a counterexample), unknown (neither: no statement about the program) and null (could not run).
        """
        reports, sources = self._reports(check, mesh, fixes=fixes)
        return _told(reports, sources)

    def verify_pair(
        self, specification: str, implementation: str, inputs: str, mesh: str, out_relations: str = "'infer'"
    ) -> dict[str, Any]:
        """Verify a pair of texts that are in no file.

        The first is Python that defines ``specification``, a function or module; the second defines ``implementation(mesh)``, which gives a rank's.  ``inputs``
        is a Python tuple such as ``(gg.tensor(2, 8),)``; ``mesh`` is such as ``tp=2``; ``out_relations`` is Python such as ``{'tp': Shard(0)}``.
        """
        self._trust()
        with TemporaryDirectory(prefix="graphguard-pair-") as name:
            folder = Path(name).resolve()
            check = _PAIR.format(mesh=_mesh(mesh), inputs=inputs, out_relations=out_relations)
            texts = {"specification": specification, "implementation": implementation, "check": check}
            for module, text in texts.items():
                (folder / f"{module}.py").write_text(textwrap.dedent(text), encoding="utf-8")
            configuration = Configuration(folder, python=self._configuration(self.folder).python)
            return _told(
                *self._run(discover([folder / "check.py"], configuration), configuration, Options(cache=False))
            )

    def explain(self, rule: str = "") -> str:
        """Explain a rule, such as missing-reduction: what it means, why it is bad, an example; without one, list all."""
        try:
            return registry.explain(rule) if rule else registry.listing()
        except registry.UnknownRuleError as error:
            raise RefusedError(str(error)) from error

    def relations(self, check: str, mesh: str = "", containing: str = "") -> list[dict[str, Any]]:
        """List how tensors of the specification are built from the ranks' tensors, as far as that was proved; ``containing`` is a part of their names."""
        reports, _ = self._reports(check, mesh, fixes=False)
        return [
            {
                "check": report.check.id,
                "mesh": report.mesh,
                "relations": {name: str(each) for name, each in report.relations.items() if containing in name},
            }
            for report in reports
        ]

    def propose_fixes(self, check: str, mesh: str = "") -> list[dict[str, Any]]:
        """Propose edits after which the check was recorded and proved again, best first, as diffs; no file is changed."""
        reports, sources = self._reports(check, mesh, fixes=True)
        proposed = []
        for report in reports:
            for diagnostic in report.diagnostics:
                for fix in diagnostic.fixes:
                    if not fix.proved:
                        continue
                    try:
                        changed = changed_files(fix, sources)
                    except EditError:
                        continue  # the file has changed since: the fix is of another text
                    diff = "".join(_diff(sources.named(file), *texts) for file, texts in changed.items())
                    row = {"check": report.check.id, "mesh": report.mesh, "rule": diagnostic.rule}
                    proposed.append({**row, "finding": diagnostic.headline, "title": fix.title, "diff": diff})
        return proposed

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()

    def _reports(self, selector: str, mesh: str, *, fixes: bool) -> tuple[list[Report], Sources]:
        self._trust()
        found = self._found(selector)
        if not found:
            raise RefusedError(
                f"no checks found in {selector or self.folder}: a check is a function decorated with @gg.check(mesh=...)"
            )
        meshes = (_mesh(mesh),) if mesh else ()
        configuration = self._configuration(self._inside(selector))
        return self._run(found, configuration, Options(meshes, fixes=fixes))

    def _run(
        self, found: Sequence[FoundCheck], configuration: Configuration, options: Options
    ) -> tuple[list[Report], Sources]:
        sources = Sources(configuration.root)
        waivers = Waivers(sources, configuration.levels)
        with self._lock:
            self._worker = self._worker or WorkerClient(self._configuration(self.folder))
            reports = run_checks(found, configuration, options, worker=self._worker, prover=self._prover)
        return [waivers.apply(report) for report in reports], sources

    def _trust(self) -> None:
        if not self.trusted:
            raise RefusedError(
                f"verifying runs the code of {self.folder}, which is not trusted: its owner starts `graphguard mcp --trust`"
            )

    def _found(self, selector: str) -> list[FoundCheck]:
        inside = self._inside(selector)
        _, _, name = selector.partition("::")
        paths = [Path(f"{inside}::{name}" if name else inside)] if selector else []
        try:
            return discover(paths, self._configuration(inside))
        except DiscoveryError as error:
            raise RefusedError(str(error)) from error

    def _inside(self, selector: str) -> Path:
        """The file or folder of a selector, which lies in the agent's folder, symbolic links included."""
        path = (self.folder / selector.partition("::")[0]).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise RefusedError(f"{selector} lies outside of {self.folder}")
        return path

    def _configuration(self, start: Path) -> Configuration:
        try:
            return load_configuration(start)
        except ConfigurationError as error:
            raise RefusedError(str(error)) from error


def _mesh(text: str) -> dict[str, int]:
    try:
        return parse_mesh(text)
    except MeshError as error:
        raise RefusedError(str(error)) from error


def _told(reports: Sequence[Report], sources: Sources) -> dict[str, Any]:
    """The document of the command line without relations, which have a question of their own, and the text."""
    told = document(reports, sources)
    checks = [{**check, "relations": {}} for check in told["checks"]]
    return {**told, "checks": checks, "text": render(reports, sources, Page())}


def _diff(name: str, before: str, after: str) -> str:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))
