"""Values that ranks exchange while a check builds its programs: whoever waits for them is recorded again once they are known."""

from graphguard.refine.proving.prove import prove

EXCHANGE = """
ranks = [None, None]
dist.all_gather_object(ranks, {"scale": dist.get_rank() + 1})
last = max(each["scale"] for each in ranks)
return gg.Refinement(lambda x: x * 2, lambda x: x * last, (gg.tensor(2, 4),), out_relations="replicate")
"""

IN_THE_SPECIFICATION = """
def spec(x):
    ranks = [None, None]
    dist.all_gather_object(ranks, dist.get_rank())
    return x * (max(ranks) + 1)

return gg.Refinement(spec, lambda x: x * 2, (gg.tensor(2, 4),), out_relations="replicate")
"""


def test_the_specification_is_built_with_what_the_ranks_exchange(project):
    capture = project.check(EXCHANGE)
    assert not capture.troubles
    assert prove(capture).outcome.proved
    wrong = project.check(EXCHANGE.replace("+ 1}", "+ 2}"))
    assert not wrong.troubles
    assert not prove(wrong).outcome.proved


def test_a_specification_that_waits_for_other_ranks_is_a_trouble(project):
    (trouble,) = project.check(IN_THE_SPECIFICATION).troubles
    assert trouble.rule == "trace-error"
    assert trouble.message.startswith("the specification needs a value that other ranks send")
