"""``graphguard torchrun``: what it takes, what it refuses, and its verdicts on small scripts."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.driver import LoadedProver, run_script
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.cli import main
from graphguard.report.diagnostics import Report, Verdict
from graphguard.trace.scripts.script import Script

HEAD = """import os, sys
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(8, 3), torch.randn(8, 2))
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
"""
LOOP = """loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False), num_workers=2)
for x, y in loader:
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    optimizer.step()
    print(f"loss {loss.item():.3f}")
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerClient]:
    with WorkerClient(Configuration(Path.cwd())) as client:
        yield client


class Scripts:
    """Writes scripts and has them judged by one worker."""

    def __init__(self, folder: Path, worker: WorkerClient) -> None:
        self.folder = folder
        self._worker = worker

    def judge(self, text: str, *arguments: str, package: str = "", steps: int = 1, seconds: float = 200.0) -> Report:
        place = self.folder / package
        place.mkdir(exist_ok=True)
        (place / "train.py").write_text(text)
        (self.folder / "scratch").mkdir(exist_ok=True)
        module = f"{package}.train" if package else ""
        scratch = str(self.folder / "scratch")
        script = Script(
            str(place / "train.py"), str(self.folder), arguments, arguments, module, steps=steps, scratch=scratch
        )
        configuration = Configuration(self.folder, timeout=seconds)
        return run_script(script, {"ranks": 2}, configuration, self._worker, LoadedProver(False), None)


@pytest.fixture
def scripts(tmp_path: Path, worker: WorkerClient) -> Scripts:
    return Scripts(tmp_path, worker)


def place(report: Report, text: str) -> str:
    """The line of the first finding."""
    (found, *_) = report.diagnostics
    assert found.span is not None
    return text.splitlines()[found.span.line - 1].strip()


def test_a_right_script_is_proved(scripts: Scripts) -> None:
    more = "    open('log.txt', 'w').write('done')\n"
    report = scripts.judge(HEAD + LOOP + more, package="package", steps=2)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert "one rank alone reads 2 batches at once, as all ranks together do" in report.assumed
    assert not (scripts.folder / "log.txt").exists()


@pytest.mark.slow  # two whole scripts
@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("model = nn.Linear(3, 2)\n", "torch.manual_seed(rank)\nmodel = nn.Linear(3, 2)\n", "model = nn.Linear(3, 2)"),
        (
            "loader =",
            "model = nn.parallel.DistributedDataParallel(model)\nwith torch.no_grad():\n    model.module.weight.mul_(1 + rank)\nloader =",
            "model.module.weight.mul_(1 + rank)",
        ),
    ],
    ids=["own-seed", "behind-a-broadcast"],
)
def test_ranks_that_start_from_other_parameters(scripts: Scripts, old: str, new: str, line: str) -> None:
    text = (HEAD + LOOP).replace(old, new)
    report = scripts.judge(text)
    assert report.verdict is Verdict.BROKEN, report.diagnostics
    assert "starts with other numbers on rank 1 than on rank 0" in report.diagnostics[0].message
    assert place(report, text) == line
    right = text.replace("(rank)", "(7)").replace("1 + rank", "2")
    report = scripts.judge(right)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert not any("start alike" in line for line in report.assumed)


@pytest.mark.slow  # a whole script
def test_a_checkpoint_is_written_and_read(scripts: Scripts) -> None:
    torch.save({"weight": torch.ones(2, 3), "bias": torch.zeros(2)}, scripts.folder / "start.pt")
    text = (
        HEAD
        + "model.load_state_dict(torch.load('start.pt'))\nfor p in model.parameters():\n    dist.broadcast(p.data, 0)\n"
        + LOOP
    )
    text += "    torch.save(model.state_dict(), 'last.pt')\n    model.load_state_dict(torch.load('last.pt'))\n"
    report = scripts.judge(text, steps=2)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert not (scripts.folder / "last.pt").exists()


