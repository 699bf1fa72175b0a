"""What a check depended on while it was recorded: the sources it imported, what it asked of files and folders, the environment variables it read."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from graphguard.ir import Capture
from graphguard.trace.depends.asking import Asker, asker, listen
from graphguard.trace.depends.questions import QUESTIONS, answered
from graphguard.trace.source.sources import ProjectFiles, is_installed, is_ours, is_own_code, is_torch, meaning_digest

# Set by the recording itself, differently in every rank.
RANK_VARIABLES = frozenset(
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
)
# Set by a shell for each command.
_OF_THE_COMMAND = frozenset(("_", "SHLVL"))
_EVERYTHING = "*"


@dataclass(slots=True)
class Footprint:
    """``sources`` by path as they were read; ``environment`` as digests of values (None: not set; ``*`` is all of it); ``answers`` by question and path.

    ``lost`` says what was asked that cannot be compared later, if anything was.
    """

    sources: dict[str, bytes] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)
    answers: dict[str, dict[str, str]] = field(default_factory=dict)
    lost: str = ""

    @property
    def kept(self) -> dict[str, Any] | None:
        """It as plain data, with digests of the sources' texts; None where it cannot be compared later."""
        if self.lost:
            return None
        texts = {path: text_digest(text) for path, text in self.sources.items()}
        return {"sources": texts, "environment": self.environment, "answers": self.answers}

    def merge(self, other: Footprint) -> None:
        """Add what another process of the same check depended on."""
        self.sources.update(other.sources)
        self.environment.update(other.environment)
        for question, answers in other.answers.items():
            known = self.answers.setdefault(question, {})
            changed = next((path for path, answer in answers.items() if known.setdefault(path, answer) != answer), "")
            self.lost = self.lost or changed
        self.lost = self.lost or other.lost

    def digests(self) -> dict[str, str]:
        """The meaning of every source, by path."""
        return {path: meaning_digest(text) for path, text in sorted(self.sources.items())}


def with_sources_of_frames(capture: Capture) -> Capture:
    """A capture whose sources are those of the frames as well: what was imported before the recording began was read by nobody who took notes."""
    graphs = (capture.spec, *capture.ranks)
    files = {frame.span.file for graph in graphs if graph is not None for frame in graph.frames}
    own = sorted(file for file in files - set(capture.sources) if is_own_code(file) and os.path.isfile(file))
    return replace(
        capture, sources={**capture.sources, **{file: meaning_digest(Path(file).read_bytes()) for file in own}}
    )


def value_digest(environment: Mapping[str, str], name: str) -> str | None:
    """A digest of an environment variable's value, which may be a secret; None where it is not set."""
    if name == _EVERYTHING:
        own = RANK_VARIABLES | _OF_THE_COMMAND
        value: str | None = repr(sorted(item for item in environment.items() if item[0] not in own))
    else:
        value = environment.get(name)
    return None if value is None else hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:32]


