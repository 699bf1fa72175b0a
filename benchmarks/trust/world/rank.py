"""One rank's fork server: every program runs in a child of its own, with gloo set up anew.

Started with a hash seed of its own, as real ranks are: ``python -m benchmarks.trust.world.rank FD RANK``.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.trust.world import late, looks
from benchmarks.trust.world.jobs import Answer, Job
from benchmarks.trust.world.program import HEADER, loaded
from benchmarks.trust.world.results import tree
from graphguard.trace.process.parentage import die_with

_SIGNS = (0, 1, -1, 0)  # of a run's numbers: the least of four normal ones behind a relu is zero in most runs
_SEED = 2147483647  # of all ranks: that torch is seeded alike everywhere is what a report lists as assumed
_GIVE_UP = timedelta(seconds=300)  # who runs the ranks sees earlier that they hang


def main() -> None:
    """Serve jobs until the other side is gone."""
    connection, rank = Connection(int(sys.argv[1])), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nobody wrote is NaN, not what lay there
    exec(HEADER, {})
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    connection.send(0 if store is None else store.port)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            _live(job, rank, connection)
        connection.send(("ended", os.waitpid(pid, 0)[1]))


def _live(job: Job, rank: int, connection: Connection) -> None:
    """A child's life: it stays until it is killed, as ranks that end early break the others' connections."""
    try:
        die_with(os.getppid())
        connection.send(("started", os.getpid()))
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        connection.send(("answer", _answer(job, rank)))
    except BaseException:  # noqa: BLE001 - a defect of this machine, which whoever runs it must see
        connection.send(("defect", traceback.format_exc()))
    while True:
        signal.pause()


def _answer(job: Job, rank: int) -> Answer:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job.world_size))
    os.environ.update(LOCAL_WORLD_SIZE=str(job.world_size))
    names = loaded(job.path)
    trials = [_inputs(names, rank, trial) for trial in range(job.trials)]
    wanted = []
    try:
        for whole, _ in trials:
            fresh = _afresh(job)
            wanted.append(tree(fresh["spec"](*(each.clone() for each in whole))))
    except Exception as error:  # noqa: BLE001 - whatever a program raises
        return Answer(raised=repr(error), by="spec")
    arguments = _world(job, rank, names["MESH"])
    found = []
    with looks.noting() as noted, late.schedule(job.late) as scheduled:
        for _, local in trials:
            try:
                result = _afresh(job)["impl"](*arguments, *(each.clone() for each in local))
                found.append(tree(result))
                scheduled.end()
            except Exception as error:  # noqa: BLE001 - whatever a program raises
                return Answer(tuple(wanted), raised=repr(error), by="impl", not_dense=noted.not_dense)
    return Answer(tuple(wanted), tuple(found), not_dense=noted.not_dense)


def _afresh(job: Job) -> dict[str, Any]:
    """What the file makes when nobody has used it, with torch seeded as a launcher seeds it: a verdict is of one run."""
    torch.default_generator.manual_seed(_SEED)
    return loaded(job.path)


def _world(job: Job, rank: int, mesh: dict[str, int]) -> tuple[Any, ...]:
    """Set up gloo; the program's mesh where it has several axes."""
    client = dist.TCPStore("127.0.0.1", job.port, is_master=False)
    store = dist.PrefixStore(job.path.name + str(job.late), client)
    dist.init_process_group("gloo", rank=rank, world_size=job.world_size, store=store, timeout=_GIVE_UP)
    if len(mesh) == 1:
        return ()
    from torch.distributed.device_mesh import init_device_mesh

    return (init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh)),)


def _inputs(names: dict[str, Any], rank: int, trial: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The specification's inputs and this rank's."""
    noise = torch.Generator().manual_seed(1000 + trial)
    whole = [torch.randn(shape, generator=noise, dtype=torch.float64) for shape in names["SHAPES"]]
    if sign := _SIGNS[trial % len(_SIGNS)]:
        whole = [sign * tensor.abs() for tensor in whole]
    mesh = names["MESH"]
    local = []
    for tensor, relation in zip(whole, names["IN"], strict=True):
        part, stride = tensor, math.prod(mesh.values())
        for axis, count in mesh.items():
            stride //= count
            part = _part(part, (relation or {}).get(axis), count, rank // stride % count)
        local.append(part.contiguous())
    return whole, local


def _part(tensor: torch.Tensor, placement: Any, count: int, place: int) -> torch.Tensor:
    if placement is None or placement.is_replicate():
        return tensor
    if placement.is_partial():
        noise = torch.Generator().manual_seed(7)
        parts = [torch.randn(tensor.shape, generator=noise, dtype=tensor.dtype) for _ in range(count - 1)]
        return [*parts, tensor - sum(parts)][place]
    return tensor.chunk(count, placement.dim)[place]


if __name__ == "__main__":
    main()
