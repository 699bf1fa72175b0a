"""Work-done progress: shown while checks run for longer than a moment; cancelling it cancels them."""

from __future__ import annotations

import asyncio
from typing import Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from graphguard_server.serving.server import GraphGuardServer

PATIENCE: Final = 0.7


class Progress:
    """One progress of the client at a time, for all runs together."""

    def __init__(self, server: GraphGuardServer) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._token = ""
        self._told = ""

    def update(self, message: str, *, busy: bool) -> None:
        """Begin, report or end according to whether anything runs."""
        if busy and self._task is None and self._server.supports("window.work_done_progress"):
            self._task = asyncio.ensure_future(self._begin())
        if not self._token:
            return
        progress = self._server.work_done_progress
        if not busy:
            progress.end(self._token, types.WorkDoneProgressEnd(message=message))
            self._token, self._task = "", None
        elif message != self._told:
            self._told = message
            progress.report(self._token, types.WorkDoneProgressReport(message=message, cancellable=True))

    async def _begin(self) -> None:
        """Create the progress; the client's answer is awaited under a shield, for pygls fails on it after a cancellation."""
        await asyncio.sleep(PATIENCE)
        if not self._server.session.scheduler.busy:
            self._task = None
            return
        self._number += 1
        token = f"graphguard-{self._number}"  # text: some clients refuse numbers
        try:
            await asyncio.shield(self._server.work_done_progress.create_async(token))
        except JsonRpcException:
            return  # the client refused once and is not asked again
        begin = types.WorkDoneProgressBegin(title="GraphGuard", cancellable=True)
        self._server.work_done_progress.begin(token, begin)
        self._server.work_done_progress.tokens[token].add_done_callback(self._cancelled)
        self._token = token
        self._server.changed(())

    def _cancelled(self, future: object) -> None:
        if getattr(future, "cancelled", bool)():
            session = self._server.session
            session.cancel([run.key for run in session.runs()])
