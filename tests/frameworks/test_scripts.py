"""Public training scripts as they are, and each with a planted mistake: `graphguard torchrun` proves the one and finds the other at its line.

`make scripts` fetches them, at the commits below; none of them is a part of this project.  torchtitan's trainer is the installed package's.  Of frameworks that have no script of their own, one in
the manner of their guides trains (``scripts``).
"""

import array
import importlib.util
import json
import os
import pickle
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(1800)]
FETCHED = Path(__file__).parents[2] / ".scripts"
REPOSITORIES = {
    "deepspeedai/DeepSpeedExamples": "45b4b7156c8794a3452a5a7d03dbd8d797068569",
    "NVIDIA/Megatron-LM": "55ac7082517c3878ae653c07c09c534b8aed49f6",
    "karpathy/nanoGPT": "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
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


#: What nanoGPT's configurator reads: a run that is small, on tokens that are made here.
NANO = """dataset, compile, dtype = "made", True, "float32"
n_layer, n_head, n_embd, block_size = 1, 2, 16, 8
batch_size, gradient_accumulation_steps, eval_iters = 2, 4, 1
"""


def tokens(folder: Path) -> None:
    """A small text, as nanoGPT reads it."""
    (folder / "small.py").write_text(NANO)
    data = folder / "data" / "made"
    data.mkdir(parents=True)
    drawn = random.Random(0)
    for name in ("train", "val"):
        (data / f"{name}.bin").write_bytes(array.array("H", [drawn.randrange(48) for _ in range(4000)]).tobytes())
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 48}))


#: Megatron-LM's options for a small model without fused kernels, on made tokens.
MEGATRON = (
    "pretrain_gpt.py --mock-data --split 90,5,5 --tokenizer-type NullTokenizer --vocab-size 31 --make-vocab-size-divisible-by 16 --num-layers 1 --hidden-size 8"
    " --num-attention-heads 2 --seq-length 4 --max-position-embeddings 4 --micro-batch-size 1 --global-batch-size 2 --train-iters 1 --lr 1e-3 --clip-grad 0"
    " --eval-interval 1 --eval-iters 1 --attention-dropout 0 --hidden-dropout 0 --transformer-impl local --distributed-backend gloo --no-persist-layer-norm"
    " --no-gradient-accumulation-fusion --no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion --no-rope-fusion"
)


def helpers(folder: Path) -> None:
    """The C++ helpers of Megatron's datasets as the installed package has them, in place of those that the script would compile."""
    found = importlib.util.find_spec("megatron.core.datasets")
    assert found is not None
    assert found.origin is not None
    datasets = folder / "megatron" / "core" / "datasets"
    for library in Path(found.origin).parent.glob("helpers_cpp*.so"):
        shutil.copy(library, datasets)
    (datasets / "Makefile").write_text("default:\n\ttrue\n")


def images(folder: Path) -> None:
    """A data set in place of CIFAR-10."""
    (folder / "torchvision.py").write_text(TORCHVISION)


#: A model, texts and a tokenizer that are made here, for torchtitan's trainer.
TINY = Path(__file__).parent / "titan_tiny.py"
TITAN = "-m torchtitan.train --module titan_tiny --config small --parallelism.spmd-backend partial_dtensor"


#: What a user of a framework writes: trained with it, or in its manner.
OURS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Mistake:
    """A text of a file that another replaces; ``rule`` and a part of the line where that is found."""

    file: str
    right: str
    wrong: str
    rule: str
    line: str


@dataclass(frozen=True)
class Case:
    """A training script.

    ``tree`` lies in ``repository`` (none: it is an installed package, or a file in ``OURS``) and is copied, with the files beside the script.  ``command`` are script and arguments, ``reference`` those for one rank.
    ``unknown`` is the operator because of which the script is not proved; none: it is.  ``makes`` writes what the script would download.
    """

    name: str
    repository: str
    tree: str
    command: str
    reference: str
    mistake: Mistake | None = None
    needs: tuple[str, ...] = ()
    unknown: str = ""
    makes: Callable[[Path], None] | None = None

    def __str__(self) -> str:
        return self.name