@pytest.mark.slow  # a whole script
def test_ranks_that_read_the_same_and_use_their_own_part(scripts: Scripts) -> None:
    text = (HEAD + LOOP).replace(
        "for x, y in loader:\n", "for x, y in loader:\n    x, y = x.chunk(world)[rank], y.chunk(world)[rank]\n"
    )
    text = text.replace(", sampler=DistributedSampler(data, shuffle=False)", "").replace("batch_size=2", "batch_size=4")
    text = text.replace("loader =", "model = nn.parallel.DistributedDataParallel(model)\nloader =")
    text = text.replace("        dist.all_reduce(parameter.grad)\n        parameter.grad /= world\n", "        pass\n")
    assert scripts.judge(text).verdict is Verdict.REFINES
    whole = text.replace(".chunk(world)[rank]", ".chunk(world)[0]")
    dropped = whole.replace("(model(x) - y)", "(nn.functional.dropout(model(x), 0.5) - y)")
    assert dropped != whole
    for same in (whole, dropped):  # what a rank drops is no other sample
        assert "read the same samples" in scripts.judge(same).diagnostics[0].message


@pytest.mark.slow  # a whole script
def test_losses_that_add_up_are_no_mistake(scripts: Scripts) -> None:
    text = (
        (HEAD + LOOP)
        .replace(".square().mean()", ".square().sum() / 8")
        .replace("        parameter.grad /= world\n", "")
    )
    report = scripts.judge(text)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert any("the loss: the ranks' own neither are it nor average to it" in line for line in report.not_compared)


@pytest.mark.slow  # a whole script
def test_a_step_before_anything_was_differentiated_is_none(scripts: Scripts) -> None:
    """As wrappers make an optimizer make its state: with gradients of zero."""
    early = """for parameter in model.parameters():
    parameter.grad = torch.zeros_like(parameter)
optimizer.step()
"""
    report = scripts.judge(HEAD + early + LOOP)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert "loss" in report.relations
    text = HEAD + early + LOOP.replace("        dist.all_reduce(parameter.grad)\n", "")
    report = scripts.judge(text)
    assert report.verdict is Verdict.BROKEN, report.assumed


DRAWN = """import os, sys
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(105 + rank)
tokens = np.arange(40)


def batch():
    starts = torch.randint(len(tokens) - 2, (2,))
    return torch.stack([torch.from_numpy(tokens[start : start + 2]) for start in starts])


model = nn.Sequential(nn.Embedding(40, 3), nn.Linear(3, 40))
if rank == 0:
    with torch.no_grad():
        worst = model(batch()).logsumexp(-1).mean()
    while worst > 3.0:
        worst = worst / 2
    if worst > 1e9:
        sys.exit(1)
    if worst < 1.5:
        print("a good start")
    if worst.item() < 0:
        print("below zero")
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 4 // world
for step in range(steps):
    read = batch()
    loss = nn.functional.cross_entropy(model(read).flatten(0, 1), read.flatten()) / steps
    loss.backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
    parameter.grad /= world
optimizer.step()
"""


@pytest.mark.slow  # a whole script
def test_what_a_script_asks_before_it_trains_is_answered_and_told(scripts: Scripts) -> None:
    """With a file so short that one rank draws a sample twice."""
    report = scripts.judge(DRAWN)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    told = [line.partition(":")[0] for line in report.assumed if line.startswith("before training")]
    assert told == [
        f'before training, "{condition}" in train.py {holds}'
        for condition, holds in (
            ("worst < 1.5", "holds"),
            ("worst > 1e9", "does not hold"),
            ("worst > 3.0", "does not hold"),
            ("worst.item() < 0", "holds"),
        )
    ]


