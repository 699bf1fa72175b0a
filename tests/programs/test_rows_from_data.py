"""Rows that a mask or a look-up of the data chooses: proved where they are put back or added up as they should be, never where they are not."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

ROWS, WIDTH, CLASSES, EXPERTS, CHOSEN = 6, 8, 5, 4, 2
DP = {"dp": Shard(0)}
X = gg.tensor(ROWS, WIDTH)
MASK = gg.tensor(ROWS, dtype=torch.bool)
LABELS = gg.tensor(ROWS, dtype=torch.int64, low=0, high=CLASSES)


class Two(nn.Module):
    """One of two layers for every row."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.how = how

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not self.how:
            return torch.where(mask[:, None], self.first(x), self.second(x))
        out = torch.zeros_like(x)
        out[mask] = self.first(x[mask])
        if self.how != "half":
            out[~mask] = self.second(x[mask if self.how == "other rows" else ~mask])
        return out


def two(how: str) -> Any:
    return gg.verify(
        Two(), lambda _: Two(how), (X, MASK), mesh={"dp": 2}, in_relations=(DP, DP), out_relations=DP, grads=False
    )


def test_rows_that_are_put_back_where_they_were() -> None:
    assert two("right").verdict is gg.Verdict.REFINES


def test_rows_that_nothing_is_put_into_are_missed() -> None:
    assert two("half").verdict is gg.Verdict.BROKEN


def test_rows_of_another_mask_do_not_fit() -> None:
    assert two("other rows").verdict is not gg.Verdict.REFINES


class Loss(nn.Module):
    """The mean loss of the rows that a mask chooses."""

    def __init__(self, how: str = "", mesh: Any = None) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)
        self.how, self.mesh = how, mesh

    def forward(self, x: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.how == "weights":
            return (F.cross_entropy(self.head(x), labels, reduction="none") * mask).sum() / mask.sum()
        chosen = labels[mask]
        if not self.how:
            return F.cross_entropy(self.head(x[mask]), chosen)
        group = self.mesh.get_group("dp")
        loss = F.cross_entropy(self.head(x)[mask], chosen, reduction="mean" if self.how == "means" else "sum")
        count = mask.sum().float()
        total = loss.clone()
        dist.all_reduce(total, group=group)
        if self.how == "means":
            return total / self.mesh.size()
        if self.how != "own count":
            dist.all_reduce(count, group=group)
        return total / count


def test_a_loss_of_chosen_rows_is_the_weighted_one_with_its_gradients() -> None:
    found = gg.verify(Loss("weights"), lambda _: Loss(), (X, LABELS, MASK), mesh={"dp": 2}, out_relations="replicate")
    assert found.verdict is gg.Verdict.REFINES


@pytest.mark.parametrize(("how", "right"), [("sums", True), ("means", False), ("own count", False)])
def test_a_loss_of_chosen_rows_over_ranks(how: str, right: bool) -> None:
    found = gg.verify(
        Loss(),
        lambda mesh: Loss(how, mesh),
        (X, LABELS, MASK),
        mesh={"dp": 2},
        in_relations=(DP, DP, DP),
        out_relations="replicate",
        grads=False,
    )
    assert found.verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN)


def test_labels_of_rows_that_are_not_chosen_are_assumed_to_be_nothing() -> None:
    labels = gg.tensor(
        ROWS, dtype=torch.int64
    )  # those that the mask leaves out may be any, so no range is stated of them
    found = gg.verify(
        Loss(), lambda _: Loss(), (X, labels, MASK), mesh={"dp": 2}, out_relations="replicate", grads=False
    )
    assert not any("labels" in one for one in found.assumed)


class Looped(nn.Module):
    """Every expert looks for its tokens."""

    def __init__(self, how: str = "", count: int = EXPERTS, *, same: bool = False) -> None:
        super().__init__()
        self.count = count
        self.same = same
        self.router = nn.Linear(WIDTH, count, bias=False)
        self.layers = nn.Parameter(torch.empty(count, WIDTH, WIDTH))
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = torch.topk(F.softmax(self.router(x), -1), CHOSEN, -1)
        if self.same:
            experts = experts[:, :1].expand(-1, CHOSEN)
        out = torch.zeros_like(x)
        for expert in range(self.count):
            if not self.how:
                gate = (weights * (experts == expert)).sum(-1, keepdim=True)
                out = out + gate * torch.tanh(x @ self.layers[expert])
                continue
            token, choice = torch.where(experts == expert)
            if self.how == "other choice":
                choice = CHOSEN - 1 - choice
            rows = torch.tanh(x[token] @ self.layers[expert])
            if self.how != "no gate":
                rows = rows * weights[token, choice][:, None]
            if self.how == "put":
                out[token] += rows
                continue
            out = out.index_copy(0, token, rows) if self.how == "copied" else out.index_add(0, token, rows)
        return out


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ("right", gg.Verdict.REFINES),
        ("put", gg.Verdict.REFINES),
        ("other choice", gg.Verdict.BROKEN),
        pytest.param("no gate", gg.Verdict.BROKEN, marks=pytest.mark.long),
        pytest.param("copied", gg.Verdict.BROKEN, marks=pytest.mark.long),
    ],
)
def test_experts_that_look_for_their_tokens(how: str, verdict: gg.Verdict) -> None:
    """With the gradients of the router, the experts and the tokens."""
    found = gg.verify(Looped(), lambda _: Looped(how), (X,), mesh={"dp": 2}, out_relations="replicate")
    assert found.verdict is verdict


