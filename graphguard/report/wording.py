"""Words of findings that more than one place must know."""

from __future__ import annotations

from typing import Final

# Of an operator that has no rule: only for such a one can a trait be declared.
UNKNOWN_OPERATOR: Final = "is an operator that GraphGuard does not know"
