"""``graphguard/debugInformation``: what a bug report needs, as text."""

from __future__ import annotations

import dataclasses
import platform
import sys
from typing import Any, Final

from graphguard_server.features.checking.status import status
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = protocol.DEBUG_INFORMATION
COMMAND: Final = "graphguard.debugInformation"


def handle(server: GraphGuardServer, _params: Any) -> dict[str, str]:
    """Versions, settings, projects and processes; no source code."""
    session = server.session
    lines = [
        f"graphguard {server.version}, protocol {protocol.VERSION}",
        f"server: {sys.executable}, Python {platform.python_version()}, {platform.platform()}",
        f"position encoding: {session.documents.encoding}",
        *(f"setting {name}: {value!r}" for name, value in dataclasses.asdict(session.settings).items()),
    ]
    lines.extend(
        f"project {project.root}: {len(project.checks)} checks, interpreter {session.interpreter_of(project)}"
        for project in session.projects.values()
    )
    for process in (*session.workers.values(), session.prover):
        lines.append(f"{process.name}: {process.state}, {process.restarts} restarts {process.message}")
        lines.extend(f"    {line}" for line in process.last_words.splitlines()[-10:])
    lines.append(f"status: {status(server)}")
    return {"text": "\n".join(lines)}
