"""Orders of labels that many permutations leave alike, by individualisation and refinement (McKay 1981), as graph isomorphism is decided."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any, Final, TypeAlias

Occurrence: TypeAlias = tuple[Hashable, Sequence[tuple[int, int, int]]]
"""A factor's name, and where labels are met in it: ``(axis, label, stride)``."""
_MOST: Final = 500  # orders that are tried: beyond them the result is incomplete, never wrong


def orders(cells: list[list[int]], occurrences: list[Occurrence]) -> Iterator[tuple[int, ...]]:
    """Orders of the labels in ``cells`` among which the least spelling of the factors is found; the same ones, whatever the labels are called.

    Labels of an earlier cell come first.
    """
    return islice(_orders(cells, occurrences), _MOST)


def _orders(cells: list[list[int]], occurrences: list[Occurrence]) -> Iterator[tuple[int, ...]]:
    cells = _refined(cells, occurrences)
    at = next((index for index, cell in enumerate(cells) if len(cell) > 1), None)
    if at is None:
        yield tuple([cell[0] for cell in cells])
        return
    for label in cells[at]:
        rest = [other for other in cells[at] if other != label]
        yield from _orders([*cells[:at], [label], rest, *cells[at + 1 :]], occurrences)


def _refined(cells: list[list[int]], occurrences: list[Occurrence]) -> list[list[int]]:
    """Cells whose labels are met in the same places beside labels of the same cells."""
    while True:
        cell_of = {label: index for index, cell in enumerate(cells) for label in cell}
        seen: dict[int, list[Any]] = {label: [] for label in cell_of}
        for name, places in occurrences:
            spelt = sorted([(axis, cell_of[label], stride) for axis, label, stride in places if label in cell_of])
            for axis, label, stride in places:
                if label in cell_of:
                    seen[label].append((name, axis, stride, spelt))
        for found in seen.values():
            found.sort()
        split: list[list[int]] = []
        for cell in cells:
            for _, same in groupby(sorted(cell, key=seen.__getitem__), key=seen.__getitem__):
                split.append(list(same))
        if len(split) == len(cells):
            return split
        cells = split
