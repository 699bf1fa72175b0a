"""``workspace/codeLens/refresh`` and the like: asks the client to look again after results have changed."""

from __future__ import annotations

import asyncio
from typing import Final

from pygls.exceptions import JsonRpcException

from graphguard_server.serving.server import GraphGuardServer

PAUSE: Final = 0.1


class Refresher:
    """Asks at most once per pause, and only for what the client declared and the user switched on."""

    def __init__(self, server: GraphGuardServer) -> None:
        self._server = server
        self._results: object = None
        self._states: object = None
        self._task: asyncio.Task[None] | None = None
        self._pulled = False

    def diagnostics(self) -> None:
        """Diagnostics that the client pulls have changed."""
        self._pulled = True

    def update(self) -> None:
        """Results or states may have changed."""
        runs = list(self._server.session.runs())
        results = [(run.key, run.result, run.stale, id(run.places)) for run in runs]
        states = [run.activity for run in runs]
        if ((results, states) != (self._results, self._states) or self._pulled) and self._task is None:
            self._task = asyncio.ensure_future(self._ask(again=results != self._results))
            self._results, self._states = results, states

    async def _ask(self, *, again: bool) -> None:
        """Lenses show what is under way; hints and colours only results (``again``)."""
        await asyncio.sleep(PAUSE)
        self._task = None
        server, settings = self._server, self._server.session.settings
        asked = []
        if self._pulled and server.supports("workspace.diagnostics.refresh_support"):
            asked.append(server.workspace_diagnostic_refresh_async(None))
        self._pulled = False
        if settings.code_lens and server.supports("workspace.code_lens.refresh_support"):
            asked.append(server.workspace_code_lens_refresh_async(None))
        if again and settings.inlay_hints and server.supports("workspace.inlay_hint.refresh_support"):
            asked.append(server.workspace_inlay_hint_refresh_async(None))
        if again and settings.semantic_tokens and server.supports("workspace.semantic_tokens.refresh_support"):
            asked.append(server.workspace_semantic_tokens_refresh_async(None))
        for answer in asked:
            try:
                await asyncio.shield(answer)
            except JsonRpcException:
                continue  # a client that declared it and refuses it loses nothing but the refresh
        self.update()
