"""The story of one defect with the real worker and the real prover: found, hovered over, mended, and proved again."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lsp_editor import Editor, editing, position_of
from lsprotocol import types
from process_tree import alive, children, hurt, one

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
    assert "Partial(sum) over tp" in hover.contents.value
    definition = await real.client.text_document_definition_async(
        types.DefinitionParams(types.TextDocumentIdentifier(uri), position_of(text, f"{words['hidden']} = F.relu"))
    )
    assert isinstance(definition, list | tuple)
    assert isinstance(definition[0], types.Location)
    assert definition[0].range.start == position_of(text, "F.relu(self.up(x)))"), "the specification's relu"
    actions = await real.client.text_document_code_action_async(
        types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, types.CodeActionContext([found]))
    )
    fix = next(action for action in actions or [] if isinstance(action, types.CodeAction) and action.is_preferred)
    fix = await real.client.code_action_resolve_async(fix)
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


def plain_program() -> str:
    text = PROGRAM
    for key, word in VARIANTS["plain"].items():
        text = text.replace("{" + key + "}", word)
    return text


async def test_a_worker_killed_underway_and_a_killed_prover_change_nothing_in_the_end(real: Editor) -> None:
    uri = real.open("check_mlp.py", plain_program())
    await real.until(lambda: real.diagnostics(uri) and not real.status()["busy"], 90)
    expected = real.diagnostics(uri)[0].message
    real.change(uri, plain_program() + "\nUNUSED = 1\n")
    await real.until(lambda: real.runs()[0]["state"] == "tracing")
    hurt(one(real.pid, "trace"), signal.SIGKILL)
    hurt(one(real.pid, "proving.prover"), signal.SIGKILL)
    await real.until(lambda: not real.runs()[0]["stale"] and not real.status()["busy"], 60)
    assert [found.message for found in real.diagnostics(uri)] == [expected]
    assert {each["name"]: each["restarts"] for each in real.status()["processes"]} == {"worker": 1, "prover": 1}


async def test_a_model_that_hangs_leaves_no_process_behind_a_killed_server(real: Editor) -> None:
    text = plain_program().replace("        y = self.down(h)", "        while True:\n            y = self.down(h)")
    real.open("check_mlp.py", text)
    await real.until(lambda: real.runs() and real.runs()[0]["state"] == "tracing", 60)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and len(family := children(real.pid)) < 2:
        await asyncio.sleep(0.2)
    assert len(family) >= 2, "the worker has forked a child for the check"
    hurt(real.pid, signal.SIGKILL)
    real.client.error = RuntimeError("killed on purpose")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(map(alive, family)):
        await asyncio.sleep(0.05)
    assert not [command for pid, command in family.items() if alive(pid)]


async def test_what_the_users_code_prints_does_not_reach_the_stream(real: Editor) -> None:
    noisy = 'import os\nprint("hello")\nos.write(1, b"Content-Length: 3")\n' + plain_program()
    uri = real.open("check_mlp.py", noisy)
    await real.until(lambda: real.diagnostics(uri) and not real.status()["busy"], 90)
    assert real.diagnostics(uri)[0].code == "missing-reduction"


async def test_a_waiver_silences_a_finding_and_is_reported_where_it_is_not_needed(real: Editor) -> None:
    line = "        y = self.down(h)"
    waived = plain_program().replace(line, f"{line}  # graphguard: ignore[missing-reduction]")
    uri = real.open("check_mlp.py", waived)
    await real.until(lambda: real.runs() and real.runs()[0]["state"] == "broken" and not real.status()["busy"], 90)
    assert not real.diagnostics(uri)
    mended = waived.replace("        return y\n", "        dist.all_reduce(y, group=self.group)\n        return y\n")
    real.change(uri, mended)
    await real.until(lambda: real.runs()[0]["state"] == "proved" and real.diagnostics(uri), 60)
    (found,) = real.diagnostics(uri)
    assert "unused waiver" in found.message
    assert found.range.start.line == position_of(mended, "# graphguard").line


async def test_reproduce_gives_a_test_of_the_counterexample(real: Editor) -> None:
    real.write("check_mlp.py", plain_program())
    uri = real.open("check_mlp.py")
    await real.until(lambda: real.diagnostics(uri) and not real.status()["busy"], 90)
    answer = await real.client.protocol.send_request_async("graphguard/reproduce", {"id": "check_mlp.py::mlp"})
    assert "def test_" in answer["text"], answer["text"]
    compile(answer["text"], "reproduced.py", "exec")


async def test_an_operator_that_nobody_knows_can_be_assumed_and_the_verdict_says_so(real: Editor) -> None:
    own = (
        '@torch.library.custom_op("mine::squash", mutates_args=())\n'
        "def squash(x: torch.Tensor) -> torch.Tensor:\n    return torch.from_numpy(x.numpy().copy())\n\n\n"
        "@squash.register_fake\ndef _(x):\n    return torch.empty_like(x)\n\n\nclass MLP"
    )
    text = plain_program().replace("class MLP", own, 1).replace("F.relu(self.up(x))", "squash(self.up(x))")
    text = text.replace("        return y\n", "        dist.all_reduce(y, group=self.group)\n        return y\n")
    uri = real.open("check_mlp.py", text)
    await real.until(lambda: real.runs() and real.runs()[0]["state"] == "unknown" and not real.status()["busy"], 90)
    found = next(each for each in real.diagnostics(uri) if each.code == "unsupported-operator")
    actions = await real.client.text_document_code_action_async(
        types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, types.CodeActionContext([found]))
    )
    action = next(each for each in actions or [] if each.title.startswith("Assume that this operator"))
    assert isinstance(action, types.CodeAction)
    assert action.edit is not None
    assert action.edit.changes is not None
    (edit,) = action.edit.changes[uri]
    lines = text.splitlines(keepends=True)
    line = lines[edit.range.start.line].rstrip("\n")
    assert edit.range.start.character == len(line)
    lines[edit.range.start.line] = f"{line}{edit.new_text}\n"
    real.change(uri, "".join(lines))
    await real.until(lambda: real.runs()[0]["state"] == "assumed", 60)
    assert "mine.squash.default is elementwise, as a comment says" in real.runs()[0]["message"]
