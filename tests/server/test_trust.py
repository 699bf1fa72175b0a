"""An untrusted workspace runs no code, and a repository cannot make itself trusted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lsp_editor import Editor, editing
from lsprotocol import types
from process_tree import children


async def test_nothing_is_started_before_the_workspace_is_trusted(workspace: Path, log: Path) -> None:
    async with editing(workspace, log, options={"trusted": False}) as editor:
        uri = editor.open("model.py")
        await editor.until(editor.runs)
        assert (await editor.client.protocol.send_request_async("graphguard/run", {"force": True})) == {"queued": 0}
        await asyncio.sleep(0.5)
        assert editor.traces() == 0
        assert editor.client._server is not None
        assert not children(editor.client._server.pid)
        assert editor.status()["trusted"] is False
        assert "not trusted" in editor.status()["detail"]
        assert not editor.diagnostics(uri)
        editor.client.protocol.notify("graphguard/trust", {"trusted": True})
        await editor.settled()
        assert editor.diagnostics(uri)


async def test_trust_can_be_taken_back(editor: Editor) -> None:
    uri = editor.open("model.py")
    await editor.settled()
    before = editor.traces()
    editor.client.protocol.notify("graphguard/trust", {"trusted": False})
    await editor.until(lambda: editor.status()["trusted"] is False)
    editor.change(uri, "x = 1\n")
    await asyncio.sleep(0.5)
    assert editor.traces() == before


async def test_settings_of_the_workspace_cannot_grant_trust(workspace: Path, log: Path) -> None:
    async with editing(workspace, log, options={"trusted": False}) as editor:
        editor.client.workspace_did_change_configuration(
            types.DidChangeConfigurationParams({"graphguard": {"trusted": True, "mode": "change"}})
        )
        editor.open("model.py")
        await asyncio.sleep(0.5)
        assert editor.traces() == 0
