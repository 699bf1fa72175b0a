"""Which files are the user's own, what they mean apart from comments and layout, and importing them with unsaved texts in place."""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import linecache
import marshal
import os
import sys
import sysconfig
import time
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeAlias

from graphguard.trace.source import standins
from graphguard.trace.source.assumptions import assumptions
from graphguard.trace.source.probes import compiled, is_probed
from graphguard.trace.source.rewriting import rewritten

_INSTALLED = ("site-packages", "dist-packages")
# Those of the interpreter itself: a virtual environment has none of its own, whatever its platstdlib is called.
_BASE = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
_STANDARD = tuple(os.path.join(sysconfig.get_path(name, vars=_BASE), "") for name in ("stdlib", "platstdlib"))
_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "")
#: The environment variable that tells a worker which installed packages count as the user's own, with commas between them.
SOURCES = "GRAPHGUARD_SOURCES"
# Installed packages that count as the user's own, as the parts of their paths.
_counted: set[tuple[str, ...]] = set()


def count_as_own(packages: Iterable[str]) -> None:
    """From now on, in this process and those that it forks, these installed packages (``megatron``, ``megatron.core``) are the user's own code."""
    _counted.update(tuple(package.split(".")) for package in packages)
    is_installed.cache_clear()
    is_standard.cache_clear()


def counted_as_own() -> list[str]:
    """The installed packages that are."""
    return sorted(".".join(parts) for parts in _counted)


def is_ours(path: str) -> bool:
    """Whether a file belongs to GraphGuard."""
    return path.startswith(_OURS)


@lru_cache(4096)
def is_standard(path: str) -> bool:
    """Whether a file belongs to the standard library."""
    return path.startswith(_STANDARD) and not is_installed(path)


@lru_cache(4096)
def is_torch(path: str) -> bool:
    """Whether a file belongs to torch or to the standard library: where an error was raised there says nothing to the user."""
    return is_standard(path) or f"{os.sep}torch{os.sep}" in path


def is_own_code(path: str) -> bool:
    """Whether a file is the user's, editable installs and interactive code included: not installed, not the standard library's, not ours."""
    if path.startswith("<"):  # an interactive session's code: known to linecache only
        return path in linecache.cache
    if path.startswith((*_STANDARD, _OURS)):
        return False
    return not is_installed(path)


@lru_cache(4096)
def is_installed(path: str) -> bool:
    """Whether a file was put where it is by a package manager, and does not count as the user's own all the same."""
    return any(part in _INSTALLED for part in Path(path).parts) and not _is_counted(path)


def _is_counted(path: str) -> bool:
    parts = Path(path).with_suffix("").parts
    starts = [place + 1 for place, part in enumerate(parts) if part in _INSTALLED]
    return any(parts[start : start + len(package)] == package for start in starts for package in _counted)


def file_of(module: object) -> str:
    """The file that a module was read from, or nothing; what programs put among the modules may answer any question with anything."""
    file = getattr(module, "__dict__", {}).get("__file__")
    return file if isinstance(file, str) else ""


def in_project(path: str, root: str) -> bool:
    """Whether a file of the user's lies in the checked project, or in a package that counts as the user's own."""
    return is_own_code(path) and (path.startswith(os.path.join(root, "")) or _is_counted(path))


@lru_cache(maxsize=256)
def meaning_digest(text: bytes) -> str:
    """A digest that comments, formatting and moved lines leave alone, but not what comments assume; text that does not parse is digested as it is."""
    try:
        words: list[str] = []
        _describe(ast.parse(text), words)
        tree = "\n".join(words).encode()
        if b"graphguard:" in text:
            tree += repr([(number, trait) for number, _, _, trait in assumptions(text)]).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = b"text:" + text
    return hashlib.sha256(tree).hexdigest()[:32]


def _describe(value: Any, words: list[str]) -> None:
    """Append a syntax tree without its places, in half the time that ``ast.dump`` takes; raises ``RecursionError``."""
    if isinstance(value, ast.AST):
        words.append(f"{type(value).__name__}(")
        for name in value._fields:
            _describe(getattr(value, name, None), words)
        words.append(")")
    elif isinstance(value, list):
        words.append("[")
        for item in value:
            _describe(item, words)
        words.append("]")
    else:
        words.append(repr(value))


Compiled: TypeAlias = tuple[bytes, bytes]
"""A file's text, and its code as ``marshal`` writes it."""

# Files as they were when nobody waited for them, by path, with their code.
_compiled: dict[str, tuple[bytes, CodeType]] = {}


