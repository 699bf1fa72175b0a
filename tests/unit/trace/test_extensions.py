"""C++ extensions that a program builds while it runs: one diagnostic, no compiler, and no lock that stays."""

import pytest
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

import graphguard as gg

pytest.importorskip("setuptools")  # of torch.utils.cpp_extension
SOURCE = "torch::Tensor twice(torch::Tensor x) { return x + x; }"


class Built(nn.Module):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        extension = load_inline("doubling", SOURCE, functions=["twice"], build_directory=self.folder)
        return extension.twice(x)


class OrNot(Built):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return super().forward(x)
        except Exception:  # noqa: BLE001 - as such programs do
            return x + x


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_a_build_is_told(tmp_path):
    report = gg.verify(Twice(), lambda mesh: Built(str(tmp_path)), (gg.tensor(3),), mesh={"tp": 2})
    (finding,) = report.diagnostics
    assert finding.rule == "unsupported-operator"
    assert "the program builds the C++ extension" in finding.message
    assert not (tmp_path / "lock").exists()


def test_a_program_that_can_do_without_goes_on(tmp_path):
    report = gg.verify(Twice(), lambda mesh: OrNot(str(tmp_path)), (gg.tensor(3),), mesh={"tp": 2})
    assert report.verdict is gg.Verdict.REFINES
