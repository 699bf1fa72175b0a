"""GraphGuard: proves that a distributed PyTorch program refines its sequential specification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphguard.checks.running.verify import assert_refines, verify
    from graphguard.report.diagnostics import Verdict
    from graphguard.trace.claims.api import Refinement, Same, check, constant, gradients, tensor

__all__ = ["Refinement", "Same", "Verdict", "assert_refines", "check", "constant", "gradients", "tensor", "verify"]

# Loaded when first used: a check file that is only imported pays for nothing but the declarations.
_HOMES = {
    "Refinement": "graphguard.trace.claims.api",
    "Same": "graphguard.trace.claims.api",
    "check": "graphguard.trace.claims.api",
    "constant": "graphguard.trace.claims.api",
    "gradients": "graphguard.trace.claims.api",
    "tensor": "graphguard.trace.claims.api",
    "assert_refines": "graphguard.checks.running.verify",
    "verify": "graphguard.checks.running.verify",
    "Verdict": "graphguard.report.diagnostics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphguard' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
