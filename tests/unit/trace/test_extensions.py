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


class Adam(nn.Module):
    """As DeepSpeed's FusedAdam calls its kernel."""

    def __init__(self, folder: str, mode: int) -> None:
        super().__init__()
        self.folder, self.mode = folder, mode

    def forward(self, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        kernels = load_inline("fused_adam", SOURCE, functions=["twice"], build_directory=self.folder)
        x, mean, square = x.clone(), torch.zeros_like(x), torch.zeros_like(x)
        skips = torch.zeros(1, dtype=torch.int32)
        lists = [[gradient], [x], [mean], [square]]
        kernels.multi_tensor_adam(2048, skips, lists, 0.1, 0.9, 0.99, 1e-8, 1, self.mode, 1, 0.01)
        return torch.stack([x, mean, square])


class Plain(nn.Module):
    """PyTorch's own, Adam or AdamW."""

    def __init__(self, kind: type[torch.optim.Adam]) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        parameter = nn.Parameter(x.clone())
        parameter.grad = gradient
        optimizer = self.kind([parameter], lr=0.1, betas=(0.9, 0.99), weight_decay=0.01)
        optimizer.step()
        state = optimizer.state[parameter]
        return torch.stack([parameter.detach(), state["exp_avg"], state["exp_avg_sq"]])


@pytest.mark.parametrize(("kind", "mode"), [(torch.optim.Adam, 0), (torch.optim.AdamW, 1), (torch.optim.AdamW, 0)])
def test_one_that_is_written_here_is_computed(tmp_path, kind, mode):
    folder = tmp_path / "fused_adam"  # PyTorch's own build folders have the name of what they build
    folder.mkdir()
    inputs = (gg.tensor(3), gg.tensor(3))
    report = gg.verify(Plain(kind), lambda mesh: Adam(str(folder), mode), inputs, mesh={"tp": 2}, grads=False)
    right = (kind is torch.optim.AdamW) == bool(mode)
    assert report.verdict is (gg.Verdict.REFINES if right else gg.Verdict.BROKEN), report.diagnostics
    assert any("the C++ extension 'fused_adam' computes what is known of it" in line for line in report.assumed)
