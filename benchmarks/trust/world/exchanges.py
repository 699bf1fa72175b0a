"""Collectives: every way to come from one layout to another that a person would write."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.trust.world.handles import called
from benchmarks.trust.world.maker import PARTIAL, WHOLE, Maker, Value
from benchmarks.trust.world.memory import disturb


def reduce(m: Maker) -> bool:
    """A partial sum becomes whole."""
    y = m.found(PARTIAL)
    if y is None:
        return False
    m.one(_REDUCTIONS)(m, disturb(m, y))
    return True


def gather(m: Maker) -> bool:
    """Parts become whole."""
    y = m.found(int)
    if y is None or (m.batch > 1 and y.layout == 0):
        return False
    m.one(_GATHERS)(m, disturb(m, y))
    return True


def scatter(m: Maker) -> bool:
    """What is whole is cut."""
    y = m.found(WHOLE, dims=2)
    if y is None:
        return False
    dims = [dim for dim in (0, 1) if m.local(y)[dim] % m.count == 0 and (m.batch == 1 or dim == 1)]
    if not dims:
        return False
    dim, out = m.one(dims), m.fresh("c")
    if m.chance(0.5):
        m.impl.append(f"{out} = {y.name}.chunk({m.count}, {dim})[r]")
    else:
        parts = f"[part.contiguous() for part in {y.name}.chunk({m.count}, {dim})]"
        m.impl.append(f"{out} = {m.empty(m.cut(y.shape, dim))}")
        called(
            m,
            "scatter",
            f"{out}, {parts} if r == 0 else None, {m.root('src', 0)}{m.group()}",
        )
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, dim)
    m.say("scatter")
    return True


def send_parts(m: Maker) -> bool:
    """A partial sum is reduced and cut at once."""
    y = m.found(PARTIAL, dims=2)
    if y is None or m.batch > 1 or y.shape[0] % m.count:
        return False
    y, out = disturb(m, y), m.fresh("c")
    m.impl.append(f"{out} = {m.empty(m.cut(y.shape, 0))}")
    if m.chance(0.6):
        called(m, "reduce_scatter_tensor", f"{out}, {y.name}{m.group()}")
    else:
        called(m, "reduce_scatter", f"{out}, list({y.name}.chunk({m.count})){m.group()}")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, 0)
    m.say("reduce_scatter")
    return True


def exchange(m: Maker) -> bool:
    """Parts along one dim become parts along the other."""
    y = m.found(0, dims=2)
    if y is None or m.batch > 1 or y.shape[1] % m.count:
        return False
    y, out = disturb(m, y), m.fresh("e")
    rows, columns = m.local(y)[0], y.shape[1] // m.count
    parts = f"[part.contiguous() for part in {y.name}.chunk({m.count}, 1)]"
    if m.chance(0.5):
        m.impl.append(f"{out} = [torch.empty({rows}, {columns}, dtype=D) for _ in range({m.count})]")
        called(m, "all_to_all", f"{out}, {parts}{m.group()}")
        m.impl.append(f"{out} = torch.cat({out})")
    else:
        m.impl.append(f"{out} = {m.empty((rows * m.count, columns))}")
        called(m, "all_to_all_single", f"{out}, torch.cat({parts}){m.group()}")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, 1)
    m.say("all_to_all")
    return True


def broadcast(m: Maker) -> bool:
    """One rank's value goes to all."""
    y = m.found(WHOLE)
    if y is None:
        return False
    y, out, root = disturb(m, y), m.fresh("b"), m.rng.randrange(m.count)
    blank = m.one([f"torch.empty_like({y.name})", m.empty(m.local(y))])
    copied = m.one(["", "", ".clone()"])
    m.impl.append(f"{out} = {y.name}{copied} if r == {root} else {blank}")
    called(m, "broadcast", f"{out}, {m.root('src', root)}{m.group()}")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("broadcast")
    return True


