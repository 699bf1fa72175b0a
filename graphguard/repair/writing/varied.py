"""Whether a fix fits one number of the program by chance: the numbers that it touches, written otherwise for both programs, and numbers that it brings in itself.

``weight - RATE * gradient`` with ``RATE = 0.5`` makes up for a mean over two ranks where a factor of two is missing; with ``RATE = 0.40625`` it does not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import permutations

from graphguard.ir import Graph, Span
from graphguard.repair.text.frames import Read
from graphguard.repair.text.program import lines_of
from graphguard.repair.writing.applied import edited
from graphguard.report.diagnostics import TextEdit

_OTHER = 13 / 16  # exact in binary, and no factor that programs have
_PLAIN = frozenset((0.0, 0.5, 1.0, 2.0))  # numbers that say nothing of where they are from
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d*)?(?:e[+-]?\d+)?(?![\w.])", re.IGNORECASE)


def varied(edits: tuple[TextEdit, ...], texts: dict[str, str], read: Read, known: str = "") -> dict[str, str] | None:
    """Texts, those after edits or those before, with other numbers for the module's constants that edits put in or take out, and for those that an edit says in numbers, but for what is ``known``; None where there are none."""
    found = {}
    for file in {edit.span.file for edit in edits}:
        touched = {name for text in _touched(file, edits, read) for name in _NAME.findall(text)}
        constants = dict(_constants(file, texts[file], touched)) | dict(_said(file, texts[file], edits, read, known))
        changes = [TextEdit(span, repr(number * _OTHER)) for span, number in constants.items()]
        if changes:
            found[file] = edited(texts[file], changes)
    return {**texts, **found} if found else None


def brings_numbers(edits: tuple[TextEdit, ...], read: Read, known: str = "") -> bool:
    """Whether edits put in a number, other than 0, 1 and 2, that neither the text there nor ``known`` has: what the specification says, which numbers may be taken from."""
    return bool(_brought(edits, read, known) - {0.0, 1.0, 2.0})


def brings_size(edits: tuple[TextEdit, ...], read: Read, known: str, sizes: Iterable[int]) -> bool:
    """Whether one of them is among these ``sizes`` of a mesh's axes, 2 as well."""
    return not _brought(edits, read, known).isdisjoint({float(size) for size in sizes} - {1.0})


def _brought(edits: tuple[TextEdit, ...], read: Read, known: str) -> set[float]:
    found: set[float] = set()
    for file in {edit.span.file for edit in edits}:
        before, after = (" ".join(texts) for texts in zip(*_pairs(file, edits, read), strict=True))
        found |= _numbers(after) - _numbers(f"{before} {known}")
    return found


def said_by(graph: Graph, read: Read) -> str:
    """The lines on which the calls of a program stand."""
    spans = {graph.stack_of(node.stack)[0].span for node in graph.nodes if graph.stack_of(node.stack)}
    texts = {file: lines_of(read(file) or "") for file in {span.file for span in spans}}
    return " ".join(_text(texts[span.file], span) for span in spans)


def _numbers(text: str) -> set[float]:
    return set(map(float, _NUMBER.findall(text)))


def _touched(file: str, edits: tuple[TextEdit, ...], read: Read) -> Iterator[str]:
    for pair in _pairs(file, edits, read):
        yield from pair


def _pairs(file: str, edits: tuple[TextEdit, ...], read: Read) -> Iterator[tuple[str, str]]:
    """What every edit of a file takes out, and what it puts in."""
    lines = lines_of(read(file) or "")
    for edit in edits:
        if edit.span.file == file:
            yield _text(lines, edit.span), edit.text


def _text(lines: list[str], span: Span) -> str:
    """The text of a span."""
    rows = lines[span.line - 1 : span.end_line]
    if not rows:
        return ""
    rows[-1] = rows[-1][: span.end_column - 1]
    return "".join(rows)[span.column - 1 :]


def _constants(file: str, text: str, names: set[str]) -> Iterator[tuple[Span, float]]:
    """The fractions that a module gives to some names, and where they stand."""
    lines = lines_of(text)
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        (target,) = node.targets
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for one, value in zip(targets, values, strict=False):
            is_named = isinstance(one, ast.Name) and one.id in names
            if is_named and isinstance(value, ast.Constant) and isinstance(value.value, float):
                yield _span(file, value, lines), value.value


def _said(file: str, text: str, edits: tuple[TextEdit, ...], read: Read, known: str) -> Iterator[tuple[Span, float]]:
    """The fractions of a text that edits put in as numbers, or as their quotients, and not by name; what is ``known`` is said in numbers there, too."""
    lines, before = lines_of(text), set(lines_of(read(file) or ""))
    brought = {number for old, new in _pairs(file, edits, read) for number in _numbers(new) - _numbers(old)} - {0.0}
    pairs = permutations(brought if len(brought) > 1 else brought | {1.0}, 2)
    ratios = {one / other for one, other in pairs} - _PLAIN - _numbers(known)
    constants = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    for node in constants:
        if isinstance(node.value, float) and node.value in ratios and lines[node.lineno - 1] in before:
            yield _span(file, node, lines), node.value  # an edit's own numbers stay


def _span(file: str, node: ast.Constant, lines: list[str]) -> Span:
    """Where a number stands, in columns of characters from 1."""
    line = lines[node.lineno - 1].encode()
    end = len(line) if node.end_col_offset is None else node.end_col_offset
    start, end = (len(line[:offset].decode()) + 1 for offset in (node.col_offset, end))
    return Span(file, node.lineno, start, node.lineno, end)
