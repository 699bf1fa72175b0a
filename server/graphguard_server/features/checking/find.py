"""``graphguard/find``: the rows of a picture in which a text occurs."""

from __future__ import annotations

from typing import Any, Final

from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = protocol.FIND
COMMAND: Final = "graphguard.find"


def handle(server: GraphGuardServer, params: Any) -> dict[str, list[int]] | None:
    """The numbers of the rows, in order; None where the picture is no longer kept."""
    values = params if isinstance(params, dict) else {}
    picture = server.pictures.named(str(values.get("picture", "")))
    text = values.get("text")
    if picture is None or not isinstance(text, str):
        return None
    return {"rows": picture.finds(text) if text else []}
