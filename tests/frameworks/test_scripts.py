"""Public training scripts as they are, and each with a planted mistake: `graphguard torchrun` proves the one and finds the other at its line.

`make scripts` fetches them, at the commits below; none of them is a part of this project.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(1800)]
FETCHED = Path(__file__).parents[2] / ".scripts"
REPOSITORIES = {
    "deepspeedai/DeepSpeedExamples": "45b4b7156c8794a3452a5a7d03dbd8d797068569",
}
#: A data set that is made here, in place of one that would be downloaded.
TORCHVISION = """import sys, torch


class CIFAR10(torch.utils.data.Dataset):
    def __init__(self, root, train=True, download=False, transform=None):
        self.images = torch.randn(32, 3, 32, 32, generator=torch.Generator().manual_seed(int(train)))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], index % 10


def nothing(*_):
    return None


datasets = transforms = sys.modules[__name__]
Compose = ToTensor = Normalize = nothing
"""


@dataclass(frozen=True)
class Case:
    """A script of a repository, its arguments, and a text of it that the planted mistake replaces; ``rule`` and a part of the line where that is found."""

    repository: str
    script: str
    arguments: str
    right: str
    wrong: str
    rule: str
    line: str
    needs: str = ""

    def __str__(self) -> str:
        return self.script


CASES = [
    Case(
        "deepspeedai/DeepSpeedExamples",
        "training/cifar/cifar10_deepspeed.py",
        "--dtype fp32",
        "enumerate(trainloader)",
        "enumerate(torch.utils.data.DataLoader(trainset, batch_size=8))",
        "wrong-shard",
        "enumerate(torch.utils.data.DataLoader(trainset, batch_size=8))",
        "deepspeed",
    ),
]


def fetch(folder: Path) -> None:
    """The repositories, without their history and their large files."""
    for name, commit in REPOSITORIES.items():
        target = folder / name
        if (target / ".git").is_dir():
            continue
        target.mkdir(parents=True)
        paths = sorted({case.script.rpartition("/")[0] for case in CASES if case.repository == name})
        for command in (
            ["init", "--quiet"],
            ["remote", "add", "origin", f"https://github.com/{name}"],
            ["sparse-checkout", "set", *paths],
            ["fetch", "--quiet", "--depth", "1", "--filter", "blob:none", "origin", commit],
            ["checkout", "--quiet", "FETCH_HEAD"],
        ):
            subprocess.run(["git", "-C", target, *command], check=True)


def judged(case: Case, text: str, folder: Path) -> dict[str, object]:
    """What is said of a script whose text this is, beside the files that it has beside it."""
    source = FETCHED / case.repository / case.script
    for file in source.parent.glob("*.py"):
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "torchvision.py").write_text(TORCHVISION)
    (folder / source.name).write_text(text)
    options = ["--nproc-per-node", "2", "--timeout", "900", "--output-format", "json"]
    command = [sys.executable, "-m", "graphguard.cli", "torchrun", *options, source.name, *case.arguments.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    (report,) = json.loads(done.stdout)["checks"]
    return report


def text_of(case: Case) -> str:
    source = FETCHED / case.repository / case.script
    if not source.is_file():
        pytest.skip(f"{case.repository} is not there: make scripts")
    if case.needs:
        pytest.importorskip(case.needs)
    return source.read_text()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_it_is(case: Case, tmp_path: Path) -> None:
    report = judged(case, text_of(case), tmp_path)
    assert report["verdict"] == "refines", report["diagnostics"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_a_planted_mistake(case: Case, tmp_path: Path) -> None:
    text = text_of(case)
    assert text.count(case.right) == 1
    wrong = text.replace(case.right, case.wrong)
    report = judged(case, wrong, tmp_path)
    assert report["verdict"] == "broken", report["diagnostics"]
    (finding, *_) = report["diagnostics"]
    assert finding["rule"] == case.rule
    assert case.line in wrong.splitlines()[finding["range"]["start"]["line"] - 1]


if __name__ == "__main__":
    fetch(FETCHED)
