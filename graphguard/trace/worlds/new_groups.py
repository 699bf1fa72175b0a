"""Notes every group that a rank makes (:mod:`~graphguard.trace.calls.communicators`)."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch.distributed.distributed_c10d as c10d

from graphguard.trace.calls import state
from graphguard.trace.calls.events import Members


def watch() -> None:
    """Note every group that a rank makes; all of PyTorch's ways to make one come by here."""
    original = c10d._new_group_with_tag  # noqa: SLF001
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        world = state.current_world()
        if world is None:
            return original(*args, **kwargs)
        known, member_of = set(c10d._world.pg_names), len(c10d._world.pg_names)  # noqa: SLF001
        group = original(*args, **kwargs)
        given = parameters.bind(*args, **kwargs).arguments
        alone = bool(given.get("use_local_synchronization"))
        if group in known or (alone and group is None):
            return group  # one that there is already; one that only its members make
        ranks = tuple(map(int, given.get("ranks") or range(world.size)))
        ranks = tuple(sorted(ranks)) if given.get("sort_ranks", True) else ranks
        made = Members(ranks)
        if world.rank in ranks:
            made = world.communicators.add(ranks, group.group_name)
        recorder = state.current_recorder()
        if recorder is not None:
            recorder.formed(made, f"{member_of} groups" if alone else "")
        return group

    c10d._new_group_with_tag = new_group  # noqa: SLF001