@pytest.mark.slow  # a whole script
@pytest.mark.parametrize(
    ("old", "new", "rule", "line"),
    [
        ("torch.manual_seed(105 + rank)", "torch.manual_seed(105)", "wrong-shard", "torch.from_numpy"),
        ("    dist.all_reduce(parameter.grad)\n", "", "missing-reduction", "parameter.grad /= world"),
        ("/ steps", "/ 4", "wrong-scale", "parameter.grad /= world"),
    ],
    ids=["one-seed", "not-reduced", "divided-twice"],
)
def test_mistakes_in_a_script_that_draws_are_found(scripts: Scripts, old: str, new: str, rule: str, line: str) -> None:
    assert DRAWN.count(old) == 1
    text = DRAWN.replace(old, new)
    report = scripts.judge(text)
    assert (report.verdict, report.diagnostics[0].rule) == (Verdict.BROKEN, rule), report.diagnostics
    assert line in place(report, text)


def test_a_batch_that_decides_before_the_first_step_is_no_evaluation(scripts: Scripts) -> None:
    """Each rank's own rows would decide, where one rank alone decides by all."""
    report = scripts.judge(
        HEAD
        + LOOP.replace("    optimizer.zero_grad()\n", "    x = -x if x.sum() > 0 else x\n    optimizer.zero_grad()\n")
    )
    assert report.verdict is None
    assert report.diagnostics[0].message.startswith("the program needs a number that depends on its inputs")


CLIPPED = LOOP.replace(
    "    optimizer.step()\n",
    """    norm = sum(parameter.grad.square().sum() for parameter in model.parameters()).sqrt()
    scale = 0.5 / norm.item()
    if scale < 1.0:
        for parameter in model.parameters():
            parameter.grad *= scale
    optimizer.step()
""",
)


@pytest.mark.slow  # a whole script
def test_a_branch_that_all_ranks_decide_alike_is_recorded_one_way(scripts: Scripts) -> None:
    report = scripts.judge(HEAD + CLIPPED)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert any('"scale < 1.0" in train.py holds, on every rank' in line for line in report.assumed)


LAYERED = HEAD.replace(
    "model = nn.Linear(3, 2)\n",
    """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        x = x * self.weight
        return x.relu() if self.weight.sum().item() > 0 else x


model = nn.Sequential(Layer(), Layer(), Layer(), nn.Linear(3, 2))
""",
)


@pytest.mark.slow  # a whole script
def test_every_layer_asks_for_its_own_branch(scripts: Scripts) -> None:
    """Layers that are alike are recorded once, but for branches: three layers and two batches make six that are compared."""
    report = scripts.judge(LAYERED + LOOP, steps=2)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert sum(name.startswith("the branch on") for name in report.relations) == 6


@pytest.mark.slow  # a whole script
def test_a_norm_of_each_rank_s_own_gradients_decides(scripts: Scripts) -> None:
    reduced = "    for parameter in model.parameters():\n        dist.all_reduce(parameter.grad)\n        parameter.grad /= world\n"
    assert CLIPPED.count(reduced) == 1
    text = HEAD + CLIPPED.replace(reduced, "").replace("    optimizer.step()\n", f"{reduced}    optimizer.step()\n")
    report = scripts.judge(text)
    assert report.verdict is Verdict.BROKEN
    assert "norm" in place(report, text)


@pytest.mark.parametrize(
    ("condition", "verdict", "words"),
    [
        (
            "loss.item() < best",
            Verdict.UNKNOWN,
            'neither proved nor refuted: the branch on "loss.item() < best" at train.py:',
        ),
        (
            "rank == 1 and loss.item() < best",
            None,
            'the branch on "loss.item() < best" at train.py:19 is taken by rank 1, and not by one rank alone',
        ),
    ],
    ids=["of-its-own-rows", "of-one-rank"],
)
def test_a_branch_that_ranks_decide_by_themselves_proves_nothing(
    scripts: Scripts, condition: str, verdict: Verdict | None, words: str
) -> None:
    asked = f"    if {condition}:\n        best = loss.item()\n    loss.backward()\n"
    text = HEAD + "best = 3.0\n" + LOOP.replace("    loss.backward()\n", asked)
    report = scripts.judge(text)
    assert report.verdict is verdict
    assert report.diagnostics[0].message.startswith(words)


