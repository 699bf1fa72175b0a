"""Numbers that no two processes share: of generators that nobody seeded, of the system, of the clock.

A fork has the state of its parent's generators.  One that somebody seeded (:mod:`~graphguard.trace.depends.seeds`) is the same in every process of a job as well; the others have another
state in every program, chosen so that neighbours differ even where a coin is tossed.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from graphguard.ir import Span
from graphguard.trace.depends.seeds import is_seeded
from graphguard.trace.depends.unshared import Process, asks, current

# With a seed of the one row ``random() < 0.5`` and ``randrange(2) == 0`` hold of what Python's and numpy's generators draw first, with one of the other they do not.
_SEEDS: Final = (
    (49, 102, 113, 149, 303, 332, 339, 355),
    (93, 106, 110, 145, 153, 289, 302, 307),
)
_SECONDS_APART: Final = 7.0
_SOME_TIME: Final = 1_700_000_000
_SEED_IT: Final = "seed it, alike in every process"
_DRAWS: Final = "'{name}' is drawn without a seed: every process draws other numbers"
_MADE: Final = "a generator is made without a seed: every process draws other numbers"
_SYSTEM: Final = "the system's random numbers differ between processes"
_SHARE_IT: Final = "let one rank choose, and broadcast it"
_SEEDED: Final = "_graphguard_seeded"
_MAKERS: Final = ("default_rng", "RandomState", "Random", "PCG64", "MT19937", "Philox", "SFC64")
_MOST_MAKERS: Final = 3
_NOT_DRAWN: Final = frozenset(("seed", "getstate", "setstate", "get_state", "set_state"))


def install() -> None:
    """Have generators that are made without a seed, and the system, answer as in the process that is recorded."""
    random.Random.seed = functools.wraps(random.Random.seed)(_seeding(random.Random.seed))  # type: ignore[method-assign]
    random.seed = random._inst.seed  # noqa: SLF001 - it was bound before
    os.urandom = functools.wraps(os.urandom)(_system(os.urandom))
    random._urandom = os.urandom  # type: ignore[attr-defined]  # noqa: SLF001 - what secrets and SystemRandom take
    time.time = functools.wraps(time.time)(_clock(time.time, 1))
    time.time_ns = functools.wraps(time.time_ns)(_clock(time.time_ns, 10**9))
    os.getpid = functools.wraps(os.getpid)(_number_of_process(os.getpid))


@dataclass(frozen=True, slots=True)
class Generators:
    """Generators of random numbers that all programs of a check find, with their ``states`` then: a fork seeds Python's anew.

    ``seeded`` are the numbers of those of which it was found out that somebody seeded them; ``texts`` gives the program's files.
    """

    found: tuple[Any, ...]
    states: tuple[Any, ...]
    seeded: frozenset[int] = frozenset()
    texts: Callable[[], Mapping[str, str]] = dict

    def seeded_of(self, drawn: Iterable[int]) -> frozenset[int]:
        """Those that somebody had seeded, of those that were drawn from: to find out takes longer than most recordings, and few programs draw."""
        asked = frozenset(drawn) - self.seeded
        return frozenset(one for one in asked if is_seeded(self.found[one], self.states[one], self.texts().values()))


def global_generators() -> tuple[Any, ...]:
    """The generators of this process that programs draw from without making one: Python's, and numpy's where it is loaded."""
    numpy_random = sys.modules.get("numpy.random")
    own = random._inst  # noqa: SLF001
    return (own,) if numpy_random is None else (own, numpy_random.mtrand._rand._bit_generator)  # noqa: SLF001


def generators(found: Iterable[Any] = (), texts: Callable[[], Mapping[str, str]] = dict) -> Generators:
    """The global generators and others, as they are now."""
    listed = {id(one): one for one in (*global_generators(), *found)}
    return Generators(tuple(listed.values()), tuple(map(_state, listed.values())), texts=texts)


def load_generators(texts: Iterable[bytes]) -> None:
    """Load numpy's where one of a program's ``texts`` may use them: loaded by each program for itself, they would draw other numbers at every recording."""
    if "numpy" in sys.modules and any(b"random" in text for text in texts):
        importlib.import_module("numpy.random")


def are_drawn_from(before: Generators) -> bool:
    """Whether generators that nobody seeded have been drawn from since."""
    changed = [one for one, old in zip(before.found, before.states, strict=True) if not _is_same(_state(one), old)]
    return not all(is_seeded(one, _state(one), ()) for one in changed)


@contextmanager
def own_chance(process: Process, generators: Generators) -> Iterator[set[int]]:
    """Inside, generators that nobody seeded are those of that process; the set that it gives has, afterwards, the numbers of those that were drawn from."""
    drawn: set[int] = set()
    with ExitStack() as stack:
        for number, (generator, state) in enumerate(zip(generators.found, generators.states, strict=True)):
            stack.callback(_set_state, generator, _state(generator))
            if number in generators.seeded or _is_known_as_seeded(generator):
                _set_state(generator, state)
            else:
                draws = _Draws(process, functools.partial(drawn.add, number), generators.texts)
                stack.enter_context(_own(generator, _seed(process, 0), draws))
        stack.enter_context(watched())
        yield drawn


class _Draws:
    """Notes that a process draws from a generator: where the function of its module is called, else where it may have been made."""

    def __init__(self, process: Process, note: Callable[[], None], texts: Callable[[], Mapping[str, str]]) -> None:
        self._process = process
        self._note = note
        self._texts = texts
        self._noted = False

    def by(self, name: str) -> None:
        """The caller's caller calls that function."""
        self._note()
        self._noted = asks(_DRAWS.format(name=name), _SEED_IT, depth=3) is not None or self._noted

    def in_some_way(self) -> None:
        """The generator is not what it was."""
        self._note()
        if not self._noted:
            made: list[Span | None] = [*islice(_made_without_seed(self._texts()), _MOST_MAKERS)]
            for span in made or [None]:
                self._process.note_at(span, _MADE, _SEED_IT)


