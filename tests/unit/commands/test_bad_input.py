"""What is said of a check that is written wrongly: in the words of the check, at its line, with what was meant."""

import os

import pytest

from graphguard.cli import main

HEAD = """\
import torch
import graphguard as gg
from torch.distributed.tensor import Shard

def net():
    return torch.nn.Linear(2, 2, bias=False)

X = gg.tensor(4, 2)

"""
CHECK = '@gg.check(mesh={"tp": 2})\ndef bad(mesh):\n    '


def said(project, capsys, text):
    (project / "bad.py").write_text(HEAD + text)
    assert main(["check", "--output-format", "text", "bad.py"]) == 2
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "line", "sentences"),
    [
        ('mesh["tpp"].size()', 12, ["the mesh has no axis 'tpp', only 'tp'; did you mean 'tp'?"]),
        ('mesh.get_group("pt")', 12, ["the mesh has no axis 'pt', only 'tp'; did you mean 'tp'?"]),
        ("return gg.Refinement(net(), net(), input=(X,))", 12, ["gg.Refinement has no argument 'input'; did you mean 'inputs'?"]),
        ("return gg.Refinement(net(), net(), (X,), outputs='replicate')", 12, ["no argument 'outputs'; did you mean 'out_relations'?"]),
        (
            "return gg.Refinement(net(), net(), (X,), out_relations='replicated')",
            11,
            ["out_relations='replicated' is no layout; did you mean 'replicate'?", "such as {'tp': Shard(0)}"],
        ),
        ("return gg.Refinement(net(), net(), (X,), out_relations=Shard(0))", 11, ["out_relations=Shard(dim=0) is no layout"]),
        ("return gg.Refinement(net(), net(), (X,), in_relations=Shard(0))", 11, ["in_relations=Shard(dim=0) is no layout"]),
        (
            "return gg.Refinement(net(), net(), (X,), out_relations={'pt': Shard(0)})",
            11,
            ["out_relations: 'pt' is neither an axis of the mesh nor an output; did you mean 'tp'?", "an output ('out')"],
        ),
        (
            "return gg.Refinement(net(), net(), (X,), in_relations={'y': {'tp': Shard(0)}})",
            11,
            ["in_relations: 'y' is neither an axis of the mesh nor an input", "an input ('input')"],
        ),
        ("return gg.Refinement(net(), net(), (X, X))", 11, ["takes 2 positional arguments but 3 were given", "[4, 2]"]),
    ],
)  # fmt: skip
def test_a_wrong_name_is_told_with_the_right_one(project, capsys, body, line, sentences):
    shown = said(project, capsys, CHECK + body)
    assert f"--> bad.py:{line}:" in shown
    assert all(sentence in shown for sentence in sentences), shown


@pytest.mark.parametrize("decorator", ["@gg.check", "@gg.check({})", "@gg.check('tp')"])
def test_a_check_without_a_mesh_is_no_silent_one(project, capsys, decorator):
    shown = said(project, capsys, f"{decorator}\ndef bad(mesh):\n    return gg.Refinement(net(), net(), (X,))")
    assert "gg.check needs a mesh: write, for example, @gg.check(mesh={'tp': 2})" in shown
    assert "--> bad.py:10:2" in shown


def test_inputs_that_do_not_fit_are_shown_at_the_program_and_at_the_check(project, capsys):
    (project / "model.py").write_text("def run(x):\n    return x @ x\n")
    shown = said(project, capsys, f"from model import run\n{CHECK}return gg.Refinement(run, run, (X,))")
    assert "--> model.py:2:12" in shown
    assert "::: bad.py:12:5" in shown
    assert "the inputs of this check are x [4, 2]" in shown


def test_a_missing_package_is_told_with_the_interpreter_that_lacks_it(project, capsys):
    shown = said(project, capsys, f"import no_such_package\n{CHECK}pass")
    assert "No module named 'no_such_package'" in shown
    assert "/python has no package 'no_such_package'" in shown
    assert "set python in [tool.graphguard]" in shown


SHAPES = f"{HEAD}\n{CHECK}return gg.Refinement(lambda x: x.sum(), lambda x: x.sum().reshape(1), (X,)PROMISE)"


@pytest.mark.parametrize(
    ("promise", "code", "sentence"),
    [
        ("", 3, "out has shape [] in the specification and [1] on rank 0"),
        (", out_relations='replicate'", 1, "counterexample: rank 0, out: shape [1], needed []"),
    ],
)
def test_results_of_unlike_shapes_are_told_as_such(project, capsys, promise, code, sentence):
    (project / "bad.py").write_text(SHAPES.replace("PROMISE", promise))
    assert main(["check", "bad.py"]) == code
    shown = capsys.readouterr().out
    assert sentence in shown
    assert "nan" not in shown


@pytest.mark.parametrize(
    ("folder", "shown"), [("checks", "model.py"), ("elsewhere", "../checks/model.py"), (".", "checks/model.py")]
)
def test_files_are_named_from_where_the_command_is_called(project, capsys, monkeypatch, folder, shown):
    (project / "elsewhere").mkdir()
    (project / "checks" / "model.py").write_text(HEAD + CHECK + "raise ValueError('no')")
    monkeypatch.chdir(project / folder)
    selector = f"{os.path.relpath(project / 'checks')}/model.py::bad"
    assert main(["check", selector]) == 2
    out = capsys.readouterr().out
    assert f"--> {shown}:12:" in out
    assert f"\n{shown}::bad  tp=2  could not run" in out
    assert main(["check", f"{shown}::bad"]) == 2, "what is shown can be given back to the command line"


def test_a_project_of_a_larger_repository_annotates_from_the_repository(project, capsys, monkeypatch):
    part = project / "part"
    part.mkdir()
    (project / ".git").mkdir()
    for made in ("pyproject.toml", "checks"):
        (project / made).rename(part / made)
    (part / "checks" / "model.py").write_text(HEAD + CHECK + "raise ValueError('no')")
    monkeypatch.chdir(part)
    assert main(["check", "--output-format", "github"]) == 2
    assert "file=part/checks/model.py,line=12" in capsys.readouterr().out