ONE_READER = """from torch.autograd import Variable
batches = iter(DataLoader(data, batch_size=4)) if rank == 0 else None
for _ in range(2):
    x, y = next(batches) if rank == 0 else (torch.empty(4, 3), torch.empty(4, 2))
    for batch in (x, y):
        dist.broadcast(batch, 0)
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    Variable._execution_engine.run_backward(
        tensors=(loss,), grad_tensors=(torch.ones_like(loss),), keep_graph=False, create_graph=False, inputs=(),
        allow_unreachable=True, accumulate_grad=True,
    )
    optimizer.step()
"""


def test_one_rank_reads_for_all_and_calls_the_engine_itself(scripts: Scripts) -> None:
    report = scripts.judge(HEAD + ONE_READER)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert "loss" in report.relations
    text = HEAD + ONE_READER.replace("dist.broadcast(batch, 0)", "dist.broadcast(batch * 2, 0)")
    report = scripts.judge(text)
    assert report.verdict is not Verdict.REFINES, report.assumed


COPIES = HEAD.replace(
    "optimizer = torch.optim.SGD(model.parameters(),",
    "copies = [one.detach().double().requires_grad_() for one in model.parameters()]\noptimizer = torch.optim.SGD(copies,",
) + (
    LOOP.replace(
        "    optimizer.step()\n",
        """    for copy, parameter in zip(copies, model.parameters()):
        copy.grad = parameter.grad.double()
    optimizer.step()
    with torch.no_grad():
        for copy, parameter in zip(copies, model.parameters()):
            parameter.copy_(copy)
""",
    )
)


@pytest.mark.slow  # a whole script
def test_copies_are_trained_and_parameters_follow(scripts: Scripts) -> None:
    report = scripts.judge(COPIES)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert "gradients and state of SGD where it trains copies of parameters" in report.not_compared
    text = COPIES.replace("        parameter.grad /= world\n", "")
    report = scripts.judge(text)
    assert report.verdict is Verdict.BROKEN, report.assumed


@pytest.mark.slow  # a whole script
def test_a_warm_up_that_begins_with_nothing_is_told(scripts: Scripts) -> None:
    text = (HEAD + LOOP).replace("lr=0.1", "lr=0.0")
    assert any("--steps 2 records more" in line for line in scripts.judge(text).cautions)
    text = text.replace("    optimizer.step()\n", "    optimizer.step()\n    optimizer.param_groups[0]['lr'] = 0.1\n")
    assert not any("--steps" in line for line in scripts.judge(text, steps=2).cautions)


AHEAD = (
    HEAD
    + """order = [3, 0, 1, 2, 4, 5] if world == 1 else [[5, 4, 3, 0], [1, 2, 6, 7]][rank]
batches = iter(DataLoader(data, batch_size=2, sampler=order))
x, y = next(batches)
later = next(batches)
(model(x) - y).square().mean().backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
    parameter.grad /= world
optimizer.step()
"""
)


def test_what_is_read_ahead_is_not_taken_for_another_item_that_stands_for_it(scripts: Scripts) -> None:
    report = scripts.judge(AHEAD)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert any("which samples come first is chance" in line for line in report.assumed)


def test_kernels_that_are_imported_without_asking_are_names(scripts: Scripts) -> None:
    (scripts.folder / "kernels.py").write_text("import triton\n\n\n@triton.jit\ndef kernel(x):\n    pass\n")
    text = HEAD.replace("import torch\n", "import torch, kernels\n", 1) + LOOP
    assert scripts.judge(text).verdict is Verdict.REFINES


def test_samples_under_a_wrapper_that_averages_are_its_ranks_own(scripts: Scripts) -> None:
    wrapped = HEAD.replace(
        "optimizer =",
        "from torch.distributed.fsdp import FullyShardedDataParallel\nmodel = FullyShardedDataParallel(model.cuda())\noptimizer =",
    )
    text = (
        wrapped
        + """loader = DataLoader(data, batch_size=2)
for x, y in loader:
    (model(x.cuda()) - y.cuda()).square().mean().backward()
    optimizer.step()
"""
    )
    report = scripts.judge(text)
    assert report.verdict is Verdict.BROKEN, report.assumed
    assert report.diagnostics[0].rule == "wrong-shard"
    assert place(report, text).startswith("loader =")


