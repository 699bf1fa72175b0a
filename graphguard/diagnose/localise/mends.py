"""What mends: an intervention that puts outputs right, and by which evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from graphguard.diagnose.localise.interventions import Intervention
from graphguard.diagnose.localise.layouts import Laid
from graphguard.diagnose.localise.reach import Lack, Lost
from graphguard.diagnose.localise.sites import Site

Evidence = Literal["operator", "layout", "handed", "step", "factor", "region", "another"]
"""What a mend says of its site, best first.  ``operator``: its operands are right, its result is not.  ``layout``: it is right, but its reader needs it in another layout.
``handed``: it is another tensor than the call reads that the specification makes with the same line of code.  ``step``: it is right, and what the specification makes of it alone is needed.
``factor``: a factor alone is wrong.  ``region``: its operands are wrong in a way that the specification has no tensors for.  ``another``: it is right, and another tensor mends: mostly something that makes up for the defect."""

STRENGTH: Final[dict[str, int]] = {
    "operator": 0,
    "layout": 0,
    "handed": 0,
    "step": 1,
    "factor": 2,
    "region": 3,
    "another": 4,
}


@dataclass(slots=True)
class Mend:
    """An intervention that puts outputs right, and what it says; ``blame`` is a collective that should have done it.

    ``lack`` is what a rank would need for it and does not have, ``lost`` what it was given and left out; ``late``: before it, what mends is lacking, so that the region ends there.
    """

    tried: Intervention
    mended: frozenset[str]
    evidence: Evidence
    blame: Site | None = None
    lack: Lack | None = None
    lost: Lost | None = None
    late: bool = False

    @property
    def site(self) -> Site:
        """The site that is told: the first that is not right, or not what is needed there."""
        sites = self.tried.sites
        pairs = zip(sites, self.tried.laid, strict=False)
        other = (site for site, laid in pairs if laid and not any(state.var == laid.var for state in site.states))
        return next((site for site in sites if not site.is_right), next(other, sites[0]))

    @property
    def needed(self) -> Laid | None:
        """What is needed there; None where a factor is, or zeros are."""
        if self.tried.factor is not None:
            return None
        return self.tried.laid[self.tried.sites.index(self.site)] or self.tried.laid[0]
