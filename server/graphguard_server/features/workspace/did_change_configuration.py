"""``workspace/didChangeConfiguration``: settings are pulled, so what the notification carries counts only without pulling."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = types.WORKSPACE_DID_CHANGE_CONFIGURATION
SECTION: Final = "graphguard"

log = logging.getLogger(__name__)


async def handle(server: GraphGuardServer, params: types.DidChangeConfigurationParams) -> None:
    """Take over the new settings."""
    if server.supports("workspace.configuration"):
        await fetch(server)
    else:
        values: Any = params.settings
        apply(server, values.get(SECTION, values) if isinstance(values, dict) else None)


async def fetch(server: GraphGuardServer) -> None:
    """Ask the client for its settings."""
    if not server.supports("workspace.configuration"):
        return
    item = types.ConfigurationItem(section=SECTION)
    try:
        answer = await asyncio.shield(server.workspace_configuration_async(types.ConfigurationParams([item])))
    except JsonRpcException as error:
        log.info("no settings from the client: %s", error)
        return
    if answer:
        apply(server, answer[0])


def apply(server: GraphGuardServer, values: object) -> None:
    """Use settings; what is not understood is shown in the status and changes nothing."""
    session = server.session
    session.troubles = {key: text for key, text in session.troubles.items() if not key.startswith("graphguard.")}
    settings, problems = session.settings.updated(values)
    session.troubles.update({problem: problem for problem in problems})
    if settings != session.settings:
        session.use(settings)
    server.changed(())
