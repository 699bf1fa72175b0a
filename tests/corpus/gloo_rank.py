"""One rank of the ground truth: ``python gloo_rank.py RANK WORLD STORE``; rank 0 prints the ids whose record is not true."""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from vocabulary import Case, load, records


def outputs(value):
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def agrees(case: Case, program) -> bool:
    """Whether the ranks' outputs rebuild the specification's as promised."""
    wanted, mine = outputs(case.spec(*case.inputs)), outputs(program(*case.inputs))
    verdict = True
    for expected, local, promise in zip(wanted, mine, case.promises(len(wanted)), strict=True):
        everyone: list = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, torch.as_tensor(local).detach().contiguous())
        rebuilt = everyone if promise == "rep" else [torch.cat(everyone, int(promise.removeprefix("cat")))]
        expected = torch.as_tensor(expected).detach()
        verdict &= all(expected.shape == t.shape and torch.allclose(expected, t, atol=1e-8, rtol=1e-8) for t in rebuilt)
    return verdict


def main() -> None:
    """The command."""
    rank, world = int(sys.argv[1]), int(sys.argv[2])
    store = dist.FileStore(sys.argv[3], world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    torch.set_num_threads(1)
    wrong = []
    for record in records():
        case = load(record)
        if case.world != world:
            continue
        if not agrees(case, case.fixed) or agrees(case, case.buggy) != case.control:
            wrong.append(case.id)
    if rank == 0:
        print(json.dumps(wrong))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
