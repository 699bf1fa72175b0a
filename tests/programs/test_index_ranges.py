"""What look-ups need of their indices, told in words that a reader knows."""

import torch

import graphguard as gg


def test_indices_that_are_no_input_are_not_named() -> None:
    def drawn(table: torch.Tensor) -> torch.Tensor:
        return table[torch.randint(0, 9, (3,))]

    report = gg.verify(drawn, lambda mesh: drawn, (gg.tensor(9, 2),), mesh={"dp": 2})
    assert "indices that the specification computes lie inside the tables it looks them up in" in report.assumed
    assert not any("drawn as" in text for text in report.assumed)
