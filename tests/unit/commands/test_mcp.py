"""``graphguard mcp`` as an agent meets it: by the SDK's own client. Checks are not run here, but for the last test."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from graphguard.commands import agent as agents
from graphguard.commands.agent import Agent, RefusedError
from graphguard.commands.mcp import READING, RUNNING, server_of
from graphguard.ir import Span
from graphguard.report.diagnostics import Diagnostic, Fix, Report, TextEdit, Verdict

from .project import WRONG, write_project

ASKED = []


def run_checks(found, configuration, options, listener=None, worker=None, prover=None):
    """A broken report with a fix that was proved and one that was not."""
    ASKED.append((found, configuration, options))
    reports = []
    for check in found:
        place = Span(check.ref.span.file, 1, 1, 1, 1)
        fix = Fix("all_reduce(y)", (TextEdit(place, "# mended\n"),), proved=True)
        fixes = (replace(fix, title="a guess", proved=False), fix)
        found_wrong = Diagnostic("wrong-scale", "wrong-scale", "twice what it is", "error", place, fixes=fixes)
        relations = {"layer.h": "concat(h@0, h@1; dim=1)", "out": "sum(out@0, out@1)"}
        reports.append(Report(check.ref, {"tp": 2}, Verdict.BROKEN, (found_wrong,), relations))
    return reports


@pytest.fixture
def agent(tmp_path, monkeypatch):
    monkeypatch.setattr(agents, "run_checks", run_checks)
    ASKED.clear()
    write_project(tmp_path, WRONG)
    agent = Agent(tmp_path, trusted=True)
    yield agent
    agent.close()


async def ask(agent, name, **arguments):
    async with Client(server_of(agent)) as client:
        return await client.call_tool(name, arguments)


async def test_the_tools_are_described_and_say_which_only_read(agent):
    async with Client(server_of(agent)) as client:
        tools = (await client.list_tools()).tools
        assert "unknown" in client.instructions
    assert {tool.name for tool in tools} == {*READING, *RUNNING}
    assert {tool.name for tool in tools if tool.annotations.read_only_hint} == set(READING)
    (verify,) = (tool for tool in tools if tool.name == "verify")
    assert "null (could not run)" in verify.description
    assert verify.input_schema["required"] == ["check"]


async def test_checks_are_listed_without_running_anything(agent):
    agent.trusted = False
    told = await ask(agent, "list_checks")
    assert [row["id"] for row in told.structured_content["result"]] == [
        "checks/model.py::right",
        "checks/model.py::wrong",
    ]
    assert not ASKED


@pytest.mark.parametrize("name", RUNNING)
async def test_a_folder_that_is_not_trusted_runs_nothing(agent, name):
    agent.trusted = False
    pair = {"specification": "", "implementation": "", "inputs": "()", "mesh": "tp=2"}
    told = await ask(agent, name, **(pair if name == "verify_pair" else {"check": "checks/model.py"}))
    assert told.is_error
    assert "graphguard mcp --trust" in told.content[0].text
    assert not ASKED


async def test_a_verdict_comes_as_text_and_as_data(agent):
    told = (await ask(agent, "verify", check="checks/model.py::wrong", mesh="tp=4")).structured_content
    assert told["checks"][0]["verdict"] == "broken"
    assert "error[wrong-scale]: twice what it is" in told["text"]
    assert ASKED[0][2].meshes == ({"tp": 4},)


async def test_relations_are_chosen_by_name(agent):
    told = await ask(agent, "relations", check="checks/model.py::wrong", containing="layer.")
    assert told.structured_content["result"][0]["relations"] == {"layer.h": "concat(h@0, h@1; dim=1)"}


async def test_only_proved_fixes_are_proposed_and_no_file_is_changed(agent):
    before = (agent.folder / "checks" / "model.py").read_text()
    (fix,) = (await ask(agent, "propose_fixes", check="checks/model.py::wrong")).structured_content["result"]
    assert fix["title"] == "all_reduce(y)"
    assert fix["diff"].startswith("--- a/checks/model.py\n+++ b/checks/model.py\n@@ -1,3 +1,4 @@\n+# mended\n")
    assert (agent.folder / "checks" / "model.py").read_text() == before


async def test_a_pair_of_texts_is_checked_as_a_file_would_be(agent):
    pair = {"specification": "specification = abs", "implementation": "def implementation(mesh): return abs"}
    await ask(agent, "verify_pair", **pair, inputs="(gg.tensor(2),)", mesh="tp=2,dp=2")
    ((found, configuration, options),) = ASKED
    assert [(check.ref.name, check.meshes) for check in found] == [("pair", ({"tp": 2, "dp": 2},))]
    assert not configuration.root.exists(), "nothing is left"
    assert not options.cache


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda agent: agent.verify("../other.py"), "lies outside of"),
        (lambda agent: agent.verify("checks/model.py::none"), "has no check named 'none'; it has right, wrong"),
        (lambda agent: agent.verify("checks/model.py", mesh="tp"), "'tp' is not an axis with its size"),
        (lambda agent: agent.explain("wrong-scal"), "did you mean 'wrong-scale' or"),
    ],
)
def test_what_cannot_be_asked(agent, question, message):
    with pytest.raises(RefusedError, match=message):
        question(agent)


def test_a_link_that_leads_out_of_the_folder_is_not_followed(agent, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "check.py"
    outside.write_text("import graphguard\n")
    (agent.folder / "link.py").symlink_to(outside)
    with pytest.raises(RefusedError, match="lies outside"):
        agent.list_checks("link.py")


@pytest.mark.slow
async def test_the_command_serves_on_its_standard_streams(tmp_path):
    """The whole program, with the real engine: a pair of texts whose sum is missing."""
    command = StdioServerParameters(
        command=str(Path(sys.executable)), args=["-m", "graphguard", "mcp", "--trust", str(tmp_path)]
    )
    pair = {
        "specification": "def specification(x):\n    return x.sum()",
        "implementation": (
            "import torch.distributed as dist\n"
            "def implementation(mesh):\n"
            "    return lambda x: x.chunk(2)[dist.get_rank()].sum()"
        ),
    }
    async with Client(command) as client:
        told = await client.call_tool(
            "verify_pair", {**pair, "inputs": "(gg.tensor(4),)", "mesh": "tp=2", "out_relations": "'replicate'"}
        )
    assert told.structured_content["checks"][0]["verdict"] == "broken"
    assert "missing-reduction" in told.structured_content["text"]
