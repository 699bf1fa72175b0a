"""Numbers and answers of Python, with others in their places: which of them is to blame.

The graphs hold only what came of a number or an answer: rows that are read, a factor, a branch that is taken.  Which values a program has is seen when it is run, not guessed from
their names; what the specification has at the same place is tried before anything else.  What the value should be, nothing says but that (:mod:`graphguard.repair.nearby.needed` makes a fix of it where it can).
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from graphguard.ir import Span
from graphguard.ir.puts import SPECIFICATION, holds
from graphguard.repair.nearby.scene import Scene, Scope, shown
from graphguard.repair.nearby.slices import behind

FAR: Final = 4  # calls between what is tried and the finding
MOST: Final = 400  # places, the nearest
_WAYS: Final = 4  # in which one place differs from time to time
# What a number may be the cause of: a factor, or one more or less.
_OF_FACTORS: Final = frozenset(("wrong-relation", "wrong-scale", "wrong-shard"))
_OF_ROWS: Final = frozenset(("wrong-relation", "wrong-shard"))
# How unlikely another value is: what others have there, the one other answer, other numbers, an answer at some times, a copy, one more or less, no gradient, an answer on one rank.
_OTHERS, _CONTRARY, _NUMBER, _SOMETIMES, _COPY, _ALWAYS, _CUT, _ALONE = 0, 1, 2, 2, 2, 3, 3, 4
_OF_BOTH: Final = 3  # how much less likely a tensor is to be copied or cut off of which the specification has no copy, and a gradient, either
WRITTEN, LEARNS = (
    "is written later on, through another name, and a copy is needed",
    "hands its gradient on, and must not",
)
"""What is wrong with a tensor that must be copied, and with one that must be cut off."""


@dataclass(frozen=True, slots=True)
class Site:
    """An expression whose value is asked for."""

    scope: Scope
    node: ast.expr

    @property
    def place(self) -> list[Any]:
        """As a recording is asked for it."""
        node = self.node
        place = [node.lineno, node.col_offset, node.end_lineno, node.end_col_offset]
        return [self.scope.program.file, *place, _is_asked(self.scope, node)]

    @property
    def span(self) -> Span:
        """As it is shown."""
        return self.scope.program.span(self.node)

    @property
    def text(self) -> str:
        """What the user wrote; with the parameter's name where a constant is given for one."""
        program, outer = self.scope.program, self.scope.program.parents.get(self.node)
        named = isinstance(self.node, ast.Constant) and isinstance(outer, ast.keyword) and outer.arg
        return shown(f"{named}={program.source(self.node)}" if named else program.source(self.node))


@dataclass(frozen=True, slots=True)
class Trial:
    """Another value at a place: what a recording is asked to put there, what is wrong if that mends, and what was tried."""

    site: int
    put: Mapping[str, Any]
    told: str
    title: str
    cost: int


@dataclass(slots=True)
class Held:
    """What the programs held at a place, each time they came to it, and what was in sight of it then."""

    values: dict[int, list[Any]] = field(default_factory=dict)
    sights: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def is_tensor(self) -> bool:
        """Whether any of the values is a tensor."""
        return any(isinstance(value, list) for values in self.values.values() for value in values)

    @property
    def of_ranks(self) -> dict[int, list[Any]]:
        """The values of the ranks."""
        return {program: values for program, values in self.values.items() if program != SPECIFICATION}


def sites(scene: Scene) -> list[Site]:
    """The expressions whose values decide something: what is assigned, given, returned, kept, asked, cut by or counted with; near a finding alone.  Whole numbers as they are written are dims more often than not."""
    near = (scope for scope in scene.scopes if scope.away <= FAR)
    found = [Site(scope, node) for scope in near for node in _expressions(scope)]
    return found[:MOST]


