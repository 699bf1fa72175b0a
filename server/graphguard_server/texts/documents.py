"""The texts as the user sees them: open documents first, then the disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lsprotocol import types
from pygls import uris

from graphguard_server.texts.positions import Encoding, Ruler, split_lines


def path_of(uri: str) -> str | None:
    """The file path of a URI; None for documents that are not files (untitled, virtual, remote)."""
    path = uris.to_fs_path(uri)
    return None if path is None or not path or "\x00" in path else os.path.normpath(path)


def uri_of(path: str) -> str:
    """The URI of a file path."""
    return uris.from_fs_path(path) or Path(path).as_uri()


@dataclass(slots=True)
class Document:
    """One open text with the client's version of it."""

    uri: str
    path: str | None
    text: str
    version: int
    language: str
    lines: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = split_lines(self.text)

    def replace(self, text: str, version: int) -> None:
        """Take over a new text."""
        self.text, self.version, self.lines = text, version, split_lines(text)


class Documents:
    """All open documents, and reading of closed files.

    The client's spelling of a URI is kept for answers; look-up is by file path, so ``file:///c%3A/x.py`` and ``file:///C:/x.py`` are one file.
    """

    def __init__(self) -> None:
        self.encoding: Encoding = "utf-16"
        self._open: dict[str, Document] = {}
        self._by_path: dict[str, Document] = {}
        self._disk: dict[str, tuple[tuple[int, int], str]] = {}

    def open(self, item: types.TextDocumentItem) -> Document:
        """Take over a document that the client opened."""
        document = Document(item.uri, path_of(item.uri), item.text, item.version, item.language_id)
        self._open[item.uri] = document
        if document.path is not None:
            self._by_path[document.path] = document
        return document

    def change(self, params: types.DidChangeTextDocumentParams) -> Document | None:
        """Apply the client's edits; None for a document that was never opened."""
        document = self._open.get(params.text_document.uri)
        if document is None:
            return None
        for change in params.content_changes:
            document.replace(self._edited(document, change), params.text_document.version)
        document.version = params.text_document.version
        return document

    def close(self, uri: str) -> Document | None:
        """Forget an open document: from now on the disk counts."""
        document = self._open.pop(uri, None)
        if document is not None and document.path is not None and self._by_path.get(document.path) is document:
            del self._by_path[document.path]
        return document

    def get(self, uri: str) -> Document | None:
        """The open document of a URI."""
        return self._open.get(uri)

    def at(self, path: str) -> Document | None:
        """The open document of a file."""
        return self._by_path.get(path)

    def __iter__(self) -> Iterator[Document]:
        return iter(tuple(self._open.values()))

    def uri(self, path: str) -> str:
        """The URI of a file, as the client spells it where it has the file open."""
        document = self._by_path.get(path)
        return uri_of(path) if document is None else document.uri

    def version(self, path: str) -> int | None:
        """The client's version of a file; None where it is not open."""
        document = self._by_path.get(path)
        return None if document is None else document.version

    def text(self, path: str) -> str | None:
        """The text of a file as the user sees it; None where there is none or it is not text."""
        document = self._by_path.get(path)
        return document.text if document is not None else self.on_disk(path)

    def on_disk(self, path: str) -> str | None:
        """The text of a file on disk, remembered by its time and size."""
        try:
            status = os.stat(path)
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._disk.get(path)
            if known is None or known[0] != stamp:
                text = Path(path).read_bytes().decode("utf-8-sig")
                known = self._disk[path] = (stamp, text)
        except (OSError, ValueError):
            self._disk.pop(path, None)
            return None
        return known[1]

    def overlay(self) -> dict[str, str]:
        """Open Python files whose text is not what the disk holds."""
        return {
            path: document.text
            for path, document in self._by_path.items()
            if document.language == "python" and document.text != self.on_disk(path)
        }

    def lines(self, path: str) -> tuple[str, ...]:
        """The lines of a file as the user sees it; one empty line where there is no such file."""
        document = self._by_path.get(path)
        return document.lines if document is not None else split_lines(self.on_disk(path) or "")

    def ruler(self, path: str) -> Ruler:
        """Conversion of positions in a file."""
        return Ruler(self.lines(path), self.encoding)

    def _edited(self, document: Document, change: types.TextDocumentContentChangeEvent) -> str:
        if not isinstance(change, types.TextDocumentContentChangePartial):
            return change.text
        ruler = Ruler(document.lines, self.encoding)
        start = _offset(document.lines, *ruler.place(change.range.start))
        end = _offset(document.lines, *ruler.place(change.range.end))
        return document.text[:start] + change.text + document.text[max(start, end) :]


def _offset(lines: Sequence[str], line: int, column: int) -> int:
    return sum(len(text) for text in lines[:line]) + column


def digest(text: str) -> str:
    """A short name of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
