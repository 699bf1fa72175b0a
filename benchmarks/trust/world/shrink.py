"""The fewest lines on which a disagreement stays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.trust.world.compare import Judged
from benchmarks.trust.world.program import Program

_ASSIGNED = re.compile(r"(\w+) = (.*)")
_MOST = 60  # programs tried
Judge = Callable[[Program], Judged]


def shrunk(found: Judged, judge: Judge) -> Judged:
    """The disagreement in a shorter program: the same outcome, the same kind of truth."""
    tries, again = 0, True
    while again:
        again = False
        for smaller in _smaller(found.program):
            tries += 1
            if tries > _MOST:
                return found
            tried = judge(smaller)
            if (tried.outcome, tried.truth.kind) == (found.outcome, found.truth.kind):
                found, again = tried, True
                break
    return found


def _smaller(program: Program) -> Iterator[Program]:
    """The program without a line of the implementation, of both, or without a name."""
    for place in reversed(range(len(program.impl) - 1)):
        without = _without(program.impl, place)
        line = program.impl[place]
        match = _ASSIGNED.fullmatch(line)
        if match:
            yield from _renamed(program, match[1], match[2])
        if line in program.spec:
            yield replace(program, impl=without, spec=tuple(each for each in program.spec if each != line))
        yield replace(program, impl=without)
    for place in reversed(range(len(program.spec) - 1)):
        yield replace(program, spec=_without(program.spec, place))


def _renamed(program: Program, name: str, expression: str) -> Iterator[Program]:
    """Without a name: what it was made of stands in its place."""
    known = {each for each, _, _ in program.inputs}
    known |= {match[1] for line in program.impl if (match := _ASSIGNED.fullmatch(line))} - {name}
    for other in dict.fromkeys(re.findall(r"\w+", expression)):
        if other in known:
            impl, spec = (
                tuple(re.sub(rf"\b{name}\b", other, line) for line in lines if not line.startswith(f"{name} = "))
                for lines in (program.impl, program.spec)
            )
            yield replace(program, impl=impl, spec=spec)


def _without(lines: tuple[str, ...], place: int) -> tuple[str, ...]:
    return lines[:place] + lines[place + 1 :]