@pytest.mark.parametrize(
    ("old", "new", "rule", "line"),
    [
        ("        parameter.grad /= world\n", "", "wrong-scale", "dist.all_reduce(parameter.grad)"),
        ("shuffle=False)", "num_replicas=4, shuffle=False)", "wrong-shard", "loader = DataLoader("),
    ],
    ids=["not divided", "a sampler for four ranks"],
)
def test_mistakes_are_found_at_their_line(scripts: Scripts, old: str, new: str, rule: str, line: str) -> None:
    text = HEAD + LOOP
    assert old in text
    text = text.replace(old, new)
    report = scripts.judge(text)
    assert report.verdict is Verdict.BROKEN, report.diagnostics
    assert report.diagnostics[0].rule == rule
    assert place(report, text).startswith(line)


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        (HEAD + "print('nothing')\n", "ended without a step of an optimizer", "import os, sys"),
        (HEAD + "sys.exit('no data')\n", "called sys.exit('no data')", "sys.exit('no data')"),
        (HEAD + "name = input('run: ')\n", "reads standard input", "name = input('run: ')"),
        (
            HEAD + "import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)\n",
            "starts processes of its own",
            "mp.spawn(print, nprocs=2)",
        ),
        (
            HEAD + "import subprocess\nsubprocess.run([sys.executable, 'worker.py'])\n",
            "starts processes of its own",
            "subprocess.run([sys.executable",
        ),
        (HEAD + "if os.fork() == 0:\n    sys.exit()\n", "starts processes of its own", "if os.fork() == 0:"),
        (HEAD + "for line in sys.stdin:\n    print(line)\n", "reads standard input", "for line in sys.stdin:"),
        (
            HEAD + "import urllib.request\nurllib.request.urlopen('http://example.org')\n",
            "asks another machine",
            "urllib.request.urlopen('http://example.org')",
        ),
        (HEAD + "model.to('xpu')\n", "Error", "model.to('xpu')"),
        (HEAD + "raise ValueError('no such config')\n", "ValueError: no such config", "raise ValueError("),
        (
            HEAD + "try:\n    import absent\nexcept ImportError as error:\n    raise OSError('no data') from error\n",
            "note: caused by ModuleNotFoundError: No module named 'absent'",
            "raise OSError('no data') from error",
        ),
        (HEAD + "os.remove(__file__)\n", "which it did not make", "os.remove(__file__)"),
    ],
    ids=[
        "no step",
        "exit",
        "input",
        "spawn",
        "another Python",
        "fork",
        "standard input",
        "download",
        "device",
        "raises",
        "raises from",
        "removes",
    ],
)
def test_what_a_script_cannot_do_is_one_diagnostic(scripts: Scripts, text: str, words: str, line: str) -> None:
    report = scripts.judge(text)
    assert report.verdict is None
    assert len(report.diagnostics) == 1, report.diagnostics
    assert words in report.diagnostics[0].message
    assert place(report, text).startswith(line)


@pytest.mark.slow  # a whole script
def test_a_script_that_does_not_end_is_stopped_at_its_line(scripts: Scripts) -> None:
    text = HEAD + "while True:\n    optimizer.zero_grad()\n"
    report = scripts.judge(text, seconds=25.0)
    assert report.verdict is None
    assert "did not finish in 25 s" in report.diagnostics[0].message
    assert "--timeout" in report.diagnostics[0].message
    assert place(report, text) in ("while True:", "optimizer.zero_grad()")


@pytest.mark.slow  # a whole script
def test_a_script_that_takes_all_memory_is_stopped_at_its_line(scripts: Scripts) -> None:
    text = HEAD + "held = []\nwhile True:\n    held.append(bytearray(1 << 28))\n"
    report = scripts.judge(text)
    assert report.verdict is None
    assert "ran out of memory" in report.diagnostics[0].message
    assert place(report, text).startswith("held.append")


