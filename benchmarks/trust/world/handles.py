"""How a collective is called: at once, or with a handle that is waited for now, later, on one rank, or never."""

from __future__ import annotations

from benchmarks.trust.world.maker import Maker

_FAULTY = 0.12


def called(m: Maker, name: str, arguments: str) -> None:
    """Call a collective."""
    if m.chance(0.75):
        m.impl.append(f"dist.{name}({arguments})")
        return
    m.say("handles")
    work = m.fresh("work")
    m.impl.append(f"{work} = dist.{name}({arguments}, async_op=True)")
    if m.chance(_FAULTY):
        m.impl += [] if m.chance(0.4) else [f"if r == {m.rng.randrange(m.count)}: {work}.wait()"]
        m.say("missing wait")
    elif m.chance(0.3):
        m.pending.append(f"{work}.wait()")
        m.say("late wait")
    elif m.chance(0.15):
        # a barrier waits for what went before it on its own group
        by_barrier = m.batch == 1 and "group=" not in arguments and m.chance(0.3)
        m.impl.append("dist.barrier()" if by_barrier else f"{work}.is_completed() or {work}.wait()")
    else:
        m.impl.append(f"{work}.wait()")


def wait(m: Maker, share: float = 1.0) -> None:
    """Wait for what was put off, in any order."""
    m.rng.shuffle(m.pending)
    while m.pending and m.chance(share):
        m.impl.append(m.pending.pop())
