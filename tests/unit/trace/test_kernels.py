"""What the memo of shapes answers is what PyTorch answers: graphs are the same, to the last span, without it, with it empty and with it full."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from graphguard.ir.codec import graph_to_plain
from graphguard.trace.calls.kernels import Kernels
from graphguard.trace.calls.kinds import Kind, kind_of
from graphguard.trace.record import recorder
from graphguard.trace.record.operators import new_fake_mode

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = Path(__file__).parent


class _Asking(Kernels):
    """Asks PyTorch every time."""

    def _remembered(self, kind: Kind, args: Any, kwargs: Any) -> Any:
        return kind.operator(*args, **kwargs)


def snippets() -> list[str]:
    sys.path.insert(0, str(HERE))
    from snippets import SNIPPETS

    return list(SNIPPETS)


def text_of(program: Callable[..., Any], rank: int, ways: int) -> str:
    from gloo import table
    from programs import record

    trace = record(program, [table()], rank, {"w": ways})
    assert trace.graph is not None or trace.waiting, trace.troubles
    return "waits" if trace.graph is None else json.dumps(graph_to_plain(trace.graph), sort_keys=True)


def three_ways(monkeypatch: pytest.MonkeyPatch, record: Callable[[], Any]) -> tuple[Any, Any, Any]:
    monkeypatch.setattr(Kernels, "answers", {})
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "Kernels", _Asking)
        asked = record()
    assert not Kernels.answers
    return asked, record(), record()


@pytest.mark.parametrize("name", snippets())
def test_snippets_give_the_same_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from snippets import SNIPPETS, W

    def program(leaf: torch.Tensor) -> Any:
        x = leaf[dist.get_rank()].detach().requires_grad_()
        y = SNIPPETS[name](x)
        if not y.requires_grad:
            return y
        try:
            return y, torch.autograd.grad(y.sum(), x)[0]
        except RuntimeError:
            return y

    asked, empty, full = three_ways(monkeypatch, lambda: text_of(program, 1, W))
    assert asked == empty == full


class _Layer(nn.Module):
    """A decoder layer with dropout, a buffer that changes, and a branch on its number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.norm = nn.BatchNorm1d(4)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True)
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        hidden = torch.nn.functional.gelu(self.up(x))
        if self.number % 2:
            hidden = hidden * torch.sigmoid(hidden)
        return x + torch.nn.functional.dropout(self.down(hidden), 0.2) * self.calls


def test_a_model_with_its_optimizer_gives_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(*(_Layer(i) for i in range(3)))
        x = x[0, :, None, :].expand(8, 2, 4)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = torch.utils.checkpoint.checkpoint_sequential(model, 2, x, use_reentrant=False).float().sum()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return loss, *model.parameters()

    asked, empty, full = three_ways(monkeypatch, lambda: text_of(program, 0, 1))
    assert asked == empty == full
    assert len(Kernels.answers) > 50


def test_defaults_are_part_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> Any:
        found = []
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            found += [torch.arange(3) * 1.5, torch.ones(2), x.int() / 2]
        return found

    asked, empty, full = three_ways(monkeypatch, lambda: text_of(program, 0, 1))
    assert asked == empty == full
    assert "float64" in asked


def test_numbers_of_different_types_are_different_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x.int()
        return [y + 1, y + 1.0, y + True, y * 0, y * 0.0, y.sum(1), y.sum((1,)), y.sum(1, keepdim=True)]

    asked, empty, full = three_ways(monkeypatch, lambda: text_of(program, 0, 1))
    assert asked == empty == full


def test_what_changes_operands_is_always_asked() -> None:
    with new_fake_mode() as mode:
        kernels = Kernels(mode)
        before = dict(Kernels.answers)
        x = torch.empty(2, 3)
        aten = torch.ops.aten
        for _ in range(2):
            small = torch.empty(0)
            assert kernels.run(kind_of(aten.mul.out), (x, x), {"out": small}).shape == (2, 3)
            assert small.shape == (2, 3)
            y = torch.empty(2, 3)
            kernels.run(kind_of(aten.t_.default), (y,), {})
            assert y.shape == (3, 2)
        assert Kernels.answers == before


def test_results_are_the_operand_a_view_of_it_or_new() -> None:
    with new_fake_mode() as mode:
        kernels = Kernels(mode)
        aten = torch.ops.aten
        for _ in range(2):
            x, y = torch.empty(2, 3), torch.empty(2, 3)
            assert kernels.run(kind_of(aten.add_.Tensor), (x, y), {}) is x
            view = kernels.run(kind_of(aten.slice.Tensor), (x, 1, 1, 3), {})
            assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
            assert (view.storage_offset(), tuple(view.shape), view.stride()) == (1, (2, 2), (3, 1))
            fresh = kernels.run(kind_of(aten.add.Tensor), (x, y), {})
            assert fresh.untyped_storage()._cdata not in (x.untyped_storage()._cdata, y.untyped_storage()._cdata)
            assert fresh.device == torch.device("cpu")
            parts = kernels.run(kind_of(aten.split.Tensor), (x, 1), {})
            assert [part.storage_offset() for part in parts] == [0, 3]
            assert all(part.untyped_storage()._cdata == x.untyped_storage()._cdata for part in parts)


def test_operands_that_share_memory_are_another_question() -> None:
    noted: list[Any] = []
    with new_fake_mode() as mode:
        kernels = Kernels(mode, lambda func, *_: noted.append(func))
        aten = torch.ops.aten
        Kernels.answers.clear()
        for _ in range(2):
            x, y, other = torch.empty(2, 3), torch.empty(6), torch.empty(6)
            seen = x.view(6)
            like = kernels.run(kind_of(aten.expand_as.default), (y, other), {})
            assert like.untyped_storage()._cdata == y.untyped_storage()._cdata
            like = kernels.run(kind_of(aten.expand_as.default), (seen, x.view(6)), {})
            assert like.untyped_storage()._cdata == x.untyped_storage()._cdata
            assert kernels.run(kind_of(aten.add_.Tensor), (seen, seen), {}) is seen
            again = x.view(6)
            assert kernels.run(kind_of(aten.add_.Tensor), (seen, again), {}) is seen
        assert noted == [aten.expand_as.default] * 2 + [aten.add_.Tensor] * 2, "each is asked once"


def test_a_row_for_every_class_lies_behind_the_one_before_however_the_classes_lie() -> None:
    from programs import record

    def program(classes: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot(classes.t(), 5).view(-1)

    classes = torch.tensor([[0, 1, 2], [3, 4, 0]])
    assert program(classes).shape == (30,)
    assert record(program, (classes,)).graph is not None