def _expressions(scope: Scope) -> Iterator[ast.expr]:
    for node in scope.nodes():
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                yield from (each for each in _parts(value) if not _is_answer(each))
            case ast.Return(value=ast.expr() as value):
                yield from _parts(value)
            case ast.AugAssign(value=value) | ast.keyword(value=value):
                yield from _parts(value)
            case ast.If(test=test) | ast.While(test=test):
                yield from _parts(test)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                for each in (test, body, orelse):
                    yield from _parts(each)
            case ast.Call(args=args):
                for each in args:
                    yield from _parts(each)
            case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper)):
                for bound in (lower, upper):
                    yield from _parts(bound) if bound is not None else ()
            case ast.Subscript(slice=ast.expr() as each) if not isinstance(each, ast.Constant):
                yield from _parts(each)
            case ast.comprehension(ifs=ifs):
                yield from ifs


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    """An expression, and what it is made of where its parts are answers, or may be numbers beside tensors."""
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for each in parts:
                yield from _parts(each)
        case ast.Dict(values=parts):
            for each in parts:
                yield from _parts(each)
        case ast.Constant(value=bool() | float()):
            yield value
        case ast.Constant() | ast.Lambda() | ast.JoinedStr() | ast.Starred() | ast.GeneratorExp():
            return
        case ast.UnaryOp(operand=ast.Constant()):
            return
        case ast.BoolOp() | ast.BinOp() | ast.Compare() | ast.UnaryOp():
            yield value
            for part in ast.iter_child_nodes(value):
                if isinstance(part, ast.expr) and not isinstance(part, ast.Constant):
                    yield from _parts(part)
        case _:
            yield value


def _is_asked(scope: Scope, node: ast.expr) -> bool:
    """Whether nothing but the truth of an expression is asked: what stands after ``if``, that of a comprehension too, or a part of that."""
    outer = scope.program.parents.get(node)
    if isinstance(outer, ast.BoolOp | ast.UnaryOp):
        return _is_asked(scope, outer)
    return outer is not None and (getattr(outer, "test", None) is node or node in getattr(outer, "ifs", ()))


def held(observed: Iterable[Sequence[Any]]) -> dict[int, Held]:
    """What was noted, by place."""
    found: dict[int, Held] = {}
    for program, place, value, sight in observed:
        each = found.setdefault(place, Held())
        each.values.setdefault(program, []).append(value)
        each.sights.setdefault(program, []).append(sight)
    return found


def trials(
    known: Sequence[Site],
    noted: Mapping[int, Held],
    sizes: Sequence[int],
    factor: Fraction | None,
    rule: str,
    rested: Collection[ast.AST],
) -> list[Trial]:
    """Other values for those places that the ranks come to, the likeliest and nearest first; other numbers only where the ``rule`` of the finding is one that numbers break, of what the finding ``rested`` on: the ``factor`` that puts it right, or those that the mesh has."""
    whole = {
        known[number].node
        for number, each in noted.items()
        if each.of_ranks and _is_worked_out(known[number].node) and not each.is_tensor
    }
    of_mesh = (Fraction(*pair) for size in sizes for pair in ((size, 1), (1, size)))
    factors = list(of_mesh) if factor is None else [factor, 1 / factor]
    found: list[Trial] = []
    for number, site in enumerate(known):
        if number not in noted or not noted[number].of_ranks:
            continue
        if site.scope.program.parents.get(site.node) in whole:
            continue  # a number is worked out of others: those are tried where they come from
        found += _of_site(number, site, noted[number], sizes, factors, rule if site.node in rested else "")
    found = [replace(each, cost=each.cost + _doubt(known[each.site], noted[each.site])) for each in found]
    return sorted(found, key=lambda each: each.cost)


def _doubt(site: Site, noted: Held) -> int:
    """How far a place is from being to blame: by calls from the finding; where it only reads what is worked out elsewhere; where the specification, which is right, has the same."""
    whole = noted.values.get(SPECIFICATION)
    alike = whole is not None and all(values == whole for values in noted.of_ranks.values())
    return min(site.scope.away, FAR) + _is_read(site) + (_OF_BOTH if alike and noted.is_tensor else alike)


def _is_read(site: Site) -> int:
    """Whether a place reads what is worked out elsewhere; more so where it only hands that on."""
    handed = isinstance(site.scope.program.parents.get(site.node), ast.Assign | ast.Tuple | ast.Call | ast.keyword)
    return (1 + handed) if isinstance(site.node, ast.Name | ast.Attribute) else 0


