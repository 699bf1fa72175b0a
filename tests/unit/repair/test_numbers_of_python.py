"""Numbers that a finding rests on: which of them are found, and what is tried in their place."""

import textwrap
from dataclasses import replace

from graphguard.ir import Span
from graphguard.refine.finding import Finding
from graphguard.repair.nearby.near import worked_out
from graphguard.repair.text.frames import Sources
from graphguard.repair.writing.applied import edited
from tests.unit.repair.test_nearby import FILE, HEAD, sources

LOADER = """
    class Layout:
        def __init__(self, config, size):
            self.rows = config.rows // size
            self.is_first = config.place == 0
            self.name = config.name

        def part(self, weight, rank):
            start = rank * self.rows
            return weight[start : start + self.rows].detach()

    def build(config):
        return Layout(config, config.expert_size)
"""


def tried(text: str, at: str, rule: str = "wrong-shard", **mesh: int) -> tuple[str, list[tuple[int, str]]]:
    """The text, and for every draft the line where it stands and the text that it puts there."""
    text = HEAD + textwrap.dedent(text).lstrip("\n")
    column = text.index(at) - text.rfind("\n", 0, text.index(at))
    line = text.count("\n", 0, text.index(at)) + 1
    seen = Span(FILE, line, column, line, column + len(at))
    known = sources(text)
    known = Sources.of(replace(known.capture, mesh=mesh or {"tp": 2}), known.read)
    found = worked_out(Finding(rule, "x", seen), known)
    assert all(edited(text, list(each.edits)) is not None for each in found)
    return text, [(each.place.line, each.title) for each in found]


def test_a_number_is_tried_where_it_is_worked_out_and_where_that_comes_from() -> None:
    text, found = tried(LOADER, "weight[start : start + self.rows].detach()")
    lines = [text.splitlines()[line - 1].strip() for line in dict.fromkeys(line for line, _ in found)]
    assert lines == [
        "start = rank * self.rows",
        "self.rows = config.rows // size",
        "return Layout(config, config.expert_size)",
    ]
    titles = [title for _, title in found][1:]
    assert titles[:4] == [
        "2 times 'config.rows // size'",
        "1/2 of 'config.rows // size'",
        "one more than 'config.rows // size'",
        "one less than 'config.rows // size'",
    ]


def test_of_what_a_rank_works_out_of_its_number_the_first_one_is_tried_on_all() -> None:
    _, found = tried(LOADER, "weight[start : start + self.rows].detach()")
    assert [title for _, title in found if "rank" in title] == ["'rank * self.rows' of rank 0 on all ranks"]
    body = """
        def seeded(seed, group):
            generator = torch.Generator()
            step = seed + 7 * dist.get_rank(group)
            return torch.rand(3, generator=generator.manual_seed(step))
    """
    _, found = tried(body, "torch.rand(3, generator=generator.manual_seed(step))")
    assert [title for _, title in found] == ["'seed + 7 * dist.get_rank(group)' of rank 0 on all ranks"]


def test_of_a_factor_only_factors_are_tried_one_for_each_size_of_the_mesh() -> None:
    _, found = tried(LOADER, "weight[start : start + self.rows].detach()", "wrong-scale", dp=3, tp=2, pp=1)
    assert [title for _, title in found][1:5] == [
        "2 times 'config.rows // size'",
        "1/2 of 'config.rows // size'",
        "3 times 'config.rows // size'",
        "1/3 of 'config.rows // size'",
    ]
    assert not any("one more" in title for _, title in found)


def test_an_answer_is_turned() -> None:
    body = """
        class Layer:
            def __init__(self, bias, config):
                self.has_bias = not config.shared
                self.bias = bias

            def add(self, x):
                return self.finish(x, self.has_bias)

            def finish(self, x, biased):
                return x.clone() if biased else x.detach()
    """
    _, found = tried(body, "x.clone()")
    assert "the contrary of 'not config.shared'" in [title for _, title in found]


def test_names_of_tensors_and_objects_are_no_numbers() -> None:
    body = """
        def run(layer, weight, scale):
            value = weight
            factor = scale
            return layer(value * factor).clone()
    """
    _, found = tried(body, "layer(value * factor).clone()")
    assert {title for _, title in found} >= {"2 times 'scale'", "1 instead of 'scale'"}
    assert not any("weight" in title or "layer" in title for _, title in found)
