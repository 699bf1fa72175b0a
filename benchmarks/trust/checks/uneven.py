"""Correct programs on shards of different sizes: padded gathers, weighted means, exchanges with lengths, a rank with nothing."""

import torch
import torch.distributed as dist

import graphguard as gg

ROWS = 7


def summed(x):
    """The sum over all ranks."""
    x = x.clone()
    dist.all_reduce(x)
    return x


def layer(x, up, down):
    """The specification of the feed-forward layer."""
    return torch.relu(x @ up) @ down


@gg.check(mesh=[{"tp": 2}, {"tp": 3}])
def feed_forward(mesh):
    """Seven hidden features over two and three ranks."""
    rank, ranks = mesh.get_local_rank("tp"), mesh.size()

    def impl(x, up, down):
        return summed(torch.relu(x @ up.tensor_split(ranks, 1)[rank]) @ down.tensor_split(ranks, 0)[rank])

    inputs = (gg.tensor(3, 4), gg.tensor(4, ROWS), gg.tensor(ROWS, 5))
    return gg.Refinement(layer, impl, inputs, out_relations="replicate")


@gg.check(mesh=[{"dp": 2}, {"dp": 3}])
def weighted_gradient(mesh):
    """The gradient of a mean loss over rows of which no two ranks have as many."""
    rank, ranks = mesh.get_local_rank("dp"), mesh.size()

    def gradient(weight, x, count):
        weight = weight.detach().requires_grad_()
        loss = torch.tanh(x @ weight).pow(2).sum() / count
        (found,) = torch.autograd.grad(loss, weight)
        return found, loss.detach()

    def impl(weight, x):
        found, loss = gradient(weight, x.tensor_split(ranks)[rank], ROWS)
        return summed(found), summed(loss)

    def spec(weight, x):
        return gradient(weight, x, ROWS)

    return gg.Refinement(spec, impl, (gg.tensor(4, 3), gg.tensor(ROWS, 4)), out_relations="replicate")


@gg.check(mesh={"tp": 3})
def padded_gather(mesh):
    """Shards are padded to one size, gathered and cut again."""
    rank, ranks = mesh.get_local_rank("tp"), mesh.size()
    sizes = [len(part) for part in torch.arange(ROWS).tensor_split(ranks)]

    def impl(x):
        mine = x.tensor_split(ranks)[rank].sigmoid()
        padded = torch.nn.functional.pad(mine, (0, 0, 0, sizes[0] - sizes[rank]))
        parts = [torch.empty_like(padded) for _ in range(ranks)]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    return gg.Refinement(torch.sigmoid, impl, (gg.tensor(ROWS, 3),), out_relations="replicate")


@gg.check(mesh={"ep": 2})
def dispatch(mesh):
    """Rows go to where their expert is, three one way and four the other, and come back."""
    rank = mesh.get_local_rank("ep")
    sent = [[2, 2], [1, 2]][rank]
    received = [[2, 1], [2, 2]][rank]

    def impl(x, first, second):
        mine = x[:4] if rank == 0 else x[4:]
        arrived = torch.empty(sum(received), 3)
        dist.all_to_all_single(arrived, mine.contiguous(), received, sent)
        made = arrived @ (second if rank else first)
        back = torch.empty(sum(sent), 2)
        dist.all_to_all_single(back, made.contiguous(), sent, received)
        full = torch.zeros(ROWS, 2)
        full[slice(0, 4) if rank == 0 else slice(4, ROWS)] = back
        return summed(full)

    def spec(x, first, second):
        return torch.cat([x[:2] @ first, x[2:4] @ second, x[4:5] @ first, x[5:] @ second])

    inputs = (gg.tensor(ROWS, 3), gg.tensor(3, 2), gg.tensor(3, 2))
    return gg.Refinement(spec, impl, inputs, out_relations="replicate")


@gg.check(mesh={"dp": 3})
def nothing_to_do(mesh):
    """Two rows over three ranks: the last has none, and still takes part."""
    rank = mesh.get_local_rank("dp")

    def impl(x):
        return summed(x.tensor_split(3)[rank].exp().sum(0))

    return gg.Refinement(lambda x: x.exp().sum(0), impl, (gg.tensor(2, 4),), out_relations="replicate")
