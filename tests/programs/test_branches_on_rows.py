"""Branches on whether there are any rows: recorded as where there are, which the verdict says; other branches on numbers that the data decides are told."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
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
