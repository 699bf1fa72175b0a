"""Meshes that a check computes: only running its file tells them."""

from __future__ import annotations

from typing import Any

from graphguard_server.processes.processes import CallFailedError, Process
from graphguard_server.state.checks import Check, Mesh


async def listed(worker: Process, check: Check, params: dict[str, Any], limit: float) -> tuple[Mesh, ...]:
    """The meshes that the check's decorator was given; empty where its file could not be run, which the capture then explains.

    Raises ``ProcessDiedError``.
    """
    try:
        answer = await worker.call("list", params, limit)
    except CallFailedError:
        return ()
    rows = answer.get("checks", []) if isinstance(answer, dict) else []
    name = check.ref.name.partition("[")[0]  # its params do not change its meshes
    found = next((row for row in rows if isinstance(row, dict) and row.get("name") == name), {})
    return tuple(mesh for mesh in found.get("meshes") or () if _is_mesh(mesh))


def _is_mesh(row: object) -> bool:
    return isinstance(row, dict) and all(isinstance(axis, str) and isinstance(size, int) for axis, size in row.items())
