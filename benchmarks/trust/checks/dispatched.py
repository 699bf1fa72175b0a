"""Programs whose sizes the data decides: experts that get as many tokens as choose them, losses over chosen rows."""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN, CLASSES = 6, 3, 4, 4, 2, 5
ROWS = {"ep": Shard(0)}


class Dense(nn.Module):
    """Every expert on every token, times its gate."""

    def __init__(self, experts: int = EXPERTS) -> None:
        super().__init__()
        self.router = nn.Parameter(torch.empty(EXPERTS, WIDTH))
        self.up = nn.Parameter(torch.empty(experts, WIDTH, HIDDEN))
        self.down = nn.Parameter(torch.empty(experts, HIDDEN, WIDTH))

    def chosen(self, x: torch.Tensor) -> Any:
        return torch.topk(F.softmax(x @ self.router.t(), -1), CHOSEN, -1)

    def expert(self, place: int, rows: torch.Tensor) -> torch.Tensor:
        return F.silu(rows @ self.up[place]) @ self.down[place]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = self.chosen(x)
        gates = [(weights * (experts == place)).sum(-1, keepdim=True) for place in range(EXPERTS)]
        return sum(gate * self.expert(place, x) for place, gate in enumerate(gates))


class Looped(Dense):
    """Every expert of the rank looks for its tokens; what the ranks have is added up."""

    def __init__(self, mesh: Any) -> None:
        self.group, self.local, self.rank = mesh.get_group("ep"), EXPERTS // mesh.size(), mesh.get_local_rank("ep")
        super().__init__(self.local)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = self.chosen(x)
        out = torch.zeros_like(x)
        for place in range(self.local):
            token, rank = torch.where(experts == self.rank * self.local + place)
            out = out.index_add(0, token, self.expert(place, x[token]) * weights[token, rank][:, None])
        dist.all_reduce(out, group=self.group)
        return out


class Exchange(torch.autograd.Function):
    """Rows in numbers of its own to every rank."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, received: list[int], sent: list[int]) -> torch.Tensor:
        ctx.saved = (group, sent, received)
        out = x.new_empty((sum(received), *x.shape[1:]))
        dist.all_to_all_single(out, x.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return Exchange.apply(gradient, *ctx.saved), None, None, None


class Dispatched(Dense):
    """Token copies sorted by expert go to the ranks of their experts and come back."""

    def __init__(self, mesh: Any) -> None:
        self.group, self.ranks, self.local = mesh.get_group("ep"), mesh.size(), EXPERTS // mesh.size()
        super().__init__(self.local)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = self.chosen(x)
        flat = experts.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=EXPERTS)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)
        sent = counts.view(self.ranks, self.local).sum(1).tolist()
        received = arriving.view(self.ranks, self.local).sum(1).tolist()
        rows = Exchange.apply(x[order // CHOSEN], self.group, received, sent)
        place = torch.arange(self.local).repeat(self.ranks).repeat_interleave(arriving)
        by_expert = place.argsort(stable=True)
        pieces = rows[by_expert].split(arriving.view(self.ranks, self.local).sum(0).tolist())
        done = torch.cat([self.expert(index, piece) for index, piece in enumerate(pieces)])
        back = Exchange.apply(torch.empty_like(done).index_copy(0, by_expert, done), self.group, sent, received)
        back = back * weights.reshape(-1)[order][:, None]
        return torch.zeros_like(back).index_copy(0, order, back).view(-1, CHOSEN, WIDTH).sum(1)


class Step(nn.Module):
    """A training step: the gradients."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        self.model(x).square().sum().backward()
        group = getattr(self.model, "group", None)
        if group is not None:
            dist.all_reduce(self.model.router.grad, group=group)
        return {name: parameter.grad for name, parameter in self.model.named_parameters()}


class Classifier(nn.Module):
    """The loss of the rows that a mask chooses."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(CLASSES, WIDTH))
        self.group = group

    def forward(self, x: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(x[mask] @ self.weight.t(), labels[mask], reduction="sum")
        count = mask.sum().float()
        if self.group is not None:
            loss = loss.clone()
            dist.all_reduce(loss, group=self.group)
            dist.all_reduce(count, group=self.group)
        return loss / count


@gg.check(mesh={"ep": 2})
def looped(mesh: Any) -> gg.Refinement:
    return gg.Refinement(Dense(), Looped(mesh), (gg.tensor(TOKENS, WIDTH),), out_relations="replicate", grads=False)


@gg.check(mesh={"ep": 2})
def dispatched(mesh: Any) -> gg.Refinement:
    inputs = (gg.tensor(TOKENS, WIDTH),)
    return gg.Refinement(Dense(), Dispatched(mesh), inputs, in_relations=(ROWS,), out_relations=ROWS, grads=False)


@gg.check(mesh={"ep": 2})
def step(mesh: Any) -> gg.Refinement:
    return gg.Refinement(
        Step(Dense()), Step(Dispatched(mesh)), (gg.tensor(TOKENS, WIDTH),), in_relations=(ROWS,), grads=False
    )


@gg.check(mesh={"ep": 2})
def masked(mesh: Any) -> gg.Refinement:
    labels, mask = gg.tensor(TOKENS, dtype=torch.int64, low=0, high=CLASSES), gg.tensor(TOKENS, dtype=torch.bool)
    return gg.Refinement(
        Classifier(),
        Classifier(mesh.get_group("ep")),
        (gg.tensor(TOKENS, WIDTH), labels, mask),
        in_relations=(ROWS, ROWS, ROWS),
        out_relations="replicate",
        grads=False,
    )
