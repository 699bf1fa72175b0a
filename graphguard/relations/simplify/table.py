"""The table of rules: which are applied at which stage, in which order."""

from __future__ import annotations

from typing import Final

from graphguard.relations.functions.places import joined_places
from graphguard.relations.rewrite.rule import Rules
from graphguard.relations.simplify.counted import means_over_counts
from graphguard.relations.simplify.factoring import brought_together
from graphguard.relations.simplify.growth import settle_growth
from graphguard.relations.simplify.hyperbolic import reduced
from graphguard.relations.simplify.lifting import cancelled, lifted
from graphguard.relations.simplify.lines import counted_line, counted_lines
from graphguard.relations.simplify.partial_sums import join_windows
from graphguard.relations.simplify.powers import powers_written_out, roots_of_multiples, sums_over_themselves
from graphguard.relations.simplify.selection import meet_one_hots, solve_equations, sum_one_hots
from graphguard.relations.simplify.sigmoids import sigmoid_of_logarithms, sigmoids_as_exponentials
from graphguard.relations.simplify.triangles import extend_windows, join_steps, meet_steps, settle_steps
from graphguard.relations.sums.quotients import mix, partial_fractions, shared_exponentials

TABLE: Final = Rules(
    products=(
        solve_equations,
        meet_one_hots,
        sum_one_hots,
        roots_of_multiples,
        powers_written_out,
        sums_over_themselves,
        means_over_counts,
    ),
    positions=(settle_growth, meet_steps, settle_steps, extend_windows),
    sums=(join_steps, join_windows, counted_lines, lifted, brought_together, joined_places),
    quotients=(reduced, partial_fractions, counted_line),
    distributed=(mix,),
    divisors=(shared_exponentials,),
    differences=(cancelled,),
    functions={
        "sigmoid": (sigmoid_of_logarithms, sigmoids_as_exponentials),
        "tanh": (sigmoids_as_exponentials,),
        "cosh": (sigmoids_as_exponentials,),
        "sinh": (sigmoids_as_exponentials,),
    },
)
