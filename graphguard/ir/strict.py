"""Whether defects of ours are raised where they show.

Users get a report instead: an operator that is given up with the error as its reason.  In tests, which set the variable, nobody may miss one.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "GRAPHGUARD_STRICT"
STRICT: Final = os.environ.get(VARIABLE) == "1"
