"""Whose lines nodes come from."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from programs import record

from graphguard.trace.source import provenance

pytestmark = pytest.mark.filterwarnings("ignore")

TEXT = "import torch\n\n\ndef scaled(x):\n    return torch.sin(x) * 2\n"


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_same_function_in_two_files_is_two_functions(tmp_path: Path) -> None:
    """Python holds their code objects to be equal: a model and a copy of it that is being made parallel begin alike."""
    copies = []
    for name in ("model.py", "model_parallel.py"):
        (tmp_path / name).write_text(TEXT)
        copies.append(imported(tmp_path / name))
    assert copies[0].scaled.__code__ == copies[1].scaled.__code__
    graph = record(lambda x: copies[1].scaled(copies[0].scaled(x)), [torch.ones(2)]).graph
    assert graph is not None
    files = [graph.stack_of(node.stack)[0].span.file for node in graph.nodes]
    assert files == [str(tmp_path / "model.py")] * 2 + [str(tmp_path / "model_parallel.py")] * 2


def test_no_frame_of_the_standard_library_is_told(tmp_path: Path) -> None:
    """Whatever its files are called: ``warnings.deprecated``, in which PyTorch wraps collectives, has moved to another one."""
    (tmp_path / "model.py").write_text(
        "import copy\nimport torch\n\n\nclass Model:\n    def __copy__(self):\n        return torch.sin(self.x)\n\n\n"
        "def copied(x):\n    model = Model()\n    model.x = x\n    return copy.copy(model)\n"
    )
    model = imported(tmp_path / "model.py")
    graph = record(lambda x: model.copied(x), [torch.ones(2)]).graph
    assert graph is not None
    told = [(Path(frame.span.file).name, frame.span.line) for frame in graph.stack_of(graph.nodes[0].stack)]
    assert told[:2] == [("model.py", 7), ("model.py", 13)]


def test_a_copy_of_a_hidden_function_is_shown(tmp_path: Path) -> None:
    """People copy functions out of PyTorch, with what stands above them, into a file of their own."""
    original = torch.nn.functional.softsign
    lines = Path(original.__code__.co_filename).read_text().splitlines(keepends=True)
    first = original.__code__.co_firstlineno
    tree = "".join(lines[first - 1 :]).partition("\n\n\n")[0]
    header = "from torch import Tensor; from torch.overrides import handle_torch_function, has_torch_function_unary\n"
    copy = tmp_path / "copied.py"
    copy.write_text(header + "\n" * (first - 2) + tree + "\n")
    theirs = imported(copy).softsign
    assert theirs.__code__ == original.__code__
    graph = record(lambda x: theirs(original(x)), [torch.ones(2)]).graph
    assert graph is not None
    files = [graph.stack_of(node.stack)[0].span.file for node in graph.nodes]
    assert files[0] == __file__
    assert files[-1] == str(copy)


def test_whoever_calls_what_runs_programs_is_no_part_of_them() -> None:
    ours: dict[str, Any] = {}
    text = "def run(program):\n    return program()\n"
    exec(compile(text, provenance.__file__.replace("provenance", "made_up"), "exec"), ours)

    def program() -> list[str]:
        stacks = provenance.Stacks()
        return [frame.function.rpartition(".")[2] for frame in stacks.frames(stacks.here(0, None))]

    assert ours["run"](program)[:2] == ["program", "test_whoever_calls_what_runs_programs_is_no_part_of_them"]
    provenance.outermost(ours["run"])
    assert ours["run"](program) == ["program"]
