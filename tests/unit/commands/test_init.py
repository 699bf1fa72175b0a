import pytest

from graphguard.cli import main


def test_a_new_project_checks_at_once(tmp_path, monkeypatch, capsys):
    assert main(["init", str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 0
    assert "checks/first_check.py::column_linear  tp=2  refines" in capsys.readouterr().out


def test_what_is_there_is_left_alone(tmp_path, capsys):
    (tmp_path / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["mine.py"]')
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "first_check.py").write_text("mine")
    assert main(["init", str(tmp_path)]) == 0
    assert (tmp_path / "pyproject.toml").read_text() == '[tool.graphguard]\nchecks = ["mine.py"]'
    assert (tmp_path / "checks" / "first_check.py").read_text() == "mine"


@pytest.mark.parametrize("before", ["[project]\nname = 'x'\n", "[project]\nname = 'x'", ""])
def test_a_section_is_added(tmp_path, before):
    (tmp_path / "pyproject.toml").write_text(before)
    assert main(["init", str(tmp_path)]) == 0
    text = (tmp_path / "pyproject.toml").read_text()
    assert text.startswith(before)
    assert text.endswith('[tool.graphguard]\nchecks = ["checks/*.py"]\n')


def test_a_file_that_is_no_toml(tmp_path, capsys):
    (tmp_path / "pyproject.toml").write_text("[project\n")
    assert main(["init", str(tmp_path)]) == 2
    assert "pyproject.toml: not TOML" in capsys.readouterr().err


LAYERS = """import torch
import torch.distributed as dist
from torch import nn


class ParallelHead(nn.Module):
    def __init__(self, config, plan):
        super().__init__()

    def forward(self, x):
        return x


class ParallelColumns(nn.Module):
    def __init__(self, in_features: int, out_features, tp_group, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features // dist.get_world_size(tp_group), in_features))

    def forward(self, x):
        return nn.functional.linear(x, self.weight)
"""
SCRIPT = """import argparse
import torch
from transformers import Trainer

if __name__ == "__main__":
    Trainer().train()
"""


def written(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_the_project_s_own_module_is_checked(tmp_path, monkeypatch, capsys):
    written(tmp_path, {"src/own/layers.py": LAYERS, "train.py": SCRIPT, "broken.py": "def (", ".venv/x.py": LAYERS})
    assert main(["init", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "a check of ParallelColumns (src/own/layers.py:14)" in told
    assert "(it uses transformers)" in told
    assert "    graphguard torchrun --nproc-per-node 2 train.py\n" in told
    text = (tmp_path / "checks" / "first_check.py").read_text()
    assert 'ParallelColumns(in_features=8, out_features=12, tp_group=mesh.get_group("tp"))' in text
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) in (0, 1)
    assert "checks/first_check.py::first  tp=2  " in capsys.readouterr().out


def test_megatron_s_groups_are_made(tmp_path):
    layers = LAYERS.replace("import torch\n", "import torch\nfrom megatron.core import parallel_state\n", 1)
    written(tmp_path, {"layers.py": layers.replace("config, plan", "config")})
    assert main(["init", str(tmp_path)]) == 0
    text = (tmp_path / "checks" / "first_check.py").read_text()
    assert "from graphguard.frameworks import megatron\n" in text
    assert "    megatron.world(mesh)\n" in text
    assert "gg.Same(ParallelHead(config=megatron.config()), inputs=(gg.tensor(2, 3, 16),))" in text


def test_tokens_are_looked_up(tmp_path):
    layers = LAYERS.replace("ParallelColumns", "ParallelEmbedding").replace("in_features: int", "vocab_size")
    written(tmp_path, {"layers.py": layers})
    assert main(["init", str(tmp_path)]) == 0
    text = (tmp_path / "checks" / "first_check.py").read_text()
    assert "vocab_size=32" in text
    assert "gg.tensor(2, 3, dtype=torch.int64, low=0, high=32)" in text


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"layers.py": LAYERS[: LAYERS.index("class ParallelColumns")]},
            "layers.py:6: ParallelHead looks parallel; what to give for config, plan is not clear",
        ),
        (
            {"pretrain_gpt.py": SCRIPT.replace("transformers", "megatron")},
            "graphguard torchrun --nproc-per-node 2 pretrain_gpt.py",
        ),
    ],
    ids=["unknown arguments", "a script alone"],
)
def test_where_nothing_can_be_written_it_says_what_to_do(tmp_path, capsys, files, words):
    written(tmp_path, files)
    assert main(["init", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert words in told
    assert not (tmp_path / "checks").exists()
    assert "now run: graphguard check" not in told
