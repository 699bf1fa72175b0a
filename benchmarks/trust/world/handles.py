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
    elif m.chance(0.15):
        m.impl.append("dist.barrier()" if m.batch == 1 and m.chance(0.3) else f"{work}.is_completed() or {work}.wait()")
    else:
        m.impl.append(f"{work}.wait()")
