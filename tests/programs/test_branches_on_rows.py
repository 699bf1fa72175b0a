"""Branches on whether there are any rows: recorded as where there are, which the verdict says; other branches on numbers that the data decides are told."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

from .test_sizes_from_data import EXPERTS, PART, TOKENS, WIDTH, Dense, Dispatched

ROWS = 6
DP = {"dp": Shard(0)}


#: Whether no token is chosen, asked in many ways; the last ones ask something else.
QUESTIONS: dict[str, Callable[..., Any]] = {
    "shape": lambda _, token, __: token.shape[0] == 0,
    "above": lambda _, token, __: not token.size(0) > 0,
    "elements": lambda _, token, __: not token.numel(),
    "length": lambda _, token, __: len(token) == 0,
    "no length": lambda _, token, __: not len(token),
    "any": lambda mask, _, __: not mask.any(),
    "count": lambda mask, _, __: mask.sum() == 0,
    "number": lambda mask, _, __: mask.sum().item() < 1,
    "few": lambda _, token, __: token.shape[0] < 2,
    "one": lambda _, token, __: len(token) == 1,
    "value": lambda _, __, x: (x > 0).any(),
    "amount": lambda _, __, x: x.sum().item() > 0,
}


class Looped(nn.Module):
    """Every expert looks for its tokens, and is passed over where there are none."""

    def __init__(self, question: str = "", wrong: bool = False) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.layers = nn.Parameter(torch.empty(EXPERTS, WIDTH, WIDTH))
        self.question, self.wrong = question, wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, experts = torch.topk(torch.softmax(self.router(x), -1), 2, -1)
        out = torch.zeros_like(x)
        for expert in range(EXPERTS):
            mask = experts == expert
            if not self.question:
                out = out + (weights * mask).sum(-1, keepdim=True) * torch.tanh(x @ self.layers[expert])
                continue
            token, choice = torch.where(mask)
            if QUESTIONS[self.question](mask, token, x):
                continue
            rows = torch.tanh(x[token] @ self.layers[expert])
            out = out.index_add(0, token, rows * weights[token, 1 - choice if self.wrong else choice][:, None])
        return out


def looped(question: str, wrong: bool = False) -> Any:
    impl = lambda _: Looped(question, wrong)  # noqa: E731
    return gg.verify(
        Looped(), impl, (gg.tensor(ROWS, WIDTH),), mesh={"dp": 2}, in_relations=(DP,), out_relations=DP, grads=False
    )


@pytest.mark.parametrize("question", ["shape", "above", "elements", "length", "no length", "any", "count", "number"])
def test_what_is_done_with_rows_is_proved_and_that_there_are_any_is_said(question: str) -> None:
    found = looped(question)
    assert found.verdict is gg.Verdict.REFINES
    assert [one for one in found.assumed if "finds some, on every rank and every time" in one]


@pytest.mark.parametrize("question", ["shape", "length", "any"])
def test_what_is_done_wrong_with_rows_is_found(question: str) -> None:
    assert looped(question, wrong=True).verdict is gg.Verdict.BROKEN


@pytest.mark.parametrize("question", ["few", "one", "value", "amount"])
def test_other_questions_about_the_data_are_told(question: str) -> None:
    found = looped(question)
    assert found.verdict is None
    assert found.diagnostics[0].message.startswith("the program needs a number that depends on its inputs")


def masked_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of the chosen rows; zero where none are."""
    return (torch.tanh(x) * mask[:, None]).sum(0) / mask.sum().clamp(min=1)


