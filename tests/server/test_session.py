"""What a session asks for, without a client and without processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from graphguard_server.installed import installed_engine
from graphguard_server.scheduler import Scheduler
from graphguard_server.session import Session
from lsprotocol import types

CHECK = """
import graphguard as gg

@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(abs, abs, (gg.tensor(2),))
"""


@pytest.mark.parametrize(("text", "asked"), [(CHECK, 0), (CHECK.replace("2)", "3)"), 1)])
async def test_looking_through_a_folder_asks_for_no_check_that_is_under_way(
    tmp_path: Path, text: str, asked: int
) -> None:
    """A second run would take the fixes of the first away while one is chosen; one of another text is still wanted."""
    path = tmp_path / "check.py"
    path.write_text(CHECK)
    session = Session(installed_engine(), lambda _: None)
    session.scheduler = Scheduler(session.execution.execute, lambda: None, limit=0)  # nothing is started
    try:
        session.opened(session.documents.open(types.TextDocumentItem(path.as_uri(), "python", 1, CHECK)))
        (run,) = session.runs()
        session.scheduler.cancel([run.key])
        session.execution.underway[run.key] = {str(path): text}
        await asyncio.gather(*session._tasks)
        assert len(session.scheduler.waiting) == asked
    finally:
        await session.close()
