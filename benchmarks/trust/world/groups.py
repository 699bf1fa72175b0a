"""Groups of ranks: of their own, several of the same ranks, made by some ranks only, in another order."""

from __future__ import annotations

from benchmarks.trust.world.maker import Maker

# The ranks of a 2x2 mesh that are along its last axis, or are not.
_ROWS = (
    "g = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() // 2]",
    "g = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() % 2]",
    "g = [dist.new_group([0, 2]), dist.new_group([1, 3])][dist.get_rank() % 2]",
    "g = dist.new_group([0, 1]) if dist.get_rank() < 2 else dist.new_group([2, 3])",
    "g, _ = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])",
    "g, _ = dist.new_subgroups(2)",
    'g = mesh.get_group("dp")',
    "g = dist.group.WORLD",
    'g = mesh["tp"].get_group()',
    "g = mesh.get_all_groups()[1]",
)


def prepare(m: Maker) -> None:
    """The program's first lines: which rank this is, and the groups that its calls choose from."""
    if m.batch > 1:
        m.impl.append('r = mesh.get_local_rank("tp")')
        m.impl.append('g = mesh.get_group("tp")' if m.chance(0.6) else m.one(_ROWS))
        m.groups = ["g"]
        return
    m.impl.append("r = dist.get_rank()")
    if m.chance(0.45):
        return
    m.say("groups")
    ranks = str(list(range(m.count)))
    made = m.one([ranks, ranks, str(list(reversed(range(m.count)))), f"list(range({m.count}))"])
    way = m.rng.random()
    if way < 0.3:
        m.impl.append(f"g = dist.new_group({made})")
        m.groups = m.one([["g"], ["", "g"]])
    elif way < 0.5:
        m.impl += [f"g = dist.new_group({ranks})", f"h = dist.new_group({made})"]
        m.groups = m.one([["g", "h"], ["", "g", "h"]])
    elif way < 0.62:
        m.impl.append(f"g, h = dist.new_group({ranks}), dist.new_group({made})")
        m.impl.append("if r == 1: g, h = h, g")
        m.groups = m.one([["g", "h"], ["g", "h"], ["g"]])
    elif way < 0.7:
        m.impl.append(f"g = dist.new_group({ranks})")
        m.impl.append("if r == 1: g = dist.group.WORLD")
        m.groups = ["g"]
    elif way < 0.85:
        only = m.one(["[0]", "[1]", "[0]"])
        m.impl.append(
            m.one(
                [
                    f"alone = dist.new_group({only})",
                    f"if r == {only[1]}: dist.new_group({only})",
                    f"if r == {only[1]}: dist.new_group({only}, use_local_synchronization=True)",
                ]
            )
        )
        m.impl.append(f"g = dist.new_group({ranks})")
        m.groups = m.one([["g"], [""], ["", "g"]])
    else:
        m.impl.append(f"groups = [dist.new_group({ranks}) for _ in range(2)]")
        m.impl.append(m.one(["g, h = groups", "g, h = groups if r == 0 else groups[::-1]", "g = h = groups[r % 2]"]))
        m.groups = ["g", "h"]


def both_ways(m: Maker) -> bool:
    """Two reductions at a time on two groups, issued in an order of each rank's."""
    partial = [value for value in m.values if value.layout == "partial"]
    if m.batch > 1 or not partial:
        return False
    y = partial[-1]
    first, second = m.fresh("y"), m.fresh("y")
    m.both(f"{first}, {second} = {y.name} + {y.name}, {y.name} * 3")
    a, b = m.fresh("g"), m.fresh("g")
    ranks = str(list(range(m.count)))
    m.impl.append(f"{a}, {b} = dist.new_group({ranks}), {m.one(['dist.group.WORLD', f'dist.new_group({ranks})'])}")
    calls = m.fresh("calls")
    m.impl.append(f"{calls} = [({first}, {a}), ({second}, {m.one([a, b, b])})]")
    m.impl.append(
        m.one(
            [
                f"if r == 1: {calls} = {calls}[::-1]",
                f"if r == 1: {calls} = [({calls}[1][0], {calls}[0][1]), ({calls}[0][0], {calls}[1][1])]",
                f"if r == 1: {calls} = [({calls}[0][0], {calls}[1][1]), ({calls}[1][0], {calls}[0][1])]",
            ]
        )
    )
    if m.chance(0.7):
        works = m.fresh("works")
        m.impl.append(f"{works} = [dist.all_reduce(t, group=group, async_op=True) for t, group in {calls}]")
        m.impl.append(f"for work in {works}: work.wait()")
    else:
        m.impl.append(f"for t, group in {calls}: dist.all_reduce(t, group=group)")
    m.value(first, y.shape, "whole")
    m.value(second, y.shape, "whole")
    m.say("groups")
    return True


def in_stages(m: Maker) -> bool:
    """A reduction over some of three ranks, and then over the others."""
    partial = [value for value in m.values if value.layout == "partial"]
    if m.count != 3 or not partial:
        return False
    y = partial[-1]
    m.impl.append("low, high = dist.new_group([0, 1]), dist.new_group([1, 2])")
    m.impl += [f"if r < 2: dist.all_reduce({y.name}, group=low)", f"if r > 0: dist.all_reduce({y.name}, group=high)"]
    m.impl.append(f"dist.broadcast({y.name}, src={m.one([2, 1, 1, 0])}{m.group()})")
    m.changed(y, layout="whole")
    m.say("groups")
    return True


STEPS = (both_ways, in_stages)
