"""Program number n, a function of n alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from benchmarks.trust.world import aliases, arrays, endings, exchanges, groups, handles, local, state
from benchmarks.trust.world.maker import PARTIAL, WHOLE, Maker
from benchmarks.trust.world.program import Program

# How often a step is of one sort.
_SORTS: tuple[tuple[int, tuple[Callable[[Maker], bool], ...]], ...] = (
    (34, local.STEPS),
    (34, exchanges.STEPS),
    (14, aliases.STEPS),
    (6, arrays.STEPS),
    (6, state.STEPS),
    (6, groups.STEPS),
)
_MOST_LINES = 15


_MESHES = [(2, 1)] * 7 + [(3, 1)] * 2 + [(2, 2)]


def program(number: int, meshes: Sequence[tuple[int, int]] = _MESHES) -> Program:
    """A program that may be right or wrong, on one of these meshes: ranks among which work is shared, and times that there are as many."""
    rng = random.Random(number)
    count, batch = rng.choice(meshes)
    m = Maker(rng, count, batch)
    groups.prepare(m)
    shape = (batch * count * rng.choice([1, 2, 3]), count * rng.choice([2, 3]))
    m.give(shape, rng.choice([1, 1, PARTIAL, WHOLE] if batch > 1 else [1, 1, 0, PARTIAL, WHOLE]))
    steps = rng.randint(2, 6)
    while steps and len(m.impl) < _MOST_LINES:
        sorts = rng.choices([sort for _, sort in _SORTS], [weight for weight, _ in _SORTS])[0]
        steps -= bool(rng.choice(sorts)(m)) or rng.random() < 0.1
        handles.wait(m, 0.3)
    handles.wait(m)
    promised = endings.end(m)
    endings.spoil(m)
    mesh = (("dp", batch), ("tp", count)) if batch > 1 else (("tp", count),)
    kinds = tuple(dict.fromkeys(m.kinds)) or ("plain",)
    name = f"program_{number}"
    return Program(name, mesh, tuple(m.inputs), tuple(m.spec), tuple(m.impl), promised, kinds, tuple(m.module))
