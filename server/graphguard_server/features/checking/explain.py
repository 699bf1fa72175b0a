"""``graphguard/explain``: what a rule means."""

from __future__ import annotations

from typing import Any, Final

from graphguard.report.registry import UnknownRuleError, page, rule
from graphguard_server.serving import protocol
from graphguard_server.serving.server import GraphGuardServer

METHOD: Final = protocol.EXPLAIN
COMMAND: Final = "graphguard.explain"


def handle(_server: GraphGuardServer, params: Any) -> dict[str, str]:
    """The page of the rule, or which rules have a similar name."""
    name = str(params.get("rule", "")) if isinstance(params, dict) else ""
    try:
        return {"markdown": page(rule(name))}
    except UnknownRuleError as error:
        return {"markdown": str(error)}