def depths(scene: Scene, known: Sequence[Site], number: int) -> dict[int, int]:
    """The places that the value of one is worked out at, by their numbers, and how many definitions lie between; not those that it is only handed on at."""
    away = behind(scene, known[number].scope.program, known[number].node)
    return {
        each: away[site.node]
        for each, site in enumerate(known)
        if each != number and site.node in away and not isinstance(site.node, ast.Name | ast.Attribute)
    }


def _is_answer(value: ast.expr) -> bool:
    """Whether it is an answer as it is written: what something holds at first, or from then on, is seldom wrong, but what is made of it."""
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


def decides(site: Site) -> bool:
    """Whether a value is what a branch asks, or counted with in that."""
    outer = site.scope.program.ancestors(site.node)
    within = itertools.takewhile(lambda each: isinstance(each, ast.expr) and not isinstance(each, ast.Call), outer)
    counted = (each for each in within if isinstance(each, ast.Compare | ast.BinOp))
    return any(_is_asked(site.scope, each) for each in (site.node, *counted))


def _is_worked_out(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Mod | ast.FloorDiv)


def _of_site(
    number: int, site: Site, noted: Held, sizes: Sequence[int], factors: Sequence[Fraction], rule: str
) -> Iterator[Trial]:
    ranks = noted.of_ranks
    every = [value for values in ranks.values() for value in values]
    kinds = {type(value) for value in every}
    text = site.text

    def trial(cost: int, told: str, title: str, make: str, value: Any = None, **only: Any) -> Trial:
        return Trial(number, {"place": number, "make": make, "number": value, **only}, f"'{text}' {told}", title, cost)

    if list in kinds:
        yield from _of_tensors(every, trial) if kinds == {list} else ()
        return
    if kinds == {bool} and _is_switch(noted):
        return
    yield from _of_others(site, noted, sizes, trial)
    if kinds == {bool}:
        if len(set(every)) == 1:
            yield trial(
                _CONTRARY, f"is {every[0]} where {not every[0]} is needed", f"{not every[0]} for '{text}'", "not"
            )
        else:
            for answer in (True, False) if any(len(set(values)) > 1 for values in ranks.values()) else ():
                yield trial(
                    _SOMETIMES, f"must be {answer} every time", f"{answer} for '{text}' every time", "given", [answer]
                )
        if len(ranks) > 1 and len(set(every)) == 1 and every[0]:
            for rank, which in ((0, "first"), (len(ranks) - 1, "last")):
                yield trial(
                    _ALONE,
                    f"is True on every rank, and must be so on the {which} one alone",
                    f"'{text}' on rank {rank} alone",
                    "alone",
                    rank,
                )
        yield from _sometimes(noted, trial)
    elif bool not in kinds:
        is_place = len(set(every)) > 1 and _is_place(ranks, [0], sizes)
        for factor in factors if rule in _OF_FACTORS and any(every) and not is_place else ():
            if _is_size(noted, sizes) and factor < 1:
                continue
            if float in kinds or all(value * factor.numerator % factor.denominator == 0 for value in every):
                made = [factor.numerator, factor.denominator]
                yield trial(_NUMBER, _comes_out(factor), _made(factor, text), "times", made)
        if kinds == {int} and (rule in _OF_ROWS or decides(site)) and not is_place:
            yield trial(_ALWAYS, "comes out one too small", f"one more than '{text}'", "plus", 1)
            yield trial(_ALWAYS, "comes out one too large", f"one less than '{text}'", "plus", -1)


def _of_tensors(every: Sequence[Sequence[Any]], trial: Any) -> Iterator[Trial]:
    """A copy of what is written later on, or no gradient through what has one."""
    if any(written for _, written, _ in every):
        yield trial(_COPY, WRITTEN, "a copy", "copy")
    if any(learns for _, _, learns in every):
        yield trial(_CUT, LEARNS, "no gradient", "cut")


