"""Whether a factor is told by the size of an axis, with processes that say what is wrong where the axis has one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg
from graphguard.checks.judging.accounts import told_apart, told_at_once
from graphguard.checks.judging.requests import LARGE, CheckRequest, diagnostic_of_finding
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, CheckRef, Span
from graphguard.ir.capture import Trouble
from graphguard.ir.codec import capture_summary
from graphguard.ir.plain import to_plain
from graphguard.refine.finding import Finding
from graphguard.refine.outcome import Outcome
from graphguard.report.diagnostics import Report, Verdict

CHECK = CheckRef("checks.py::c", "c", Span("checks.py", 1))
SUMMARY = capture_summary(Capture(CHECK, {}, (), None, (), ()))
TROUBLED = capture_summary(Capture(CHECK, {}, (), None, (), (), troubles=(Trouble("check-error", "no group", None),)))
REPORT = Report(CHECK, {"dp": 2, "tp": 2}, Verdict.BROKEN, operators={"spec": 5, "impl": 7})
AVERAGED = Finding(
    "wrong-scale", "'g' is averaged where the sum is needed: it is 1/dp = 1/2 of what it should be", Span("m.py", 9), promises=("out",)
)  # fmt: skip
HALVED = Finding("wrong-scale", "'loss' is divided by 2", Span("m.py", 3), promises=("out",))
BY_TP = replace(HALVED, headline="'loss' is divided by tp = 2")

Ranks = tuple[int, int]


def said(
    at: Mapping[Ranks, Any], finding: Finding = AVERAGED, at_once: bool = False, calls: int = 12
) -> tuple[str, list[Ranks]]:
    """What is said of a finding, and the meshes that were recorded for it; ``at`` has the numbers on meshes and what is found there."""
    request = CheckRequest("checks.py", "c", None, "/")
    report = replace(REPORT, operators={"spec": 0, "impl": calls})
    recorded: list[Ranks] = []

    def answer(step: Any) -> Any:
        ranks = recorded[-1] if recorded else (0, 0)
        match step.method:
            case "capture":
                recorded.append((step.params["mesh"]["dp"], step.params["mesh"]["tp"]))
                return {"capture": b"", "summary": SUMMARY if recorded[-1] in at else TROUBLED}
            case "prove":
                return {"proof": "other", "outcome": to_plain(Outcome(at[ranks] is None, ()))}
            case "confirm":
                return to_plain(at[ranks][0])
            case "diagnose":
                return [to_plain(at[ranks][1])]
        raise AssertionError(step.method)

    asked = told_at_once if at_once else told_apart
    steps = asked(request, report, [finding], [diagnostic_of_finding(finding, report, request)])
    given = None
    while True:
        try:
            given = answer(steps.send(given))
        except StopIteration as end:
            (told,) = end.value
            return f"{told.span.line}: {told.message}", recorded


SCALED = Confirmation("differs", differing=("out",), ratios={"out": 0.5})
OTHERWISE = Confirmation("differs", differing=("out",))
ELSEWHERE = Confirmation("differs", differing=("k",), ratios={"k": 0.5})
AS_FOUND = f"9: {AVERAGED.headline}"
AS_WELL = "note: on {} it is wrong by a factor as well, and is told as there"


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ({(1, 2): None}, AS_FOUND),
        ({(1, 2): (Confirmation("equal"), HALVED)}, AS_FOUND),
        ({(1, 2): (ELSEWHERE, HALVED)}, AS_FOUND),  # another defect
        ({(1, 2): (SCALED, HALVED)}, f"3: 'loss' is divided by 2\n{AS_WELL.format('dp=1,tp=2')}"),
        ({(1, 2): (OTHERWISE, HALVED)}, f"{AS_FOUND}\nor: 'loss' is divided by 2 (line 3): on dp=1,tp=2 something is wrong as well"),
        ({}, f"{AS_FOUND}\nor: the program brings the factor in as a number: on dp=2,tp=2 both look the same"),
        ({(1, 2): (SCALED, BY_TP), (1, 1): None}, f"3: 'loss' is divided by tp = 2\n{AS_WELL.format('dp=1,tp=2')}"),
        ({(1, 2): (SCALED, BY_TP), (1, 1): (SCALED, HALVED)}, f"3: 'loss' is divided by 2\n{AS_WELL.format('dp=1,tp=1')}"),
    ],
)  # fmt: skip
def test_a_factor_is_that_of_an_axis_where_nothing_is_wrong_on_one_rank(at: Mapping[Ranks, Any], told: str) -> None:
    assert said(at)[0] == told


def test_what_names_no_axis_is_not_looked_at_elsewhere() -> None:
    assert said({}, HALVED) == ("3: 'loss' is divided by 2", [])


def test_of_a_large_program_both_accounts_are_told_at_once() -> None:
    text, recorded = said({(1, 2): None}, at_once=True, calls=LARGE + 1)
    assert text == f"{AS_FOUND}\nor: the program brings the factor in as a number: on dp=2,tp=2 both look the same"
    assert not recorded
    assert said({(1, 2): None}, at_once=True) == (AS_FOUND, [(1, 2)])


class Loss(nn.Module):
    def __init__(self, scale: float = 1.0, group: Any = None) -> None:
        super().__init__()
        self.layer, self.scale, self.group = nn.Linear(3, 2, bias=False), scale, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.layer(x).square().mean() * self.scale
        if self.group is not None:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG, group=self.group)
        return loss


def test_a_loss_that_is_halved_on_two_ranks_is_told_so_without_a_fix() -> None:
    report = gg.verify(
        Loss(),
        lambda mesh: Loss(0.5, mesh.get_group("dp")),
        inputs=(gg.tensor(6, 3),),
        in_relations={"dp": Shard(0)},
        mesh={"dp": 2},
        grads=False,
    )
    (told,) = report.diagnostics
    assert told.headline == "'loss' is multiplied by 1/2, which the specification does not do"
