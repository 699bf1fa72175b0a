"""One rank's world: ``torch.distributed`` and the environment as they are on that rank of the job, without the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.distributed_c10d as c10d

from graphguard.trace.calls import state
from graphguard.trace.calls.rank_view import RankView
from graphguard.trace.gpu import cuda, engine, own_device
from graphguard.trace.worlds import patches
from graphguard.trace.worlds.machines import environment

_TABLES = ("_pg_map", "_pg_names", "_pg_group_ranks", "_pg_backend_config", "_tags_to_pg", "_pg_to_tag")


def warm() -> None:
    """Load and exercise what every recording needs; before user code is imported, once per process."""
    import torch.distributed.fsdp
    import torch.distributed.tensor
    import torch.distributed.tensor.parallel
    import torch.utils.checkpoint  # loaded so that forked children have it

    torch.set_num_threads(1)
    patches.install()
    engine.start_without_threads()


class World(RankView):
    """A context in which this process is rank ``rank`` of a job on ``mesh`` (axis sizes in order, the last varies fastest).

    Process groups that exist outside are set aside, untouched, and are back at the end.  With ``device="cuda"`` the process believes in CUDA
    from then on (see :mod:`graphguard.trace.gpu.cuda`), so that belongs into a forked child.  Unless it is ``joined``, the program itself makes the first group.
    """

    def __init__(
        self, rank: int, mesh: dict[str, int], device: str = "cpu", machines: int = 1, *, joined: bool = True
    ) -> None:
        super().__init__(rank, mesh, device, machines)
        self._joins = joined
        self.mesh: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> World:
        patches.install()
        if self.device == "cuda" and cuda.install() == "rewrite":
            self.device = "cpu"
        if self.device == "cuda":
            own_device.choose(self.rank)
        self._stack.enter_context(_groups_set_aside())
        self._stack.enter_context(_environment(self.rank, self.size, self.machines))
        state.push_world(self)
        self._stack.callback(state.pop_world)
        self._stack.callback(forget_placements)
        forget_placements()
        if self._joins:
            self.begin()
        if self._joins and self.axes:
            self.mesh = dist.init_device_mesh(self.device, tuple(self.axes.values()), mesh_dim_names=tuple(self.axes))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


def forget_placements() -> None:
    """Empty DTensor's caches: their entries hold the mesh of the rank that filled them, and meshes of all ranks compare equal."""
    import torch.distributed.tensor._redistribute as redistribute
    from torch.distributed.tensor import debug

    debug._clear_sharding_prop_cache()  # noqa: SLF001
    redistribute._gen_transform_infos.cache_clear()  # noqa: SLF001
    redistribute.clear_redistribute_planner_cache()


@contextmanager
def _groups_set_aside() -> Iterator[None]:
    """An empty ``torch.distributed``; groups that exist are neither used nor destroyed (after a fork their threads are gone)."""
    excepthook = sys.excepthook  # init_process_group puts its own around it each time
    tables = {name: dict(getattr(c10d, name)) for name in _TABLES}
    world = c10d._world  # noqa: SLF001
    before = (world.default_pg, dict(world.pg_coalesce_state), world.group_count, c10d._default_pg_init_method)  # noqa: SLF001
    meshes = list(device_mesh._mesh_resources.mesh_stack)  # noqa: SLF001
    _fill({}, (None, {}, 0, None), [])
    try:
        yield
    finally:
        sys.excepthook = excepthook
        _fill(tables, before, meshes)


def _fill(tables: dict[str, dict[Any, Any]], rest: tuple[Any, dict[Any, Any], int, Any], meshes: list[Any]) -> None:
    world = c10d._world  # noqa: SLF001
    torch._C._distributed_c10d._unregister_all_process_groups()  # noqa: SLF001
    for name in _TABLES:
        table = getattr(c10d, name)
        table.clear()
        table.update(tables.get(name, {}))
    c10d._update_default_pg(rest[0])  # noqa: SLF001
    world.pg_coalesce_state.clear()
    world.pg_coalesce_state.update(rest[1])
    world.group_count = rest[2]
    c10d._default_pg_init_method = rest[3]  # noqa: SLF001
    device_mesh._mesh_resources.mesh_stack[:] = meshes  # noqa: SLF001
    for group, name in tables.get("_pg_names", {}).items():
        torch._C._distributed_c10d._register_process_group(name, group)  # noqa: SLF001


@contextmanager
def _environment(rank: int, size: int, machines: int) -> Iterator[None]:
    """The variables that launchers set."""
    values = environment(rank, size, machines)
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: str(value) for name, value in values.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
