"""What is replaced in PyTorch behaves as PyTorch outside recordings."""

import torch

from graphguard.trace import patches


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
