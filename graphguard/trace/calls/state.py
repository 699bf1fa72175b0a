"""Which world and which recorder are active in this process: what the replacements of PyTorch's functions look at."""

from __future__ import annotations

from graphguard.trace.calls.rank_view import RankView
from graphguard.trace.calls.tape import Tape

_worlds: list[RankView] = []
_recorders: list[Tape] = []


def current_world() -> RankView | None:
    """The rank whose view ``torch.distributed`` shows, if any."""
    return _worlds[-1] if _worlds else None


def current_recorder() -> Tape | None:
    """The recorder that sees what runs, if any."""
    return _recorders[-1] if _recorders else None


def push_world(world: RankView) -> None:
    """``world`` is active from here."""
    _worlds.append(world)


def pop_world() -> None:
    """The world before is active again."""
    _worlds.pop()


def push_recorder(recorder: Tape) -> None:
    """``recorder`` sees what runs from here."""
    _recorders.append(recorder)


def pop_recorder() -> None:
    """The recorder before sees what runs again."""
    _recorders.pop()