@pytest.mark.parametrize(("factor", "verdict"), [(1, gg.Verdict.UNKNOWN), (2, gg.Verdict.BROKEN)])
def test_numbers_without_any_rows_refute_nothing(factor: int, verdict: gg.Verdict) -> None:
    """A mean of no rows is not what the program gives there; the accumulated sum keeps the prover from seeing that it is right."""

    def impl(_: Any) -> Any:
        def run(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            if not mask.any():
                return torch.zeros(x.shape[1])
            rows = torch.tanh(x[mask])
            return factor * rows.cumsum(0)[-1] / rows.shape[0]

        return run

    inputs = (gg.tensor(2, WIDTH), gg.tensor(2, dtype=torch.bool))
    found = gg.verify(masked_mean, impl, inputs, mesh={"dp": 1}, out_relations="replicate")
    assert found.verdict is verdict, found.diagnostics


def mean_of_counted(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy over the labels that count."""
    return F.cross_entropy(logits, labels, ignore_index=-100)


@pytest.mark.parametrize(("question", "factor"), [("named", 1), ("others", 1), ("named", 2)])
def test_whether_all_labels_are_ignored_is_a_question_for_any_other(question: str, factor: int) -> None:
    def impl(_: Any) -> Any:
        def run(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            nothing = torch.all(labels == -100) if question == "named" else not (labels != -100).any()
            total = logits.sum() * 0 if nothing else F.cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
            count = (labels != -100).sum()
            dist.all_reduce(total)
            dist.all_reduce(count)
            return factor * total / count

        return run

    inputs = (gg.tensor(ROWS, 5), gg.tensor(ROWS, dtype=torch.long, low=-100, high=5))
    found = gg.verify(mean_of_counted, impl, inputs, mesh={"dp": 2}, in_relations=DP, out_relations="replicate")
    assert found.verdict is (gg.Verdict.REFINES if factor == 1 else gg.Verdict.BROKEN), found.diagnostics
    said = "finds some that are not, on every rank" if question == "named" else "finds some, on every rank"
    assert [one for one in found.assumed if said in one], found.assumed


class Halved(torch.autograd.Function):
    """The mean square, with a gradient that is made in the forward pass and scaled where there is something to scale."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, wrong: bool, tensor: bool) -> torch.Tensor:
        ctx.save_for_backward(2 * x / x.numel())
        ctx.wrong, ctx.tensor = wrong, tensor
        return x.square().mean()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (saved,) = ctx.saved_tensors
        if torch.ne(grad, torch.tensor(1.0)) if ctx.tensor else grad != 1.0:
            saved = saved * (2 * grad if ctx.wrong else grad)
        return saved, None, None


class MeanSquare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH, 3))

    def loss(self, y: torch.Tensor) -> torch.Tensor:
        return y.square().mean()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.loss(x @ self.weight)


class Scaled(MeanSquare):
    def __init__(self, wrong: bool, tensor: bool) -> None:
        super().__init__()
        self.options = wrong, tensor

    def loss(self, y: torch.Tensor) -> torch.Tensor:
        return Halved.apply(y, *self.options)


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize(("wrong", "verdict"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_a_gradient_that_is_compared_with_one_is_another_number(tensor: bool, wrong: bool, verdict: gg.Verdict) -> None:
    found = gg.verify(MeanSquare(), lambda _: Scaled(wrong, tensor), (gg.tensor(ROWS, WIDTH),), mesh={"dp": 1})
    assert found.verdict is verdict, found.diagnostics
    assert [one for one in found.assumed if "holds, on every rank and every time: where it does not, nothing" in one]


def test_the_gradient_with_which_a_program_starts_is_one() -> None:
    """The branch is not taken, so what is wrong in it does nothing."""

    def step(model: MeanSquare) -> Any:
        def run(x: torch.Tensor) -> Any:
            model(x).backward()
            return model.weight.grad

        return run

    impl = lambda _: step(Scaled(wrong=True, tensor=False))  # noqa: E731
    found = gg.verify(step(MeanSquare()), impl, (gg.tensor(ROWS, WIDTH),), mesh={"dp": 1})
    assert found.verdict is gg.Verdict.REFINES, found.diagnostics
    assert not [one for one in found.assumed if "nothing is proved" in one], found.assumed


class Guarded(Dispatched):
    """A rank that no token reaches lets a row of zeros through its experts."""

    def computed(self, rows: torch.Tensor, arriving: torch.Tensor, *rest: Any) -> torch.Tensor:
        """As it is, where there is a row."""
        if rows.shape[0] == 0:
            return self.expert(0, rows.sum(0, keepdim=True))[:0]
        return super().computed(rows, arriving, *rest)


@pytest.mark.parametrize(("wrong", "verdict"), [("", gg.Verdict.REFINES), ("offset", gg.Verdict.BROKEN)])
def test_experts_that_may_get_no_tokens(wrong: str, verdict: gg.Verdict) -> None:
    x = gg.tensor(TOKENS, WIDTH)
    found = gg.verify(
        Dense(),
        lambda mesh: Guarded(mesh, wrong),
        (x,),
        mesh={"ep": 2},
        in_relations=(PART,),
        out_relations=PART,
        grads=False,
    )
    assert found.verdict is verdict, found.diagnostics
    assert [one for one in found.assumed if '"rows.shape[0] == 0" in Guarded.computed finds some' in one]
