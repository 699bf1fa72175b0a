"""A model cut into two stages that run micro-batches one after the other; the last stage has the loss."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

import graphguard as gg

MICRO_BATCHES, DIM, HIDDEN = 2, 4, 6


def model(x, first, second, target):
    """The specification."""
    return F.mse_loss(torch.tanh(x @ first) @ second, target)


@gg.check(mesh={"pp": 2})
def pipeline(mesh):
    group, stage = mesh.get_group("pp"), mesh.get_local_rank("pp")

    def impl(x, first, second, target):
        total = torch.zeros(())
        for part, wanted in zip(x.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES), strict=True):
            if stage == 0:
                h = torch.tanh(part @ first)
                dist.send(h, 1, group=group)
            else:
                h = part.new_empty(part.shape[0], HIDDEN)
                dist.recv(h, 0, group=group)
                loss = F.mse_loss(h @ second, wanted)
                total = total + loss / MICRO_BATCHES
        dist.broadcast(total, 1, group=group)
        return total

    inputs = (gg.tensor(6, DIM), gg.tensor(DIM, HIDDEN), gg.tensor(HIDDEN, 3), gg.tensor(6, 3))
    return gg.Refinement(model, impl, inputs, out_relations="replicate", grads=False)
