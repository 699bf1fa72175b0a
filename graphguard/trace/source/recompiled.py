"""The user's functions that were compiled before anybody meant to record them: ``gg.verify`` is called with functions that are there already.

In the process forked for a check they get the code that they would have had, had their file been imported to be recorded (:mod:`~graphguard.trace.source.rewriting`).
"""

from __future__ import annotations

import gc
import linecache
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from graphguard.trace.source.probes import compiled
from graphguard.trace.source.rewriting import answered, ask_for_order, mentions_sets
from graphguard.trace.source.sources import file_of, in_project, is_own_code

Seen = tuple[object, ...]
# To compile as much again takes about a second; what is further from the check stays as it is.
_MOST_TEXT: Final = 400_000


@dataclass(frozen=True, slots=True)
class Objects:
    """Of all objects of a process: the user's ``functions``, and ``generators`` of random numbers."""

    functions: tuple[FunctionType, ...]
    generators: tuple[Any, ...]

    def texts(self) -> dict[str, str]:
        """The files of the functions, by path."""
        return {file: _text(file) for file in dict.fromkeys(one.__code__.co_filename for one in self.functions)}


@dataclass(frozen=True, slots=True)
class NewCode:
    """The code that functions are to have in a process that is forked."""

    pairs: tuple[tuple[FunctionType, CodeType], ...]

    def put(self) -> None:
        """Give it to them."""
        for function, code in self.pairs:
            function.__code__ = code


def objects_of_user() -> Objects:
    """Look through this process: before it is forked, for to look at an object is to copy its page."""
    everything = gc.get_objects()
    bits: Any = getattr(sys.modules.get("numpy.random"), "BitGenerator", random.Random)
    kinds = {kind for kind in set(map(type, everything)) if issubclass(kind, (random.Random, bits))}
    kinds = {kind for kind in kinds if not issubclass(kind, random.SystemRandom)}
    found = [one for one in everything if type(one) is FunctionType or type(one) in kinds]
    own = cache(is_own_code)
    functions = [one for one in found if type(one) is FunctionType and own(one.__code__.co_filename)]
    generators = [one for one in found if type(one) is not FunctionType]
    return Objects(tuple(functions), tuple(generators))


def new_code(functions: Iterable[FunctionType], start: Iterable[Mapping[str, Any]], root: str) -> NewCode:
    """What functions get that are defined where a check is, or in modules of the user's that are named there, and there; where one file of the project makes sets, all ask for their order."""
    places = {id(names): place for place, names in enumerate(_named_from(start))}
    near = sorted(
        (one for one in functions if id(one.__globals__) in places), key=lambda one: places[id(one.__globals__)]
    )
    texts = {file: _text(file) for file in dict.fromkeys(one.__code__.co_filename for one in near)}
    if any(mentions_sets(text.encode()) for text in texts.values()):
        for file in texts:
            if in_project(file, root):
                ask_for_order(file)
    codes: dict[str, dict[Seen, CodeType]] = {}
    left = _MOST_TEXT
    for file, text in texts.items():
        left -= len(text)
        codes[file] = _recorded_codes(file, text) if left >= 0 else {}
    found = ((one, codes[one.__code__.co_filename].get(_seen(one.__code__))) for one in near)
    return NewCode(tuple((function, code) for function, code in found if code is not None))


def order_everywhere(texts: Mapping[str, bytes]) -> None:
    """Where one of the files that were imported makes sets, have the functions of the others, which may be given them, ask for their order as well."""
    others = {file: text for file, text in texts.items() if not mentions_sets(text)}
    if not others or len(others) == len(texts):
        return
    before = {file: _compiled_as(text, file) for file, text in others.items()}
    for file in others:
        ask_for_order(file)
    codes = {file: _pairs(before[file], _compiled_as(text, file)) for file, text in others.items()}
    for function in objects_of_user().functions:
        code = codes.get(function.__code__.co_filename, {}).get(_seen(function.__code__))
        if code is not None:
            function.__code__ = code


def _compiled_as(text: bytes, file: str) -> CodeType:
    code: CodeType = compile(compiled(answered(text, file), file), file, "exec", dont_inherit=True)
    return code


def _named_from(start: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The namespaces of the user's modules that these name, directly or not, and they themselves; nearest first."""
    found = list(start)
    seen = set(map(id, found))
    for names in found:
        for value in list(names.values()):
            module = value if isinstance(value, ModuleType) else _home(value)
            if module is not None and id(vars(module)) not in seen and is_own_code(file_of(module) or "<none>"):
                seen.add(id(vars(module)))
                found.append(vars(module))
    return found


def _home(value: Any) -> ModuleType | None:
    name = value.__module__ if isinstance(value, (type, FunctionType)) else type(value).__module__
    return sys.modules.get(name)


@cache
def _recorded_codes(file: str, text: str) -> dict[Seen, CodeType]:
    """What is recorded for each function of a file, by what it was compiled to; nothing for those that were compiled from another text."""
    try:
        return _pairs(compile(text, file, "exec", dont_inherit=True), _compiled_as(text.encode(), file))
    except (SyntaxError, ValueError):
        return {}


def _pairs(old: CodeType, new: CodeType) -> dict[Seen, CodeType]:
    """New code by old, where it is another."""
    return {_seen(one): other for one, other in zip(_within(old), _within(new), strict=True) if one != other}


def _seen(code: CodeType) -> Seen:
    """What tells the code of one function from all others of its file, and from its code before an edit; not how it was compiled (``from __future__``)."""
    constants = tuple(repr(each) for each in code.co_consts if not isinstance(each, CodeType))
    return code.co_qualname, code.co_firstlineno, code.co_code, code.co_names, code.co_freevars, constants


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _within(inner)


def _text(file: str) -> str:
    return "".join(linecache.getlines(file))
