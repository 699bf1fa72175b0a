"""Both programs side by side: rows, the tree of modules, classes of ranks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import graphguard as gg
from graphguard.checks.explorer.drawing import picture
from graphguard.checks.explorer.outline import outline
from graphguard.checks.explorer.rows import Group, Picture, Row
from graphguard.checks.explorer.weaving import alike, rising, woven
from graphguard.refine.proving.prove import prove
from tests.unit.checks.conftest import Record


class MLP(nn.Module):
    def __init__(self, hidden: int, group: Any = None, *, reduced: bool = True) -> None:
        super().__init__()
        self.group, self.reduced = group, reduced
        self.up = nn.Linear(4, hidden, bias=False)
        self.down = nn.Linear(hidden, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(torch.relu(self.up(x)))
        if self.group is not None and self.reduced:
            dist.all_reduce(y, group=self.group)
        return y


class Stack(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sin(layer(x))
        return x


def drawn(record: Record, broken: int | None, ranks: int = 2, *, grads: bool = False) -> Picture:
    """Three layers side by side; in one the sum over the ranks is left out."""

    def build(mesh: Any) -> gg.Refinement:
        group = mesh.get_group("tp")
        layers: list[nn.Module] = [MLP(8 // ranks, group, reduced=index != broken) for index in range(3)]
        return gg.Refinement(Stack([MLP(8) for _ in range(3)]), Stack(layers), (gg.tensor(3, 4),), grads=grads)

    capture = record(build, {"tp": ranks})
    return picture(capture, prove(capture))


def at(shown: Picture, module: str, operator: str) -> tuple[int, Row]:
    """The only row of a module in which some program has an operator, with its number."""
    ((number, row),) = [
        (number, row)
        for number, row in enumerate(shown.rows)
        if row.module == module
        and any(
            cell is not None and f"aten.{operator}.default" in shown.sites[cell.site].operators for cell in row.cells
        )
    ]
    return number, row


def test_tensors_in_relation_share_a_row_with_their_layout_in_words(record: Record) -> None:
    shown = drawn(record, None)
    assert {row.state for row in shown.rows} == {"proved"}
    _, relu = at(shown, "layers.1", "relu")
    assert all(cell is not None for cell in relu.cells)
    assert (relu.layout, relu.relation.partition("(")[0]) == ("Shard(1) over tp", "concat")
    assert [cell.shape for cell in relu.cells if cell is not None] == [(3, 8), (3, 4), (3, 4)]
    partial = next(row for row in shown.rows if row.layout == "Partial(sum) over tp")
    assert partial.cells[0] is None


def test_a_row_is_broken_where_relation_ends_and_off_after_it(record: Record) -> None:
    shown = drawn(record, broken=1)
    number, sine = next((n, row) for n, row in enumerate(shown.rows) if row.state == "broken")
    assert all(cell is not None and shown.sites[cell.site].operators == ("aten.sin.default",) for cell in sine.cells)
    down, row = at(shown, "layers.1.down", "mm")
    assert (row.state, row.layout) == ("proved", "Partial(sum) over tp")
    assert down in sine.reads
    after = [row.state for row in shown.rows[number + 1 :] if row.reads]
    assert set(after) == {"off"}


def test_inputs_stand_before_what_reads_them(record: Record) -> None:
    shown = drawn(record, None)
    for number, row in enumerate(shown.rows):
        assert all(read < number for read in row.reads)
    number, up = at(shown, "layers.0.up", "mm")
    names = {cell.name for read in up.reads for cell in shown.rows[read].cells if cell is not None}
    assert names == {"x", "layers.0.up.weight"}


def test_ranks_that_compute_the_same_are_of_one_class(record: Record) -> None:
    assert drawn(record, None, ranks=4).ranks == ((0, 1, 2, 3),)

    def build(mesh: Any) -> gg.Refinement:
        def impl(x: torch.Tensor) -> torch.Tensor:
            return x + 1 if mesh.get_rank() else 1 + x * 1

        return gg.Refinement(lambda x: x + 1, impl, (gg.tensor(4),), grads=False)

    capture = record(build, {"tp": 3})
    assert picture(capture, prove(capture)).ranks == ((0,), (1, 2))


def test_the_tree_has_phases_and_modules(record: Record) -> None:
    shown = drawn(record, None, grads=True)
    names = [(group.depth, group.name) for group in shown.groups]
    assert [name for depth, name in names if depth == 0] == ["forward", "backward"]
    assert [name for depth, name in names if depth == 1][:3] == ["layers.0", "layers.1", "layers.2"]
    assert (2, "up") in names
    assert all(group.proved <= group.end - group.start for group in shown.groups)


def row(module: str, phase: str = "forward", state: Any = "proved") -> Row:
    return Row(module, phase, state, "", "", ())


def test_an_outline_joins_what_holds_one_module_alone_and_leaves_single_rows() -> None:
    rows = [row("a.b.c"), row("a.b.d", state="off"), row("a.b.d"), row(""), row("e.f"), row("e.f"), row("g")]
    assert outline(rows) == (
        Group("a.b", 0, 0, 3, 2),
        Group("d", 1, 1, 3, 1),
        Group("e.f", 0, 4, 6, 2),
    )
    assert outline([]) == ()


@pytest.mark.parametrize(
    ("pairs", "kept"),
    [
        ([(0, 1), (1, 0), (2, 2)], 2),
        ([(0, 3), (1, 0), (2, 1), (3, 2)], 3),
        ([(0, 0), (0, 1), (1, 1)], 2),
        ([], 0),
    ],
)
def test_the_most_pairs_that_cross_no_other(pairs: list[tuple[int, int]], kept: int) -> None:
    found = rising(pairs)
    assert len(found) == kept
    assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(found))


def test_both_sequences_keep_their_order_and_share_what_belongs_together() -> None:
    equal = alike(lambda one: [one], lambda one: one)
    rows = woven("abcd", "bxdy", [equal])
    assert rows == [("a", None), ("b", "b"), ("c", None), (None, "x"), ("d", "d"), (None, "y")]
