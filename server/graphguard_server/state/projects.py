"""A project: a folder with its configuration, its checks, and the import graph between its files."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from graphguard_server.processes.engine import Engine, ProjectConfiguration
from graphguard_server.state.checks import Check, Run
from graphguard_server.texts.documents import Documents
from graphguard_server.texts.imports import ImportGraph
from graphguard_server.texts.source import syntax_error

log = logging.getLogger(__name__)


class Project:
    """The checks of one folder; results stay while their check does.

    ``inherited`` are the checks that were known under an earlier configuration.
    """

    def __init__(
        self,
        configuration: ProjectConfiguration,
        engine: Engine,
        documents: Documents,
        inherited: dict[str, Check] | None = None,
    ) -> None:
        self._inherited = inherited or {}
        self.configuration = configuration
        self.root = configuration.root
        self.imports = ImportGraph(self.root, documents.text)
        self.checks: dict[str, Check] = {}
        self.unreadable: dict[str, SyntaxError] = {}
        self._engine = engine
        self._documents = documents

    def read(self, path: str) -> None:
        """Take over a file as it is now: its imports and its checks; one that does not parse keeps those it had."""
        text = self._documents.text(path)
        self.imports.add(path)
        self.unreadable.pop(path, None)
        if text is None:
            self._replace(path, {})
            return
        error = syntax_error(text)
        if error is not None:
            self.unreadable[path] = error
            kept = {key: self._inherited.pop(key) for key in list(self._inherited) if self._inherited[key].file == path}
            self.checks = {**kept, **self.checks}
            return
        try:
            found = self._engine.discover(path, text, self.root)
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
            log.exception("the checks of %s could not be read; those known before stay", path)
            return
        checks = {}
        for each in found:
            known = self.checks.get(each.ref.id) or self._inherited.pop(each.ref.id, None)
            check = known or Check(self.root, path, each.ref, None, text)
            check.ref, check.text = each.ref, text
            check.meshes = None if each.meshes is None else tuple(dict(mesh) for mesh in each.meshes)
            check.plan()
            checks[each.ref.id] = check
        self._replace(path, checks)

    def affected_by(self, path: str) -> list[Check]:
        """The checks that a change of the file may concern."""
        users = self.imports.users_of(path)
        return [
            check
            for check in self.checks.values()
            if check.file in users or any(path in run.snapshot for run in check.runs.values())
        ]

    def runs(self) -> Iterator[Run]:
        """Every run of every check."""
        for check in self.checks.values():
            yield from check.runs.values()

    def snapshot(self, check: Check) -> dict[str, str]:
        """The texts, as they are now, of the files that a check is made of."""
        texts = {path: self._documents.text(path) for path in self.imports.files_of(check.file)}
        return {path: text for path, text in texts.items() if text is not None}

    def _replace(self, path: str, checks: dict[str, Check]) -> None:
        others = {key: check for key, check in self.checks.items() if check.file != path}
        self.checks = {**others, **checks}
