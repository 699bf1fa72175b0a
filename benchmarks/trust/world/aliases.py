"""Writes through views, handles on old memory, copies that overlap: what shares memory changes together."""

from __future__ import annotations

from benchmarks.trust.world.maker import PARTIAL, WHOLE, Maker, Value

_MIRRORED = 0.75  # of the writes: the specification does the same to everything that shares the memory


def _written(m: Maker, y: Value, change: str) -> None:
    """Say in the specification what a write made of a value, and of all that shares its memory; sometimes of one of them alone."""
    for each in m.values:
        if each.memory == y.memory and (each.name == y.name or m.chance(_MIRRORED)):
            m.spec.append(f"{each.name} = {change.format(each.name)}")


def write(m: Maker) -> bool:
    """All elements, in place, by their name or through something that shares their memory."""
    y = m.found(WHOLE, PARTIAL, int)
    if y is None:
        return False
    through = m.one(["", "", ".data", ".detach()", "[:]", ".view_as({0})", ".reshape({0}.shape)", ".contiguous()"])
    handle = y.name + through.format(y.name)
    slope = m.one((2, 0.5, -1))
    m.impl.append(
        m.one(
            [
                f"{handle}.mul_({slope})",
                f"torch.mul({y.name}, {slope}, out={handle})",
                f"{handle}.copy_({y.name} * {slope})",
                f"torch.neg({handle}, out={handle}).mul_({-slope})",
            ]
        )
    )
    _written(m, y, f"{{}} * {slope}")
    m.say("aliases")
    return True


def write_row(m: Maker) -> bool:
    """One row of what is whole."""
    y = m.found(WHOLE, PARTIAL, dims=2)
    if y is None or m.batch > 1 or sum(each.memory == y.memory for each in m.values) > 1:
        return False
    row = m.rng.randrange(y.shape[0])
    how = m.one(
        [
            f"{y.name}[{row}].zero_()",
            f"{y.name}[{row}] = 0",
            f"{y.name}.select(0, {row}).mul_(0)",
            f"{y.name}.view(-1)[{row * y.shape[1]}:{(row + 1) * y.shape[1]}].zero_()",
        ]
    )
    m.impl.append(m.on_a_rank(how) if m.chance(0.2) else how)
    m.spec.append(f"{y.name} = torch.cat([{y.name}[:{row}], 0 * {y.name}[{row}:{row + 1}], {y.name}[{row + 1}:]])")
    m.say("aliases")
    return True


def shift(m: Maker) -> bool:
    """A copy within one memory, which reads what it writes, or does not."""
    y = m.found(WHOLE, PARTIAL, dims=2)
    if y is None or m.batch > 1 or y.shape[1] < 2:
        return False
    out, copy = m.fresh("o"), m.one(["", ".clone()", ".clone()"])
    m.impl.append(f"{out} = {y.name}.clone()")
    rows = m.one([True, False])
    to, since = ("[1:]", "[:-1]") if rows else ("[:, 1:]", "[:, :-1]")
    m.impl.append(
        m.one(
            [
                f"{out}{to} = {out}{since}{copy}",
                f"{out}{to}.copy_({out}{since}{copy})",
                f"torch.mul({out}{since}{copy}, 1, out={out}{to})",
            ]
        )
    )
    first = f"{y.name}[:1]" if rows else f"{y.name}[:, :1]"
    m.spec.append(f"{out} = torch.cat([{first}, {y.name}{since}], {0 if rows else 1})")
    m.value(out, y.shape, y.layout)
    m.say("overlap")
    return True


def hold(m: Maker) -> bool:
    """A second name, or a copy, of what may change later."""
    y = m.found(WHOLE, PARTIAL, int)
    if y is None:
        return False
    out = m.fresh("z")
    how = m.one(
        ["{}", "{}.detach()", "{}.clone()", "{}.view_as({})", "{}.contiguous()", "{}.data", "{}.to(D)", "{} + 0"]
    )
    m.impl.append(f"{out} = {how.format(y.name, y.name)}")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, y.layout, None if how in ("{}.clone()", "{} + 0") else y)
    m.say("aliases")
    return True


def halves(m: Maker) -> bool:
    """A partial sum that is reduced half by half."""
    y = m.found(PARTIAL, dims=2)
    if y is None or m.local(y)[0] % 2:
        return False
    parts = m.fresh("halves")
    m.impl.append(
        f"{parts} = {m.one(['{}.chunk(2)', '{}.split({} // 2)', 'torch.tensor_split({}, 2)']).format(y.name, m.local(y)[0])}"
    )
    m.impl.append(f"for half in {parts}: dist.all_reduce(half{m.group()})")
    m.changed(y, layout=WHOLE)
    m.say("aliases")
    return True


def one_buffer(m: Maker) -> bool:
    """What all ranks sent, in memory that may be one."""
    y = m.found(PARTIAL, dims=2)
    if y is None:
        return False
    parts, out = m.fresh("parts"), m.fresh("y")
    blank = m.one(
        [
            f"[torch.empty_like({y.name})] * {m.count}",
            f"list(torch.empty({m.count}, {', '.join(map(str, m.local(y)))}, dtype=D))",
            f"list(torch.empty({m.count}, {', '.join(map(str, m.local(y)))}, dtype=D).unbind(0))",
        ]
    )
    m.impl += [
        f"{parts} = {blank}",
        f"dist.all_gather({parts}, {y.name}{m.group()})",
        f"{out} = torch.stack({parts}).sum(0)",
    ]
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("aliases")
    return True


STEPS = (write, write, write_row, shift, hold, halves, one_buffer)