def _made_without_seed(texts: Mapping[str, str]) -> Iterator[Span]:
    """Where a program makes generators and gives them no seed."""
    for file, text in texts.items():
        for node in ast.walk(ast.parse(text)) if any(name in text for name in _MAKERS) else ():
            if isinstance(node, ast.Call) and not node.args and not node.keywords:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in _MAKERS:
                    yield Span(
                        file,
                        node.lineno,
                        node.col_offset + 1,
                        node.end_lineno or node.lineno,
                        (node.end_col_offset or 0) + 1,
                    )


@contextmanager
def _own(generator: Any, seed: int, draws: _Draws) -> Iterator[None]:
    """Inside, a generator has that seed; it is noted if it is drawn from, unless the program has seeded it."""
    state = _fresh_state(generator, seed)
    _set_state(generator, state)
    try:
        with _noted(generator, draws):
            yield
    finally:
        if not _is_known_as_seeded(generator) and not _is_same(_state(generator), state):
            draws.in_some_way()


@contextmanager
def watched() -> Iterator[None]:
    """Inside, numpy's generators that are made without a seed are heard of."""
    numpy_bits = sys.modules.get("numpy.random.bit_generator")
    randbits = getattr(numpy_bits, "randbits", None)
    if randbits is not None:
        numpy_bits.randbits = _entropy(randbits)  # type: ignore[union-attr]
    try:
        yield
    finally:
        if randbits is not None:
            numpy_bits.randbits = randbits  # type: ignore[union-attr]


