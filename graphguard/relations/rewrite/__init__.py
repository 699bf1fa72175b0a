"""Rewriting: every simplification is a :class:`~graphguard.relations.rewrite.rule.Rule` of the table, applied by the engine at its stage.

Rules come in through ``simplify.table``, which alone knows all of them; the algebra below them finds them in its universe.
"""
