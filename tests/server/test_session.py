"""What a session asks for, without a client and without processes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from graphguard_server.processes.installed import installed_engine
from graphguard_server.processes.scheduler import Scheduler
from graphguard_server.state.execution import Execution
from graphguard_server.state.session import Session
from graphguard_server.state.starts import Start
from lsprotocol import types

CHECK = """
import graphguard as gg

@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(abs, abs, (gg.tensor(2),))
"""


OTHER_TEXT = CHECK.replace("2)", "3)")


@pytest.mark.parametrize(
    ("text", "timeout", "interpreter", "asked"),
    [(CHECK, 60.0, (), 0), (OTHER_TEXT, 60.0, (), 1), (CHECK, 5.0, (), 1), (CHECK, 60.0, ("python-of-old",), 1)],
    ids=["the same", "another text", "another configuration", "another interpreter"],
)
async def test_looking_through_a_folder_asks_for_no_check_that_is_under_way(
    tmp_path: Path, text: str, timeout: float, interpreter: tuple[str, ...], asked: int
) -> None:
    """A second run would take the fixes of the first away while one is chosen; one started from something else is still wanted."""
    path = tmp_path / "check.py"
    path.write_text(CHECK)
    session = Session(installed_engine(), lambda _: None, Execution)
    session.scheduler = Scheduler(session.execution.execute, lambda: None, limit=0)  # nothing is started
    try:
        session.opened(session.documents.open(types.TextDocumentItem(path.as_uri(), "python", 1, CHECK)))
        (run,) = session.runs()
        session.scheduler.cancel([run.key])
        project = session.project_of(str(path))
        configuration = replace(project.configuration, timeout=timeout)
        python = interpreter or session.interpreter_of(project)
        session.execution.underway[run.key] = Start({str(path): text}, configuration, python)
        await asyncio.gather(*session._tasks)
        assert len(session.scheduler.waiting) == asked
    finally:
        await session.close()
