"""Positions outside a table give no number, and only where they are used."""

from __future__ import annotations

import pytest
import torch

from graphguard.confirm.run.lookups import LOOKUPS

NAN = float("nan")
TABLE = torch.arange(1.0, 5.0, dtype=torch.float64)
ROWS = TABLE[:, None]


def look(op: str, *args: object) -> list[float]:
    return LOOKUPS[f"aten.{op}.default"](*args).reshape(-1).tolist()


def same(found: list[float], wanted: list[float]) -> bool:
    return torch.allclose(torch.tensor(found), torch.tensor(wanted), equal_nan=True)


@pytest.mark.parametrize(("at", "wanted"), [(3, 4.0), (4, NAN), (-1, NAN)])
def test_gather_and_embedding_count_from_no_end(at: int, wanted: float) -> None:
    index = torch.tensor([0, at])
    assert same(look("gather", TABLE, 0, index), [1.0, wanted])
    assert same(look("embedding", ROWS, index), [1.0, wanted])


def test_brackets_count_from_the_end() -> None:
    found = LOOKUPS["aten.index.Tensor"](TABLE, [torch.tensor([-1, -5, 4])])
    assert same(found.tolist(), [4.0, NAN, NAN])


@pytest.mark.parametrize(("at", "added", "wanted"), [(1, 5.0, 7.0), (4, 0.0, 2.0), (4, 5.0, NAN), (-1, 5.0, NAN)])
def test_what_is_added_outside_is_lost_with_its_line(at: int, added: float, wanted: float) -> None:
    lines = torch.stack([TABLE, TABLE])
    index, src = torch.tensor([[0], [at]]), torch.tensor([[1.0], [added]], dtype=torch.float64)
    found = LOOKUPS["aten.scatter_add.default"](lines, 1, index, src)
    assert found[0].tolist() == [2.0, 2.0, 3.0, 4.0]
    assert same([found[1, 1].item()], [wanted])


@pytest.mark.parametrize(("at", "gradient", "wanted"), [(1, 5.0, 5.0), (2, 0.0, 0.0), (2, 5.0, NAN), (-1, 5.0, NAN)])
def test_gradients_of_embeddings(at: int, gradient: float, wanted: float) -> None:
    grad = torch.tensor([[1.0], [gradient]], dtype=torch.float64)
    assert same(look("embedding_dense_backward", grad, torch.tensor([0, at]), 2, -1, False)[1:], [wanted])


def test_whole_numbers_have_no_such_number() -> None:
    with pytest.raises(IndexError):
        look("embedding", torch.tensor([[1], [2]]), torch.tensor([-1]))