def pass_on(m: Maker) -> bool:
    """A message round the ring, of what all ranks hold alike."""
    y = m.found(WHOLE)
    if y is None or m.batch > 1:
        return False
    y, out = disturb(m, y), m.fresh("m")
    after, before = f"(r + 1) % {m.count}", f"(r - 1) % {m.count}"
    m.impl.append(f"{out} = {m.empty(m.local(y))}")
    way = m.one(["batch", "handles", "sends"])
    if way == "batch":
        work = m.fresh("works")
        sent = f"dist.P2POp(dist.isend, {y.name}, {after})"
        m.impl.append(f"{work} = dist.batch_isend_irecv([{sent}, dist.P2POp(dist.irecv, {out}, {before})])")
        m.impl.append(f"for work in {work}: work.wait()")
    elif way == "handles":
        work = m.fresh("work")
        m.impl += [f"{work} = dist.isend({y.name}, {after})", f"dist.recv({out}, {before})", f"{work}.wait()"]
    else:
        m.impl.append(f"if r == 0: dist.send({y.name}, 1)")
        m.impl += [f"if r == {rank}: dist.recv({out}, {rank - 1})" for rank in range(1, m.count)][:1]
        m.impl.append(f"if r != 1: {out} = {y.name}")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("messages")
    return True


def extreme(m: Maker) -> bool:
    """The largest, or the least, of all ranks' parts."""
    y = m.found(int, dims=2)
    if y is None or (m.batch > 1 and y.layout == 0):
        return False
    out, (least, operator) = m.fresh("s"), m.one([("amax", "MAX"), ("amin", "MIN")])
    m.both(f"{out} = {y.name}.{least}({y.layout}, keepdim=True)")
    shape = tuple(1 if dim == y.layout else size for dim, size in enumerate(y.shape))
    called(m, "all_reduce", f"{out}, op=dist.ReduceOp.{operator}{m.group()}")
    m.value(out, shape, WHOLE)
    m.say("all_reduce")
    return True


def _in_place(m: Maker, y: Value) -> None:
    called(m, "all_reduce", f"{y.name}{m.group()}")
    m.changed(y, layout=WHOLE)
    m.say("all_reduce")


def _of_a_copy(m: Maker, y: Value) -> None:
    out = m.fresh("y")
    copy = m.one([".clone()", ".contiguous()", ".clone(memory_format=torch.contiguous_format)", ".detach().clone()"])
    m.impl.append(f"{out} = {y.name}{copy}")
    called(m, "all_reduce", f"{out}{m.group()}")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE, y if copy == ".contiguous()" else None)
    m.say("all_reduce")


def _functional(m: Maker, y: Value) -> None:
    out = m.fresh("y")
    group = m.one(m.groups) or "dist.group.WORLD"
    call = m.one(["dist.nn.functional.all_reduce({0}, group={1})", 'funcol.all_reduce({0}, "sum", {1})'])
    m.impl.append(f"{out} = {call.format(y.name, group)}")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("functional")


def _reduced_and_sent(m: Maker, y: Value) -> None:
    root = m.rng.randrange(m.count)
    called(m, "reduce", f"{y.name}, {m.root('dst', root)}{m.group()}")
    called(m, "broadcast", f"{y.name}, {m.root('src', root)}{m.group()}")
    m.changed(y, layout=WHOLE)
    m.say("reduce")


def _added_up(m: Maker, y: Value) -> None:
    parts, out = m.fresh("parts"), m.fresh("y")
    m.impl.append(f"{parts} = [torch.empty_like({y.name}) for _ in range({m.count})]")
    called(m, "all_gather", f"{parts}, {y.name}{m.group()}")
    m.impl.append(f"{out} = sum({parts})")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("all_gather")


def _flat(m: Maker, y: Value) -> None:
    flat = m.fresh("flat")
    flatten = m.one([".view(-1)", ".reshape(-1)", ".flatten()", ".contiguous().view(-1)"])
    m.impl.append(f"{flat} = {y.name}{flatten}")
    called(m, "all_reduce", f"{flat}{m.group()}")
    if m.chance(0.6):
        out = m.fresh("y")
        m.impl.append(f"{out} = {flat}.view({', '.join(map(str, m.local(y)))})")
        m.spec.append(f"{out} = {y.name}")
        m.value(out, y.shape, WHOLE, y)
    m.changed(y, layout=WHOLE)
    m.say("aliases")


