"""What is replaced in PyTorch behaves as PyTorch outside recordings."""

import torch
from torch.nn import functional

from graphguard.trace.worlds import patches


def test_scripted_code_sees_the_names_around_it() -> None:
    patches.install()

    @torch.jit.script
    def doubled(x: int) -> int:
        return 2 * x

    @torch.jit.script
    class Scaled:
        def __init__(self, x: int) -> None:
            self.x = doubled(x)

    @torch.jit.script
    def scaled(x: int) -> int:
        return Scaled(x).x

    assert scaled(2) == 4


def test_scripted_code_calls_functions_that_are_replaced() -> None:
    patches.install()

    @torch.jit.script
    def dropped(x: torch.Tensor, training: bool) -> torch.Tensor:
        return functional.dropout(x, 0.5, training)

    @torch.jit.script
    def attended(x: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x)

    x = torch.ones(2, 3)
    assert torch.equal(dropped(x, False), x)
    assert set(dropped(x, True).flatten().tolist()) <= {0.0, 2.0}
    assert torch.allclose(attended(x), x)
