"""What a program has in sight of a place that holds the wrong value, and that has the right one there: a fix, written with the user's own names.

Which value is needed is known for every time that every rank came to the place: an expression of what is in sight that gives these is what may have been meant.  Whether it is, a proof
and other meshes say.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from graphguard.ir.puts import Put
from graphguard.repair.nearby.values import LEARNS, WRITTEN, Held, Site, decides

MOST: Final = 8  # expressions that are tried of one place
_OF_TENSORS: Final = {"copy": ("clone", WRITTEN), "cut": ("detach", LEARNS)}

Row = tuple[Any, Any, Mapping[str, Any]]
"""What a place held, what it must hold, and what was in sight of it then."""


def expressions(site: Site, noted: Held, put: Put) -> list[str]:
    """Texts that give at a place what is needed there, the simplest first; none in what a branch asks: of the few times that it is asked, many questions have the same answers."""
    if decides(site):
        return []
    text = site.scope.program.source(site.node)
    inner = text if isinstance(site.node, ast.Name | ast.Attribute | ast.Constant | ast.Call) else f"({text})"
    if put.make in _OF_TENSORS:
        return [f"{inner}.{_OF_TENSORS[put.make][0]}()"]
    answered = all(isinstance(value, bool) for values in noted.of_ranks.values() for value in values)
    rows = _rows(noted, put, whole=not answered)
    names = sorted(set.intersection(*(set(sight) for _, _, sight in rows)), key=lambda name: (name.count("."), name))
    found = _answers if answered else _numbers
    texts = [*_rounded_up(site, put), *found(site, inner, rows, names)]
    return list(dict.fromkeys(each for each in texts if each != text))[:MOST]


def told(site: Site, put: Put, text: str) -> str:
    """What is wrong at a place where a text mends."""
    if put.make in _OF_TENSORS:
        return f"'{site.text}' {_OF_TENSORS[put.make][1]}"
    return f"'{site.text}' stands where '{text}' is needed"


def _rows(noted: Held, put: Put, *, whole: bool) -> list[Row]:
    """What is needed of the ranks, and with ``whole`` that the specification keeps what it has: many numbers happen to be as large as an axis; of an answer it may not matter there."""
    return [
        (value, put.value(program, time, value, sight), sight)
        for program, values in (noted.values if whole else noted.of_ranks).items()
        for time, (value, sight) in enumerate(zip(values, noted.sights[program], strict=True))
    ]


def _numbers(_site: Site, text: str, rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    """A number in sight, or the one that is there times it, or divided by it."""
    counted = [name for name in names if all(type(sight[name]) is int for *_, sight in rows)]
    whole = all(isinstance(value, int) for value, *_ in rows)
    divided = "//" if whole else "/"
    for name in counted:
        if all(sight[name] == needed for _, needed, sight in rows):
            yield name
    for name in counted:
        if all(value * sight[name] == needed for value, needed, sight in rows):
            yield f"{text} * {name}"
    for name in counted:
        if all(sight[name] and needed * sight[name] == value for value, needed, sight in rows):
            yield f"{text} {divided} {name}"


def _rounded_up(site: Site, put: Put) -> Iterator[str]:
    """A quotient that is rounded up, where it is one too small."""
    match site.node:
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right) if put.make == "plus" and put.number == 1:
            source = site.scope.program.source
            yield f"-(-{source(left)} // {source(right)})"


def _answers(site: Site, text: str, rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    """An answer in sight, or the one that is there where that holds as well, or instead."""
    asked = [each for name in names for each in _questions(name, rows)]
    for question, answer in asked:
        if all(answer(sight) is needed for _, needed, sight in rows):
            yield question
    if isinstance(site.node, ast.Constant):
        return
    for question, answer in asked:
        if all((value and answer(sight)) is needed for value, needed, sight in rows):
            yield f"{text} and {question}"
        if all((value or answer(sight)) is needed for value, needed, sight in rows):
            yield f"{text} or {question}"


def _questions(name: str, rows: Sequence[Row]) -> Iterator[tuple[str, Callable[[Mapping[str, Any]], bool]]]:
    """What may be asked of a name: its truth, whether it is there, whether it is none, whether it is what a text says."""
    values = [sight[name] for *_, sight in rows]
    if all(type(value) is bool for value in values):
        yield name, lambda sight: sight[name]
        yield f"not {name}", lambda sight: not sight[name]
    if None in values:
        yield f"{name} is not None", lambda sight: sight[name] is not None
        yield f"{name} is None", lambda sight: sight[name] is None
    if all(type(value) is int for value in values):
        yield f"{name} == 0", lambda sight: sight[name] == 0
        yield f"{name} > 1", lambda sight: sight[name] > 1
    for text in sorted({value for value in values if type(value) is str}):
        yield f'{name} == "{text}"', _asks(name, text)


def _asks(name: str, text: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda sight: sight[name] == text