def test_a_token_that_has_one_expert_twice_gets_it_once_where_rows_are_put() -> None:
    found = gg.verify(Looped(same=True), lambda _: Looped("put", same=True), (X,), mesh={"ep": 2}, grads=False)
    assert found.verdict is gg.Verdict.BROKEN


class ByMask(Looped):
    """Experts as transformers spells them: coordinates of a one-hot mask, on rows that may be of a number that the data decides."""

    def experts(
        self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, layers: torch.Tensor
    ) -> torch.Tensor:
        out = torch.zeros_like(x)
        mask = F.one_hot(experts, len(layers)).permute(2, 1, 0)
        for expert, layer in enumerate(layers):
            choice, token = torch.where(mask[expert])
            out.index_add_(0, token, torch.tanh(x[token] @ layer) * weights[token, choice, None])
        return out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = torch.topk(F.softmax(self.router(x), -1), CHOSEN, -1)
        return self.experts(x, experts, weights, self.layers)


def in_groups(
    x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, layers: torch.Tensor, how: str = ""
) -> torch.Tensor:
    """Rows sorted by expert and multiplied in groups, as transformers does it for one expert a row."""
    names, order = torch.sort(experts.reshape(-1), stable="stable" in how)
    ends = torch.histc(names.float(), bins=len(layers), min=0, max=len(layers) - 1).cumsum(0, dtype=torch.int32)
    if "other" in how:
        ends = ends[-1] - ends.flip(0)
    rows = F.grouped_mm(x[order // experts.shape[1]], layers, offs=ends)
    rows = torch.tanh(rows) * weights.reshape(-1)[order].unsqueeze(-1)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.size(0))
    back = order if "not put back" in how else back
    return rows[back].view(x.shape[0], experts.shape[1], -1).sum(1)


class Exchanged(ByMask):
    """Token copies go to the ranks of their experts, which weigh each once, and come back."""

    def __init__(self, mesh: Any, how: str, count: int = EXPERTS) -> None:
        super().__init__(how, count)
        self.group, self.ranks, self.local = mesh.get_group("ep"), mesh.size(), count // mesh.size()
        self.layers = nn.Parameter(torch.empty(self.local, WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = torch.topk(F.softmax(self.router(x), -1), CHOSEN, -1)
        flat = experts.reshape(-1)
        order = torch.argsort(flat)
        counts = torch.zeros(self.count, dtype=torch.long).scatter_add_(0, flat, torch.ones_like(flat))
        counts = counts.view(self.ranks, self.local)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)
        sent, received = torch.stack([counts.sum(dim=1), arriving.sum(dim=1)]).tolist()
        rows = all_to_all_single_autograd(x[order // CHOSEN], received, sent, self.group)
        names = torch.arange(self.local).repeat(self.ranks)
        names = names.repeat_interleave(arriving.reshape(-1), output_size=sum(received)).unsqueeze(-1)
        if self.how == "other expert":
            names = self.local - 1 - names
        given = rows, names, torch.ones_like(names, dtype=rows.dtype), self.layers
        done = in_groups(*given, self.how) if "group" in self.how else self.experts(*given)
        back = all_to_all_single_autograd(done, sent, received, self.group)
        out = torch.empty_like(back)
        out[order] = back
        return (out.view(*weights.shape, WIDTH) * weights.unsqueeze(-1)).sum(1)


def exchanged(how: str, count: int) -> gg.Verdict | None:
    part = {"ep": Shard(0)}
    return gg.verify(
        Looped("", count),
        lambda mesh: Exchanged(mesh, how, count),
        (X,),
        mesh={"ep": 2},
        in_relations=(part,),
        out_relations=part,
        grads=False,
    ).verdict


@pytest.mark.parametrize(("how", "right"), [("right", True), ("other expert", False)])
def test_experts_in_the_spelling_of_transformers(how: str, right: bool) -> None:
    assert exchanged(how, EXPERTS) is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN)


@pytest.mark.parametrize(
    ("how", "count", "verdict"),
    [
        ("groups", 2, gg.Verdict.REFINES),
        ("stable groups", 2, gg.Verdict.REFINES),
        ("other groups", 2, gg.Verdict.BROKEN),
        ("groups not put back", EXPERTS, gg.Verdict.BROKEN),
        ("groups", EXPERTS, gg.Verdict.UNKNOWN),  # a function of one of several experts' rows is not opened
        ("other groups", EXPERTS, gg.Verdict.BROKEN),
    ],
)
def test_experts_that_multiply_what_arrives_in_groups(how: str, count: int, verdict: gg.Verdict) -> None:
    assert exchanged(how, count) is verdict


@pytest.mark.parametrize(("moved", "verdict"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_what_is_added_to_sorted_rows_must_be_sorted_as_well(moved: bool, verdict: gg.Verdict) -> None:
    def spec(
        x: torch.Tensor, bias: torch.Tensor, weight: torch.Tensor, order: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        return torch.addmm(bias, x, weight) + x[mask].sum()

    def impl(
        x: torch.Tensor, bias: torch.Tensor, weight: torch.Tensor, order: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        places = order.argsort(stable=True)
        rows = torch.addmm(bias[places] if moved else bias, x[places], weight)
        return torch.zeros(ROWS, CLASSES).index_add(0, places, rows) + x[mask].sum()

    inputs = (X, gg.tensor(ROWS, CLASSES), gg.tensor(WIDTH, CLASSES), LABELS, MASK)
    found = gg.verify(spec, lambda _: impl, inputs, mesh={"dp": 2}, out_relations="replicate", grads=False)
    assert found.verdict is verdict


def total(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x)
    return x


def loss_over_rows(made: Any, grads: bool = False) -> Any:
    """The sum of squares of the chosen rows over their number on all ranks, which ``made`` makes of those of this one."""

    def run(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        rows = leaf[mask]
        share = rows.square().sum() / total(made(rows))
        return torch.autograd.grad(share, leaf)[0] if grads else total(share)

    return run


def mean_square(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[mask].square().mean()


def slope_of_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad(mean_square(leaf, mask), leaf)[0]


NUMBERS: list[tuple[Any, gg.Verdict]] = [
    (lambda rows: torch.tensor(rows.numel()), gg.Verdict.REFINES),
    (lambda rows: torch.tensor([float(WIDTH)]).squeeze() * rows.shape[0], gg.Verdict.REFINES),
    (lambda rows: WIDTH * torch.as_tensor(rows.shape[0], dtype=torch.float32), gg.Verdict.REFINES),
    (lambda rows: torch.tensor([torch.sym_float(rows.numel()), 1.0])[0], gg.Verdict.REFINES),
    (lambda rows: torch.tensor(rows.shape[0]), gg.Verdict.BROKEN),
    (lambda rows: torch.tensor(torch.sym_float(rows.shape[0])), gg.Verdict.BROKEN),
    (lambda rows: torch.tensor(rows.numel() + 1), gg.Verdict.BROKEN),
]


@pytest.mark.parametrize(("made", "wanted"), NUMBERS)
@pytest.mark.parametrize("grads", [False, True])
def test_numbers_of_rows_in_tensors(made: Any, wanted: gg.Verdict, grads: bool) -> None:
    found = gg.verify(
        slope_of_mean if grads else mean_square,
        lambda _: loss_over_rows(made, grads),
        (X, MASK),
        mesh={"dp": 2},
        in_relations=DP,
        out_relations=DP if grads else {"dp": Replicate()},
        grads=False,
    )
    assert found.verdict is wanted, found.diagnostics


@pytest.mark.parametrize("dim", [0, 1])
def test_means_of_each_rank_s_rows_are_no_mean_of_all(dim: int) -> None:
    def on_ranks(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return total(x[mask].mean(dim).sum() if dim else x[mask].mean(0)) / (1 if dim else 2)

    found = gg.verify(
        lambda x, mask: x[mask].mean(dim).sum() if dim else x[mask].mean(0),
        lambda _: on_ranks,
        (X, MASK),
        mesh={"dp": 2},
        in_relations=DP,
        out_relations={"dp": Replicate()},
        grads=False,
    )
    assert found.verdict is (gg.Verdict.REFINES if dim else gg.Verdict.BROKEN), found.diagnostics


def unpaired(x: torch.Tensor, good: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses of good rows and of bad ones, each of their own kind."""
    x = x.detach().requires_grad_()
    loss = torch.where(good[:, None], 1 - torch.sigmoid(x), 2 * torch.sigmoid(x)).mean()
    loss.backward()
    return loss.detach(), x.grad


def unpaired_of_parts(wrong: str) -> Any:
    """The rows of either kind are taken out, and the mean is that of both together."""

    def run(x: torch.Tensor, good: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.detach().requires_grad_()
        chosen, rejected = 1 - torch.sigmoid(x[good]), 2 * torch.sigmoid(x[good if wrong == "rows" else ~good])
        loss = torch.cat([chosen, rejected]).mean() / dist.get_world_size()
        if wrong == "means":
            loss = (chosen.mean() + rejected.mean()) / (2 * dist.get_world_size())
        loss.backward()
        return total(loss.detach()), x.grad

    return run


@pytest.mark.parametrize("wrong", ["", "rows", "means"])
def test_a_gradient_that_is_alike_for_all_rows_is_cut_anywhere(wrong: str) -> None:
    found = gg.verify(
        unpaired,
        lambda _: unpaired_of_parts(wrong),
        (X, MASK),
        mesh={"dp": 2},
        in_relations=DP,
        out_relations=({"dp": Replicate()}, DP),
        grads=False,
    )
    assert found.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), found.diagnostics
