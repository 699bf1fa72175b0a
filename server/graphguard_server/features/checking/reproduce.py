"""``graphguard/reproduce``: a test that fails until the check's code is mended, as ``graphguard reproduce`` writes it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from graphguard_server.features.checking.run import wanted
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.state.checks import Check

METHOD: Final = protocol.REPRODUCE
COMMAND: Final = "graphguard.reproduce"
SECONDS: Final = 120.0


async def handle(server: GraphGuardServer, params: Any) -> dict[str, str]:
    """The test's text and where it would be kept; an empty path and the reason where there is none."""
    values = params if isinstance(params, dict) else {}
    session = server.session
    found = next((each for key in wanted(server, {"checks": [values]}) if (each := session.run_of(key))), None)
    if found is None or not session.trusted:
        return {"text": "there is no such check" if session.trusted else "the workspace is not trusted", "path": ""}
    check, run = found
    name = re.sub(r"\W+", "_", check.ref.name).strip("_")
    with tempfile.TemporaryDirectory(prefix="graphguard-") as folder:
        target = Path(folder) / f"test_{name}_reproduced.py"
        status, said = await _command(check, run.key.mesh, target)
        if status != 0 or not target.is_file():
            return {"text": said.strip() or f"graphguard reproduce ended with status {status}", "path": ""}
        return {"text": target.read_text(encoding="utf-8"), "path": os.path.join(check.root, target.name)}


def command_line() -> list[str]:
    """How the command line of the server's engine is started: by its launcher where it is bundled, for no search path leads to it then."""
    bundled = os.environ.get("GRAPHGUARD_ENGINE_PATH")
    if bundled:
        return [sys.executable, str(Path(bundled).with_name("launch.py")), "graphguard"]
    return [sys.executable, "-P", "-m", "graphguard"]


async def _command(check: Check, mesh: str, target: Path) -> tuple[int, str]:
    words = [*command_line(), "reproduce", f"{check.file}::{check.ref.name}"]
    words += ["--output", str(target), *(["--mesh", mesh] if mesh else [])]
    child = await asyncio.create_subprocess_exec(
        *words, cwd=check.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    return child.returncode or 0, said.decode("utf-8", "replace")
