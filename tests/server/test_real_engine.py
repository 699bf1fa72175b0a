"""The story of one defect with the real worker and the real prover: found, hovered over, mended, and proved again."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lsp_editor import Editor, editing, position_of
from lsprotocol import types

REAL = [sys.executable, "-m", "graphguard_server"]

PROGRAM = """\
import torch
import torch.distributed as {dist}
import torch.nn.functional as F
from torch import nn

import graphguard as gg


class MLP(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.relu(self.up(x)))


class ParallelMLP(nn.Module):
    def __init__(self, dim: int, hidden: int, {group}: {dist}.ProcessGroup) -> None:
        super().__init__()
        self.{group} = {group}
        ranks = {dist}.get_world_size({group})
        self.up = nn.Linear(dim, hidden // ranks, bias=False)
        self.down = nn.Linear(hidden // ranks, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        {hidden} = F.relu(self.up(x))
        {name} = self.down({hidden})
        return {name}


@gg.check(mesh={mesh})
def mlp(mesh):
    return gg.Refinement(
        spec=MLP(8, 16),
        impl=ParallelMLP(8, 16, mesh.get_group("tp")),
        inputs=(gg.tensor(2, 5, 8),),
        out_relations="replicate",
        grads=False,
    )
"""

VARIANTS = {
    "plain": {"dist": "dist", "group": "group", "hidden": "h", "name": "y", "mesh": '{"tp": 2}'},
    "other names": {"dist": "dist", "group": "team", "hidden": "inner", "name": "summed", "mesh": '{"tp": 2}'},
    "aliased import, subgroup": {
        "dist": "comm",
        "group": "group",
        "hidden": "h",
        "name": "y",
        "mesh": '{"dp": 2, "tp": 2}',
    },
}


@pytest_asyncio.fixture
async def real(tmp_path: Path) -> AsyncIterator[Editor]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["check_*.py"]\n')
    (folder / "check_mlp.py").write_text("")
    async with editing(folder, tmp_path / "log", command=REAL) as editor:
        yield editor


def applied(text: str, edit: types.WorkspaceEdit) -> tuple[str, int]:
    """The text after an edit of one ASCII document, and how many lines the edit touched."""
    assert edit.document_changes is not None
    (document,) = edit.document_changes
    assert isinstance(document, types.TextDocumentEdit)
    lines = text.splitlines(keepends=True)
    offsets = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def offset(place: types.Position) -> int:
        return offsets[place.line] + place.character

    edits = sorted(document.edits, key=lambda each: offset(each.range.start), reverse=True)
    for each in edits:
        assert isinstance(each, types.TextEdit)
        text = text[: offset(each.range.start)] + each.new_text + text[offset(each.range.end) :]
    return text, len(edits)


@pytest.mark.parametrize("variant", VARIANTS)
async def test_the_fix_inserts_the_missing_collective_and_the_edited_program_is_proved(
    real: Editor, variant: str
) -> None:
    words = VARIANTS[variant]
    text = PROGRAM
    for key, word in words.items():
        text = text.replace("{" + key + "}", word)
    uri = real.open("check_mlp.py", text)
    await real.until(lambda: real.runs() and real.runs()[0]["state"] == "broken" and not real.status()["busy"], 90)
    (found,) = real.diagnostics(uri)
    assert found.code == "missing-reduction"
    assert found.range.start.line == position_of(text, "self.down(" + words["hidden"]).line
    assert "counterexample: rank" in found.message
    hover = await real.client.text_document_hover_async(
        types.HoverParams(types.TextDocumentIdentifier(uri), position_of(text, f"{words['name']} = self.down"))
    )
    assert hover is not None
    assert isinstance(hover.contents, types.MarkupContent)
    assert "partial sum of down" in hover.contents.value
    actions = await real.client.text_document_code_action_async(
        types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, types.CodeActionContext([found]))
    )
    fix = next(action for action in actions or [] if isinstance(action, types.CodeAction) and action.is_preferred)
    assert fix.edit is not None
    mended, _ = applied(text, fix.edit)
    assert f"{words['dist']}.all_reduce({words['name']}" in mended
    if "dp" in words["mesh"]:
        assert f"group=self.{words['group']}" in mended
    real.change(uri, mended)
    await real.until(lambda: real.runs()[0]["state"] in ("proved", "assumed") and not real.runs()[0]["stale"], 60)
    assert not real.diagnostics(uri)


async def test_a_program_that_cannot_run_says_where(real: Editor) -> None:
    text = PROGRAM
    for key, word in VARIANTS["plain"].items():
        text = text.replace("{" + key + "}", word)
    text = text.replace("y = self.down(h)", "y = self.down(h.missing)")
    uri = real.open("check_mlp.py", text)
    await real.until(lambda: real.runs() and real.runs()[0]["state"] == "error", 90)
    found = real.diagnostics(uri)[0]
    assert found.code == "trace-error"
    assert "missing" in found.message
    assert found.range.start.line == position_of(text, "y = self.down(h.missing)").line