def compile_in_advance(paths: Iterable[str], seconds: float) -> None:
    """Compile files, and work out what they mean, for imports by this process and by those forked from it, in about so much CPU time.

    It counts where a file has the same text then.  One that does not compile, or not without a warning, is left to the import, which says so.
    """
    for text, _ in _compile_changed(ProjectFiles({}), paths, seconds):
        meaning_digest(text)


def compile_for_others(files: ProjectFiles, paths: Iterable[str], seconds: float) -> dict[str, Compiled]:
    """Compile those files that have changed since this process was forked, for processes that were forked from it before: once, where each of them would."""
    return {code.co_filename: (text, marshal.dumps(code)) for text, code in _compile_changed(files, paths, seconds)}


def take_compiled(compiled: Mapping[str, Compiled]) -> None:
    """Use what the process that forked this one has compiled since."""
    for path, (text, code) in compiled.items():
        _compiled[path] = text, marshal.loads(code)  # noqa: S302 - from our parent, through a socket nobody else has


def _compile_changed(files: ProjectFiles, paths: Iterable[str], seconds: float) -> Iterator[tuple[bytes, CodeType]]:
    """The text and the code of files that are not as they were when they were last compiled; raises nothing."""
    until = time.process_time() + seconds
    for path in paths:
        if time.process_time() > until:
            return
        try:
            text = files.text(path)
            if _compiled.get(path, (None,))[0] == text:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                code = _code(text, path)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        _compiled[path] = text, code
        yield text, code


def _code(text: bytes, path: str) -> CodeType:
    code: CodeType = compile(compiled(rewritten(text, path), path), path, "exec", dont_inherit=True)
    return code


class ProjectFiles:
    """The texts of the user's own files as an import sees them: ``overlay`` (absolute path to text) over the disk.

    ``read`` collects what was read, by path: the sources that a capture depends on.
    """

    def __init__(self, overlay: Mapping[str, str]) -> None:
        self._overlay = {os.path.abspath(path): text.encode() for path, text in overlay.items()}
        self.read: dict[str, bytes] = {}

    def text(self, path: str) -> bytes:
        """The bytes of a source file; raises ``OSError``."""
        path = os.path.abspath(path)
        if path not in self._overlay:
            return Path(path).read_bytes()
        return self._overlay[path]

    def install(self) -> None:
        """Let every later import of this process read the user's own files here, uncached and without leaving byte code behind."""
        loader: Any = importlib.machinery.SourceFileLoader
        usual = loader.get_code

        def get_code(this: Any, name: str) -> Any:
            path = os.path.abspath(this.get_filename(name))
            if not is_own_code(path):
                return usual(this, name)
            return self.compile(path)

        loader.get_code = get_code

    def compile(self, path: str) -> Any:
        """The code object of one of the user's files; raises what compiling it raises."""
        text = self.read[path] = self.text(path)
        if path in self._overlay:
            self._show(path, text)
        known, code = _compiled.get(path, (None, None))
        if code is None or known != text or is_probed(path):
            code = _code(text, path)
        self._show(path, text)  # every rank quotes it, and none is to read the file again
        return code

    def adopt(self, read: Mapping[str, bytes]) -> None:
        """Take what another process of the same check read for read here."""
        for path, text in read.items():
            self.read[path] = text
            self._show(path, text)

    def meanings(self) -> Iterator[str]:
        """The meaning of every file read so far, one at a time."""
        return map(meaning_digest, list(self.read.values()))

    def texts(self) -> dict[str, str]:
        """Every file read so far, by path."""
        return {path: text.decode(errors="replace") for path, text in self.read.items()}

    def _show(self, path: str, text: bytes) -> None:
        """Tracebacks quote the unsaved text, not the file's."""
        encoding, _ = tokenize.detect_encoding(BytesIO(text).readline)
        linecache.cache[path] = (len(text), None, text.decode(encoding).splitlines(keepends=True), path)


def import_file(path: str, root: str, files: ProjectFiles) -> ModuleType:
    """Import a file of the user's under the name that its packages give it, with its folder and the project on ``sys.path``.

    Raises whatever the file raises while it is imported.
    """
    standins.install()
    name, top = _module_name(path)
    # as `python FILE` in the project's root would see them; a file in a package is found from above the package
    for folder in (os.path.join(root, "src"), root, top):
        if os.path.isdir(folder) and folder not in sys.path:
            sys.path.insert(0, folder)
    if "." in name:
        return importlib.import_module(name)
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"graphguard_check_{name}"
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(files.compile(path), module.__dict__)  # noqa: S102 - running the user's check is what this process is for
    return module


def _module_name(path: str) -> tuple[str, str]:
    """The dotted name of a file, and the folder above its outermost package."""
    file = Path(path)
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), str(folder)