CASES = [
    Case(
        "deepspeed-cifar",
        "deepspeedai/DeepSpeedExamples",
        "training/cifar",
        "cifar10_deepspeed.py --dtype fp32",
        "",
        Mistake(
            "cifar10_deepspeed.py",
            "enumerate(trainloader)",
            "enumerate(torch.utils.data.DataLoader(trainset, batch_size=8))",
            "wrong-shard",
            "enumerate(torch.utils.data.DataLoader(trainset, batch_size=8))",
        ),
        ("deepspeed",),
        makes=images,
    ),
    *(
        Case(name, "karpathy/nanoGPT", "", "train.py small.py", "", mistake, makes=tokens)
        for name, mistake in {
            "nanogpt-one-seed": Mistake(
                "train.py", "seed_offset = ddp_rank", "seed_offset = 0", "wrong-shard", "torch.from_numpy((data[i:"
            ),
            "nanogpt-never-synchronised": Mistake(
                "train.py",
                "(micro_step == gradient_accumulation_steps - 1)",
                "(micro_step == gradient_accumulation_steps)",
                "gradient-not-reduced",
                "scaler.scale(loss).backward()",
            ),
        }.items()
    ),
    Case(
        "megatron-pretrain-tp",
        "NVIDIA/Megatron-LM",
        "megatron",
        f"{MEGATRON} --tensor-model-parallel-size 2",
        "--tensor-model-parallel-size 1",
        Mistake(
            "megatron/core/tensor_parallel/layers.py",
            "fusion\n        ctx.allreduce_dgrad = allreduce_dgrad",
            "fusion\n        ctx.allreduce_dgrad = allreduce_dgrad and sequence_parallel",
            "gradient-not-reduced",
            "grad_input = grad_output.matmul(weight)",
        ),
        ("megatron.core", "six"),
        makes=helpers,
    ),
    Case(
        "torchtitan-train-tp",
        "",
        "torchtitan",
        f"{TITAN} --parallelism.tensor-parallel-degree 2",
        "--parallelism.tensor-parallel-degree 1",
        needs=("torchtitan", "datasets"),
        unknown="scatter",
    ),
    Case(
        "torchtitan-train-fsdp",
        "",
        "torchtitan",
        TITAN,
        "--training.local-batch-size 4",
        Mistake(
            "torchtitan/trainer.py",
            "\n            dp_rank=batch_rank,",
            "\n            dp_rank=0,",
            "wrong-shard",
            "batch = next(data_iterator)",
        ),
        ("torchtitan", "datasets"),
        "scatter",
    ),
]


def ours(name: str, file: str, mistake: Mistake | None, *needs: str) -> Case:
    """A script of those here."""
    return Case(name, "", file, file, "", mistake, needs)


CASES += [
    ours(
        "transformers-trainer-loader-not-prepared",
        "trainer.py",
        Mistake(
            "trainer.py",
            "train_dataset=Texts(32))",
            "train_dataset=Texts(32))\n    trainer.get_train_dataloader = lambda: torch.utils.data.DataLoader(trainer.train_dataset, 2, collate_fn=trainer.data_collator)",
            "wrong-shard",
            "trainer.get_train_dataloader = lambda: torch.utils.data.DataLoader(",
        ),
        "transformers",
        "accelerate",
    ),
    ours(
        "accelerate-clipped-before-the-sum",
        "accelerate_loop.py",
        Mistake(
            "accelerate_loop.py",
            "if accelerator.sync_gradients:",
            "if True:",
            "nonlinear-on-partial",
            "accelerator.clip_grad_norm_(",
        ),
        "accelerate",
    ),
    ours(
        "accelerate-model-not-prepared",
        "accelerate_loop.py",
        Mistake(
            "accelerate_loop.py",
            "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            "optimizer, loader = accelerator.prepare(optimizer, loader)",
            "gradient-not-reduced",
            "functional.mse_loss(model(batch), target)",
        ),
        "accelerate",
    ),
    ours(
        "accelerate-never-synchronised",
        "accelerate_loop.py",
        Mistake(
            "accelerate_loop.py",
            "accelerator.accumulate(model)",
            "accelerator.no_sync(model)",
            "gradient-not-reduced",
            "accelerator.backward(loss)",
        ),
        "accelerate",
    ),
    ours(
        "lightning-fit",
        "lightning_fit.py",
        Mistake(
            "lightning_fit.py",
            "logger=False,",
            "logger=False, use_distributed_sampler=False,",
            "wrong-shard",
            "DataLoader(data, batch_size=4, shuffle=True)",
        ),
        "lightning",
    ),
    ours(
        "muon-not-averaged",
        "muon_shared.py",
        Mistake(
            "muon_shared.py",
            "for parameter in model.parameters():\n            dist.all_reduce",
            "for parameter in model.embedding.parameters():\n            dist.all_reduce",
            "gradient-not-reduced",
            ".backward()",
        ),
    ),
    ours(
        "muon-sent-by-one-rank",
        "muon_shared.py",
        Mistake("muon_shared.py", "src=place)", "src=0)", "wrong-relation", "dist.broadcast(update, src=0)"),
    ),
]


