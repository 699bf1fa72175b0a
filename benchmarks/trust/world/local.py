"""Steps that no other rank has a part in: the same line in both functions."""

from __future__ import annotations

from benchmarks.trust.world.maker import PARTIAL, WHOLE, Maker

_SLOPES = (2, 3, 0.5, -1)


def scale(m: Maker) -> bool:
    """A multiple."""
    y = m.found(WHOLE, PARTIAL, int)
    if y is None:
        return False
    out = m.fresh("y")
    m.both(f"{out} = {y.name} * {m.one(_SLOPES)}")
    m.value(out, y.shape, y.layout)
    return True


def bend(m: Maker) -> bool:
    """A function that is not linear."""
    y = m.found(WHOLE, int)
    if y is None:
        return False
    out = m.fresh("y")
    m.both(f"{out} = " + m.one(["torch.relu({})", "{}.square()", "{}.tanh()", "{} + 1"]).format(y.name))
    m.value(out, y.shape, y.layout)
    return True


def add(m: Maker) -> bool:
    """A sum of two values that are held alike."""
    y = m.found(WHOLE, PARTIAL, int)
    others = [] if y is None else [z for z in m.values if (z.shape, z.layout) == (y.shape, y.layout) and z != y]
    if y is None or not others:
        return False
    out = m.fresh("y")
    m.both(f"{out} = {y.name} {m.one('+-')} {m.one(others).name}")
    m.value(out, y.shape, y.layout)
    return True


def rows(m: Maker) -> bool:
    """A product whose inner dim is cut: a partial sum."""
    y = m.found(1, dims=2)
    if y is None or len(m.inputs) > 3:
        return False
    w = m.give((y.shape[1], m.one([2, 4, 6]) if m.count == 2 else 3), 0)
    out = m.fresh("y")
    m.both(f"{out} = {y.name} @ {w.name}")
    m.value(out, (y.shape[0], w.shape[1]), PARTIAL)
    return True


def columns(m: Maker) -> bool:
    """A product whose outer dim is cut."""
    y = m.found(WHOLE, dims=2)
    if y is None or len(m.inputs) > 3:
        return False
    w = m.give((y.shape[1], m.count * m.one([2, 3])), 1)
    out = m.fresh("y")
    m.both(f"{out} = {y.name} @ {w.name}")
    m.value(out, (y.shape[0], w.shape[1]), 1)
    return True


def total(m: Maker) -> bool:
    """A sum over the dim that is cut."""
    y = m.found(int, dims=2)
    if y is None or (m.batch > 1 and y.layout == 0):
        return False
    out = m.fresh("s")
    m.both(f"{out} = {y.name}.sum({y.layout}, keepdim=True)")
    m.value(out, tuple(1 if dim == y.layout else size for dim, size in enumerate(y.shape)), PARTIAL)
    return True


def turn(m: Maker) -> bool:
    """The transpose, which is a view."""
    y = m.found(WHOLE, PARTIAL, int, dims=2)
    if y is None or m.batch > 1:
        return False
    out = m.fresh("t")
    copied = m.one(["", "", ".contiguous()", ".clone()"])
    m.both(f"{out} = {y.name}.t(){copied}")
    layout = 1 - y.layout if isinstance(y.layout, int) else y.layout
    m.value(out, (y.shape[1], y.shape[0]), layout, None if copied else y)
    m.say("memory")
    return True


STEPS = (scale, bend, add, rows, columns, total, turn)