def _together(m: Maker, y: Value) -> None:
    bucket = m.fresh("bucket")
    others = [z for z in m.values if z.layout == PARTIAL and z.memory != y.memory][:1]
    names = [y.name, *(z.name for z in others)]
    m.impl.append(f"{bucket} = torch.cat([{', '.join(f'{name}.reshape(-1)' for name in names)}])")
    called(m, "all_reduce", f"{bucket}{m.group()}")
    start = 0
    for z in (y, *others):
        size = 1
        for each in m.local(z):
            size *= each
        part = f"{bucket}[{start}:{start + size}]"
        start += size
        if m.chance(0.5):
            m.impl.append(f"{z.name}.copy_({part}.view_as({z.name}))")
            m.changed(z, layout=WHOLE)
        else:
            out = m.fresh("y")
            m.impl.append(f"{out} = {part}.view({', '.join(map(str, m.local(z)))})")
            m.spec.append(f"{out} = {z.name}")
            m.value(out, z.shape, WHOLE)
    m.say("bucket")


def _as_objects(m: Maker, y: Value) -> None:
    parts, out = m.fresh("parts"), m.fresh("y")
    m.impl.append(f"{parts} = [None] * {m.count}")
    m.impl.append(f"dist.all_gather_object({parts}, {y.name}{m.group()})")
    m.impl.append(f"{out} = sum({parts})")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("objects")


def _joined(m: Maker, y: Value) -> None:
    parts, out = m.fresh("parts"), m.fresh("g")
    m.impl.append(f"{parts} = [torch.empty({', '.join(map(str, m.local(y)))}, dtype=D) for _ in range({m.count})]")
    called(m, "all_gather", f"{parts}, {y.name}{m.group()}")
    m.impl.append(f"{out} = torch.cat({parts}, {y.layout})")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("all_gather")


def _joined_flat(m: Maker, y: Value) -> None:
    out = m.fresh("g")
    rows, *rest = m.local(y)
    blank = m.empty((rows * m.count, *rest))
    m.impl.append(f"{out} = {blank}")
    called(m, "all_gather_into_tensor", f"{out}, {y.name}{m.group()}")
    if y.layout != 0:
        m.impl.append(f"{out} = torch.cat({out}.chunk({m.count}), {y.layout})")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("all_gather_into_tensor")


def _in_turn(m: Maker, y: Value) -> None:
    parts, out = m.fresh("parts"), m.fresh("g")
    m.impl.append(f"{parts} = [{y.name} if k == r else torch.empty_like({y.name}) for k in range({m.count})]")
    m.impl.append(f"for k in range({m.count}): dist.broadcast({parts}[k], {m.root('src', 'k')}{m.group()})")
    m.impl.append(f"{out} = torch.cat({parts}, {y.layout})")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("broadcast")


def _placed(m: Maker, y: Value) -> None:
    out, size = m.fresh("g"), m.local(y)[int(y.layout)]
    index = ":, " * int(y.layout) + f"r * {size}:(r + 1) * {size}"
    m.impl.append(f"{out} = torch.zeros({', '.join(map(str, m.cut(y.shape, WHOLE)))}, dtype=D)")
    m.impl.append(
        m.one([f"{out}[{index}] = {y.name}", f"{out}[{index}].copy_({y.name})", f"{out}[{index}] += {y.name}"])
    )
    called(m, "all_reduce", f"{out}{m.group()}")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("all_reduce")


def _collected(m: Maker, y: Value) -> None:
    parts, out = m.fresh("parts"), m.fresh("g")
    m.impl.append(f"{parts} = [torch.empty_like({y.name}) for _ in range({m.count})] if r == 0 else None")
    called(m, "gather", f"{y.name}, {parts}, {m.root('dst', 0)}{m.group()}")
    m.impl.append(f"{out} = torch.cat({parts}, {y.layout}) if r == 0 else {m.empty(m.cut(y.shape, WHOLE))}")
    called(m, "broadcast", f"{out}, {m.root('src', 0)}{m.group()}")
    m.spec.append(f"{out} = {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("gather")


_REDUCTIONS: tuple[Callable[[Maker, Value], None], ...] = (
    _in_place,
    _in_place,
    _of_a_copy,
    _functional,
    _reduced_and_sent,
    _added_up,
    _flat,
    _together,
    _as_objects,
)
_GATHERS: tuple[Callable[[Maker, Value], None], ...] = (
    _joined,
    _joined_flat,
    _in_turn,
    _placed,
    _collected,
)
STEPS = (reduce, reduce, gather, scatter, send_parts, exchange, broadcast, pass_on, extreme)