@pytest.mark.parametrize("command", [["-m", "package.train"], ["package/train.py"]], ids=["module", "script"])
def test_the_project_is_the_folder_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """What lies beside the script's package is the user's own as well, and both are told by their places in that folder."""
    text = HEAD + "sys.path.insert(0, os.getcwd())\nimport sums\n" + LOOP.replace("dist.all_reduce(", "sums.total(")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(text)
    (tmp_path / "sums.py").write_text(
        "import torch.distributed as dist\n\n\ndef total(gradient):\n    dist.all_reduce(gradient, op=dist.ReduceOp.MAX)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["torchrun", "--no-fix", "--nproc-per-node", "2", "--output-format", "json", *command]) == 1
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    finding = check["diagnostics"][0]
    assert (finding["file"], finding["related"][0]["file"]) == ("package/train.py", "sums.py")


def test_other_programs_are_told(scripts: Scripts) -> None:
    text = HEAD + "import subprocess\nsubprocess.run(['true'])\nos.system('uname > /dev/null')\n" + LOOP
    report = scripts.judge(text)
    assert report.verdict is Verdict.REFINES, report.diagnostics
    assert any("which write where they will: true" in line for line in report.not_compared)


def test_a_step_in_a_library_is_told_at_the_script_s_line(scripts: Scripts) -> None:
    """The library's line is the second place."""
    package = scripts.folder / "site-packages" / "trainers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "def fit(model, optimizer, batches):\n"
        "    for x, y in batches:\n"
        "        (model(x) - y).square().mean().backward()\n"
        "        optimizer.step()\n"
    )
    path = f"sys.path.insert(0, {str(package.parent)!r})\n"
    loader = "loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))\n"
    text = HEAD + path + "import trainers\n" + loader + "trainers.fit(model, optimizer, loader)\n"
    report = scripts.judge(text)
    assert report.verdict is Verdict.BROKEN, report.assumed
    finding = report.diagnostics[0]
    assert place(report, text) == "trainers.fit(model, optimizer, loader)"
    assert any(one.span.file == str(package / "__init__.py") for one in finding.related)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nproc-per-node", "2", "missing.py"], "there is no such script; there are near.py"),
        (["--nproc-per-node", "2", "-m", "missing"], "there is no such module"),
        (["--nproc-per-node", "2", "."], "is a folder"),
        (["--nnodes", "2", "--nproc-per-node", "2", "near.py"], "one node"),
    ],
)
def test_a_command_that_names_no_script(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    (tmp_path / "near.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["torchrun", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_scratch_takes_what_is_written(tmp_path: Path) -> None:
    """In a process of its own: the functions of ``os`` are replaced for good."""
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "kept.txt").chmod(0o644)
    code = f"""
import os
from graphguard.trace.scripts.refusals import Scratch
scratch = Scratch({str(tmp_path / "scratch")!r})
scratch.install()
os.chdir({str(tmp_path)!r})
os.makedirs("out/deep", exist_ok=True)
open("out/deep/a.txt", "w").write("a")
open("kept.txt", "a").write(" more")
assert os.path.exists("out/deep/a.txt") and open("kept.txt").read() == "kept more"
os.rename("out/deep/a.txt", "out/deep/b.txt")
assert os.listdir("out/deep") == ["b.txt"]
os.chmod("kept.txt", 0o600)
os.truncate("kept.txt", 1)
import shutil
shutil.rmtree("out")
assert not os.path.exists("out")
print(scratch.files())
"""
    (tmp_path / "scratch").mkdir()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    assert os.waitpid(pid, 0)[1] == 0
    assert (tmp_path / "kept.txt").read_text() == "kept"
    assert (tmp_path / "kept.txt").stat().st_mode & 0o777 == 0o644
    assert not (tmp_path / "out").exists()