def together(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    """What two recordings depended on, each as :attr:`Footprint.kept`; None where one cannot be compared later, or they were answered differently."""
    if one is None or other is None:
        return None
    both = {part: {**one[part], **other[part]} for part in ("sources", "environment")}
    answers = {
        question: {**one["answers"].get(question, {}), **other["answers"].get(question, {})}
        for question in (*one["answers"], *other["answers"])
    }
    both["answers"] = answers
    agree = all(both[part][key] == value for part in ("sources", "environment") for key, value in one[part].items())
    agree &= all(answers[key][path] == told for key, row in one["answers"].items() for path, told in row.items())
    return both if agree else None


def text_digest(text: bytes) -> str:
    """A digest of a source file as it is written, comments and layout included."""
    return hashlib.sha256(text).hexdigest()[:32]


class Watch:
    """Notes what the rest of this process's life asks; it cannot be taken back, so only children that run user code have one.

    ``rank_dependent`` turns True when an import asks which rank it is in.
    """

    def __init__(self, files: ProjectFiles) -> None:
        self._files = files
        self._variables: set[str] = set()
        self._before = dict(os.environ)  # what a program sets itself is no part of what it depends on
        self._answers: dict[tuple[str, str], str] = {}
        self._made: set[str] = set()
        self._modules = len(sys.modules)
        self._answering = False
        self._lost = ""
        self.rank_dependent = False

    def install(self) -> None:
        """Begin."""
        self._watch_environment()
        self._modules = len(sys.modules)
        listen(self)

    def found(self) -> Footprint:
        """What was asked so far."""
        for path in self._searched():
            self.ask("module", path)
        footprint = Footprint(dict(self._files.read), lost=self._lost)
        for name in sorted(self._variables - RANK_VARIABLES):
            footprint.environment[name] = value_digest(self._before, name)
        for (question, path), answer in sorted(self._answers.items()):
            footprint.answers.setdefault(question, {})[path] = answer
        return footprint

    # -- what is heard -------------------------------------------------------------------------------------------------
    def ask(self, question: str, path: str) -> None:
        """Answer as it is now, once: what the program itself makes of the file later is its own doing."""
        if self._answering or (question, path) in self._answers or is_installed(path) or self._is_made(path):
            return
        self._answering = True
        try:
            answer = answered(question, path)
        finally:
            self._answering = False
        if answer is None:
            self.lose(path)
        else:
            self._answers[question, path] = answer

    def make(self, path: str) -> None:
        """Questions about it are no longer the machine's to answer."""
        if not self._answering:
            self._made.add(path)

    def lose(self, why: str) -> None:
        """Nothing that was recorded after this can be kept."""
        self._lost = self._lost or why

    def _is_made(self, path: str) -> bool:
        return bool(self._made) and any(part in self._made for part in (path, *map(str, Path(path).parents)))

    # -- imports -------------------------------------------------------------------------------------------------------
    def _searched(self) -> Iterator[str]:
        """Where the modules that were imported since would be found, were there others of their names: in the user's folders up to their own."""
        for module in list(itertools.islice(reversed(sys.modules.values()), max(0, len(sys.modules) - self._modules))):
            yield from _places_of(module)

    # -- the environment -----------------------------------------------------------------------------------------------
    def _watch_environment(self) -> None:
        environment: Any = type(os.environ)
        usual, all_names = environment.__getitem__, environment.__iter__

        def read(this: Any, name: Any) -> Any:
            self._note(name)
            return usual(this, name)

        def contains(this: Any, name: object) -> bool:
            self._note(name)
            return this.encodekey(name) in this._data  # noqa: SLF001 - what Mapping does by way of __getitem__, without counting twice

        def names(this: Any) -> Any:
            if asker() is not Asker.RUNTIME:
                self._variables.add(_EVERYTHING)
            return all_names(this)

        environment.__getitem__ = read
        environment.__contains__ = contains
        environment.__iter__ = names

    def _note(self, asked: object) -> None:
        name = os.fsdecode(asked) if isinstance(asked, bytes) else asked
        if not isinstance(name, str):
            return
        if name in RANK_VARIABLES:
            self.rank_dependent = self.rank_dependent or not _asked_by_torch()
        else:
            self._variables.add(name)


def _places_of(module: ModuleType) -> Iterator[str]:
    """``folder/name`` for every folder of the user's that an import of this module looks into before it has found it."""
    spec = getattr(module, "__dict__", {}).get("__spec__")
    name, origin = getattr(spec, "name", None), getattr(spec, "origin", None)
    if not isinstance(name, str) or not isinstance(origin, str | None) or origin in ("built-in", "frozen"):
        return
    package, _, tail = name.rpartition(".")
    if package and origin is not None and not is_own_code(origin):
        return  # in a package that is installed
    folders = getattr(sys.modules.get(package), "__path__", ()) if package else sys.path
    home = None if origin is None else os.path.dirname(origin)
    for folder in map(os.path.abspath, folders):
        if not is_installed(folder) and is_own_code(os.path.join(folder, "")):
            yield os.path.join(folder, tail)
            if home is None:
                yield os.path.join(folder, tail, "__init__")
        if home is not None and os.path.join(home, "").startswith(os.path.join(folder, "")):
            return


def _asked_by_torch() -> bool:
    """Whether the code that reads the environment is torch's, the standard library's or ours."""
    frame = sys._getframe(2)  # noqa: SLF001 - who asks is what counts
    while frame is not None:
        path = frame.f_code.co_filename
        if not (path.startswith("<frozen") or path == __file__ or path == os.__file__ or "_collections_abc" in path):
            return is_torch(path) or is_ours(path)
        if frame.f_back is None:
            return True
        frame = frame.f_back
    return True


def unchanged(footprint: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Whether all that a stored footprint asked is answered today as it was; raises ``KeyError`` for a question that nobody asks."""
    variables: Mapping[str, str | None] = footprint["environment"]
    if not footprint["answers"].keys() <= QUESTIONS.keys():
        raise KeyError("an unknown question")
    return all(value_digest(environment, name) == digest for name, digest in variables.items()) and all(
        answered(question, path) == answer
        for question, answers in footprint["answers"].items()
        for path, answer in answers.items()
    )