def fetch(folder: Path) -> None:
    """The repositories, without their history and their large files."""
    for name, commit in REPOSITORIES.items():
        target = folder / name
        if (target / ".git").is_dir():
            continue
        target.mkdir(parents=True)
        trees = sorted({case.tree for case in CASES if case.repository == name} - {""})
        for command in (
            ["init", "--quiet"],
            ["remote", "add", "origin", f"https://github.com/{name}"],
            *([["sparse-checkout", "set", *trees]] if trees else []),
            ["fetch", "--quiet", "--depth", "1", "--filter", "blob:none", "origin", commit],
            ["checkout", "--quiet", "FETCH_HEAD"],
        ):
            subprocess.run(["git", "-C", target, *command], check=True)


def laid_out(case: Case, folder: Path) -> None:
    """A copy of the case's files in a folder, in which its command is given."""
    for package in case.needs:
        pytest.importorskip(package)
    copied(case, folder)
    if case.makes is not None:
        case.makes(folder)


def copied(case: Case, folder: Path) -> None:
    """The case's own files, as they are."""
    if (OURS / case.tree).is_file():
        shutil.copy(OURS / case.tree, folder)
        return
    if case.repository:
        source = FETCHED / case.repository / case.tree
        if not source.is_dir():
            pytest.skip(f"{case.repository} is not there: make scripts")
        is_folder_of_script = (source / case.command.partition(" ")[0]).is_file()
        for file in (source if is_folder_of_script else source.parent).glob("*.py"):
            shutil.copy(file, folder)
    else:
        found = importlib.util.find_spec(case.tree)
        assert found is not None
        assert found.origin is not None
        source, is_folder_of_script = Path(found.origin).parent, False
        shutil.copy(TINY, folder)
        subprocess.run([sys.executable, TINY.name], cwd=folder, check=True)
    if not is_folder_of_script:
        shutil.copytree(source, folder / case.tree, ignore=shutil.ignore_patterns("__pycache__"))


def judged(case: Case, folder: Path) -> dict[str, object]:
    """What is said of the script in a folder."""
    options = ["--no-fix", "--nproc-per-node", "2", "--timeout", "1200", "--output-format", "json"]
    if case.reference:
        options += ["--reference-args", case.reference]
    command = [sys.executable, "-m", "graphguard.cli", "torchrun", *options, *shlex.split(case.command)]
    environment = os.environ | {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}  # which Megatron-LM asks for
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout, done.stderr
    (report,) = json.loads(done.stdout)["checks"]
    return report


@pytest.mark.parametrize("case", {case.command: case for case in CASES}.values(), ids=str)
def test_as_it_is(case: Case, tmp_path: Path) -> None:
    laid_out(case, tmp_path)
    report = judged(case, tmp_path)
    assert report["verdict"] == ("unknown" if case.unknown else "refines"), report["diagnostics"]
    if case.unknown:
        assert report["diagnostics"][0]["message"].startswith(f"{case.unknown} is not understood here")


@pytest.mark.parametrize("case", [case for case in CASES if case.mistake is not None], ids=str)
def test_with_a_planted_mistake(case: Case, tmp_path: Path) -> None:
    mistake = case.mistake
    assert mistake is not None
    laid_out(case, tmp_path)
    file = tmp_path / mistake.file
    text = file.read_text()
    assert text.count(mistake.right) == 1
    file.write_text(text.replace(mistake.right, mistake.wrong))
    report = judged(case, tmp_path)
    assert report["verdict"] == "broken", report["diagnostics"]
    (finding, *_) = report["diagnostics"]
    assert finding["rule"] == mistake.rule
    found = (tmp_path / finding["file"]).read_text().splitlines()
    assert mistake.line in found[finding["range"]["start"]["line"] - 1]


if __name__ == "__main__":
    fetch(FETCHED)