def _comes_out(factor: Fraction) -> str:
    """What is wrong with a number that a factor puts right."""
    if factor.numerator == 1:
        return f"comes out {factor.denominator} times as large as is needed"
    return f"comes out as {1 / factor} of what is needed"


def _made(factor: Fraction, text: str) -> str:
    return f"{factor} times '{text}'" if factor > 1 else f"{factor} of '{text}'"


def _of_others(site: Site, noted: Held, sizes: Sequence[int], trial: Any) -> Iterator[Trial]:
    """What the specification, or the first rank, has where others have something else."""
    ranks, text = noted.of_ranks, site.text
    whole = noted.values.get(SPECIFICATION, [])
    pairs = [pair for values in ranks.values() for pair in zip(values, whole, strict=False)]
    unlike = next((pair for pair in pairs if pair[0] != pair[1]), None)
    if (
        unlike is not None
        and not _is_size(noted, sizes)
        and len({len(values) for values in (whole, *ranks.values())}) == 1
    ):
        told = f"is {_written(unlike[0])} where the specification has {_written(unlike[1])}"
        cost = _ALWAYS if _is_place(ranks, whole, sizes) else _OTHERS
        yield trial(cost, told, f"what the specification has for '{text}'", "given", whole)
    first = ranks.get(0)
    answers = all(isinstance(value, bool) for value in first or ())
    own = _is_place(ranks, [0], sizes)
    if first is None or answers or whole == first or (own and not isinstance(site.node, ast.BinOp)):
        return  # the number of a rank is its own
    if any(values != first for values in ranks.values()):
        told = "is each rank's own, where all ranks need the same"
        cost = _ALWAYS if own else _OTHERS
        yield trial(cost, told, f"'{text}' of rank 0 on all ranks", "given", first)


def _is_place(ranks: Mapping[int, list[Any]], whole: Sequence[Any], sizes: Sequence[int]) -> bool:
    """Whether values say no more than which rank of how many this is, where its part begins, or an answer about that: of course they are others than where there is one rank."""
    every = {value for values in ranks.values() for value in values}
    if all(isinstance(value, bool) for value in every):
        return True
    one = set(whole)
    return (one == {1} and every <= set(sizes)) or (one == {0} and {*ranks.get(0, ())} <= {0})


def _is_switch(noted: Held) -> bool:
    """Whether an answer says no more than that this is no program of one process: turned, it makes it one."""
    whole = set(noted.values.get(SPECIFICATION, ()))
    every = {value for values in noted.of_ranks.values() for value in values}
    return len(whole) == len(every) == 1 and whole != every


def _is_size(noted: Held, sizes: Sequence[int]) -> bool:
    """Whether a number is one that the mesh has, where the specification has one process: divided, it makes the program one of one process, as an answer that is turned does."""
    every = {value for values in noted.of_ranks.values() for value in values}
    return every <= set(sizes) and set(noted.values.get(SPECIFICATION, ())) == {1}


def _sometimes(noted: Held, trial: Any) -> Iterator[Trial]:
    """The contrary where something in sight of an answer has one of several values, which tells the times apart."""
    sights = noted.sights.get(0) or next(iter(noted.sights.values()))
    values = noted.values.get(0) or next(iter(noted.values.values()))
    if len(sights) < 2:
        return
    known: set[tuple[bool, ...]] = {(True,) * len(sights), (False,) * len(sights)}
    for name in sorted(set.intersection(*(set(sight) for sight in sights)), key=lambda each: (each.count("."), each)):
        for wanted in sorted({sight[name] for sight in sights}, key=repr):
            times = tuple(holds(sight, name, wanted) for sight in sights)
            if times in known or len(known) > _WAYS + 1:
                continue
            known.add(times)
            told = {value for value, is_there in zip(values, times, strict=True) if is_there}
            if len(told) == 1:
                (has,) = told
                where = f"where '{name}' is {_written(wanted)}"
                yield trial(
                    _SOMETIMES,
                    f"is {has} {where}, and must be {not has} there",
                    f"{not has} {where}",
                    "not",
                    where=[name, wanted],
                )


def _written(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