def _seed(process: Process, made: int) -> int:
    if process.alike:
        return _SEEDS[0][0] + made
    row = _SEEDS[process.side]
    place = len(row) - 1 if process.number < 0 else process.number // 2 + made
    return row[place % len(row)] + 10_000 * (place // len(row)) + (10**6 * made if process.number < 0 else 0)


def _next_seed(process: Process) -> int:
    process.made += 1
    return _seed(process, process.made)


# -- generators --------------------------------------------------------------------------------------------------------
def _state(generator: Any) -> Any:
    return generator.getstate() if isinstance(generator, random.Random) else generator.state


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.state = state


def _fresh_state(generator: Any, seed: int) -> Any:
    if isinstance(generator, random.Random):
        return random.Random(seed).getstate()  # noqa: S311
    from numpy.random import SeedSequence

    return type(generator)(SeedSequence(seed)).state


def _is_same(one: Any, other: Any) -> bool:
    """Whether two states are equal; some have arrays in them."""
    if isinstance(one, dict):
        return isinstance(other, dict) and all(_is_same(one[name], other.get(name)) for name in one)
    return one.tobytes() == other.tobytes() if hasattr(one, "tobytes") else bool(one == other)


def _is_known_as_seeded(generator: Any) -> bool:
    """Whether a generator is known to have been seeded: numpy's then forget what they were made of."""
    return getattr(generator, _SEEDED, False) or getattr(generator, "seed_seq", generator) is None


_drawn_from: dict[int, _Draws] = {}


@contextmanager
def _noted(generator: Any, draws: _Draws) -> Iterator[None]:
    """Inside, the functions of a module that draw from a generator say so."""
    replaced = [
        (sys.modules[module], name, original, drawing)
        for module in ("random", "numpy.random")
        for name, original, drawing in (_functions(module) if module in sys.modules else ())
        if _behind(original) is generator
    ]
    _drawn_from[id(generator)] = draws
    for owner, name, _, drawing in replaced:
        setattr(owner, name, drawing)
    try:
        yield
    finally:
        for owner, name, original, _ in replaced:
            setattr(owner, name, original)
        del _drawn_from[id(generator)]


def _behind(function: Any) -> Any:
    """The generator that a function of a module draws from."""
    source = function.__self__
    return getattr(source, "_bit_generator", source)


@functools.cache
def _functions(module: str) -> list[tuple[str, Any, Any]]:
    """The functions of a module that draw from a generator of its own: as they are, and as they are to note it."""
    own = (random.Random, getattr(sys.modules.get("numpy.random"), "RandomState", random.Random))
    named = [(name, one) for name, one in vars(sys.modules[module]).items() if name not in _NOT_DRAWN]
    found = [(name, one) for name, one in named if isinstance(getattr(one, "__self__", None), own)]
    return [(name, one, _drawing(one, f"{module}.{name}")) for name, one in found]


def _drawing(original: Any, name: str) -> Any:
    @functools.wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        generator = _behind(original)
        if not _is_known_as_seeded(generator) and id(generator) in _drawn_from:
            _drawn_from[id(generator)].by(name)
        return original(*args, **kwargs)

    return draw


# -- what answers in the place of the system ---------------------------------------------------------------------------
def _seeding(original: Callable[..., None]) -> Callable[..., None]:
    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        process = None if a is not None else asks(_MADE, _SEED_IT)
        if current() is not None and type(self) is random.Random:
            setattr(self, _SEEDED, a is not None)
        original(self, a if process is None else _next_seed(process), version)

    return seed


def _entropy(original: Callable[[int], int]) -> Callable[[int], int]:
    def randbits(bits: int) -> int:
        process = asks(_MADE, _SEED_IT)
        return original(bits) if process is None else _next_seed(process)

    return randbits


def _system(original: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def urandom(size: int) -> bytes:
        process = asks(_SYSTEM, _SHARE_IT)
        if process is None or not process.alike:
            return original(size)
        return random.Random(_next_seed(process)).randbytes(size)  # noqa: S311

    return urandom


def _clock(original: Callable[[], Any], second: int) -> Callable[[], Any]:
    def now() -> Any:
        process = asks("the clocks of processes differ", _SHARE_IT)
        if process is None:
            return original()
        if process.alike:
            process.made += 1
            return type(original())(second * (_SOME_TIME + process.made / 1000))
        return original() + type(original())(second * _SECONDS_APART * (process.number + 2))

    return now


def _number_of_process(original: Callable[[], int]) -> Callable[[], int]:
    def getpid() -> int:
        process = asks("every process has a number of its own", _SHARE_IT)
        return os.getppid() if process is not None and process.alike else original()

    return getpid
