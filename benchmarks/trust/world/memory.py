"""The same values in other memory, before a collective works on it."""

from __future__ import annotations

from benchmarks.trust.world.maker import Maker, Value

_SHARE = 0.22


def disturb(m: Maker, y: Value) -> Value:
    """Seldom: put what a collective is about to be given into other memory, on all ranks or on one."""
    if not m.chance(_SHARE):
        return y
    m.say("memory")
    shape = m.local(y)
    if len(shape) != 2:
        m.impl.append(m.on_a_rank(f"{y.name} = {y.name}.clone()"))
        return m.value(y.name, y.shape, y.layout)
    line = m.one(_views(y.name, *shape) if m.chance(0.3) else _copies(y.name, *shape))
    m.impl.append(m.on_a_rank(line))
    return m.value(y.name, y.shape, y.layout)


def _views(y: str, rows: int, columns: int) -> list[str]:
    """Views of the very memory, of another shape on the rank."""
    return [
        f"{y} = {y}.reshape({columns}, {rows})",
        f"{y} = {y}.view(-1)",
        f"{y} = {y}.unsqueeze(0)",
        f"{y} = {y}.t().t()",
        f"{y} = {y}[:]",
        f"{y} = {y}.view(-1)[:{rows * columns}].view({rows}, {columns})",
        f"{y} = {y}.as_strided(({rows}, {columns}), {y}.stride())",
    ]


def _copies(y: str, rows: int, columns: int) -> list[str]:
    """Copies that lie in memory otherwise."""
    return [
        f"{y} = {y}.t().contiguous().t()",
        f"{y} = {y}.t().clone().t()",
        f"{y} = torch.empty({columns}, {rows}, dtype=D).t().copy_({y})",
        f"{y} = torch.empty_strided(({rows}, {columns}), (1, {rows}), dtype=D).copy_({y})",
        f"{y} = torch.cat([{y}, {y}], 1)[:, :{columns}]",
        f"{y} = torch.cat([{y}, {y}])[:{rows}]",
        f"{y} = torch.cat([{y}, {y}])[{rows}:]",
        f"{y} = torch.stack([{y}, {y}], 1)[:, 0]",
        f"{y} = torch.stack([{y}, {y}])[1]",
        f"{y} = torch.stack([{y}, {y}], 2)[..., 1]",
        f"{y} = {y}.t().contiguous().t().contiguous()",
        f"{y} = {y}.t().contiguous().t().clone()",
        f"{y} = torch.empty_like({y}.t()).copy_({y}.t()).t()",
        f"{y} = {y}.flip(0).flip(0)",
        f"{y} = {y}.unsqueeze(0).expand(1, {rows}, {columns})[0]",
        f"{y} = {y}.repeat(1, 2).unfold(1, {columns}, {columns})[:, 0]",
    ]
