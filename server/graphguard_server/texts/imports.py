"""Which files a check is made of: the import graph of a project, read from source without running it."""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Callable, Iterable
from typing import Final

import networkx as nx

from graphguard_server.texts.source import parsed, statements

LIMIT: Final = 5000


@functools.lru_cache(maxsize=1024)
def imported_names(text: str) -> tuple[tuple[int, str, tuple[str, ...]], ...] | None:
    """Every import of a text as (dots, module, names), nested ones included; None where it does not parse."""
    tree = parsed(text)
    if tree is None:
        return None
    found: list[tuple[int, str, tuple[str, ...]]] = []
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found.extend((0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
    return tuple(found)


class ImportGraph:
    """Files and what they import, within the project's folder.

    ``read`` gives a file's text as the user sees it.  While a file does not parse, its last imports stay.
    """

    def __init__(self, root: str, read: Callable[[str], str | None]) -> None:
        self.root = root
        self._read = read
        self._graph = nx.DiGraph()
        self._texts: dict[str, str | None] = {}

    def add(self, path: str) -> None:
        """Read a file and what it imports, and what those import."""
        waiting = [path]
        seen: set[str] = set()
        while waiting and len(seen) < LIMIT:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            waiting.extend(self._refresh(current))

    def learn(self, path: str, others: Iterable[str]) -> None:
        """Take over imports that only running the code has shown."""
        for other in others:
            if other != path:
                self._graph.add_edge(path, other, seen=True)

    def files_of(self, path: str) -> frozenset[str]:
        """The file and everything it imports, directly or not."""
        if path not in self._graph:
            return frozenset({path})
        return frozenset({path, *nx.descendants(self._graph, path)})

    def users_of(self, path: str) -> frozenset[str]:
        """The file and everything that imports it, directly or not."""
        if path not in self._graph:
            return frozenset({path})
        return frozenset({path, *nx.ancestors(self._graph, path)})

    def _refresh(self, path: str) -> list[str]:
        text = self._read(path)
        if path in self._texts and self._texts[path] == text:
            return list(self._graph.successors(path)) if path in self._graph else []
        self._texts[path] = text
        names = imported_names(text) if text is not None else ()
        self._graph.add_node(path)
        if names is None:
            return list(self._graph.successors(path))
        stale = [(a, b) for a, b, seen in self._graph.out_edges(path, data="seen") if not seen]
        self._graph.remove_edges_from(stale)
        for level, module, members in names:
            for target in self._resolve(path, level, module, members):
                if target != path:
                    self._graph.add_edge(path, target)
        return list(self._graph.successors(path))

    def _resolve(self, path: str, level: int, module: str, members: tuple[str, ...]) -> list[str]:
        parts = module.split(".") if module else []
        folder = os.path.dirname(path)
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            bases = [folder]
        else:
            bases = [folder, self.root, os.path.join(self.root, "src")]
        for base in bases:
            found = self._modules(base, parts, members)
            if found:
                return found
        return []

    def _modules(self, base: str, parts: list[str], members: tuple[str, ...]) -> list[str]:
        """The files that importing ``parts`` from ``base`` runs: every package on the way, the module, and submodules among ``members``."""
        found = []
        folder = base
        for index, part in enumerate(parts):
            module = os.path.join(folder, part + ".py")
            folder = os.path.join(folder, part)
            package = os.path.join(folder, "__init__.py")
            if os.path.isfile(package):
                found.append(package)
            elif index == len(parts) - 1 and os.path.isfile(module):
                return [*found, module]
            elif not os.path.isdir(folder) or not _within(folder, self.root):
                return []
        for member in members:
            candidates = (os.path.join(folder, member + ".py"), os.path.join(folder, member, "__init__.py"))
            found.extend(candidate for candidate in candidates if os.path.isfile(candidate))
        return [path for path in found if _within(path, self.root) or _within(path, base)]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
