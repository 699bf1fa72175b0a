"""Decisions of Python taken the other way: which statements are not run, and in which order."""

import textwrap

from graphguard.ir import Span
from graphguard.refine.finding import Finding
from graphguard.repair.nearby.near import DECISIONS, near
from graphguard.repair.nearby.scene import Mistake
from tests.unit.repair.test_nearby import FILE, HEAD, after, sources


def decisions(text: str, at: str) -> tuple[str, list[Mistake]]:
    text = HEAD + textwrap.dedent(text).lstrip("\n")
    line = text.count("\n", 0, text.index(at)) + 1
    return text, near(Finding("wrong-relation", "x", Span(FILE, line, 1, line, 2)), sources(text), DECISIONS)


RESET = """
    class Meter:
        def reset(self):
            self.total = None

        def open_window(self):
            self.reset()

        def add(self, x):
            if x.dim() == 0:
                self.open_window()
            self.total = x.abs_()
            x.backward()
            dist.all_reduce(x)
            return x
"""


def test_what_leads_to_a_statement_is_left_out_before_it() -> None:
    _, found = decisions(RESET, "self.total = x")
    titles = [each.title for each in found if each.title.startswith("without")]
    assert titles == ["without self.open_window()", "without self.reset()", "without self.total = None"]


def test_another_group_that_an_object_keeps() -> None:
    body = """
        class Groups:
            def __init__(self, mesh):
                self.inner, self.count = mesh.get_group("tp"), 3
                self.outer = dist.group.WORLD
                self.within = mesh.get_group("tp")
                self.place = dist.get_rank(mesh.get_group("tp"))

        def run(x, groups):
            return x / dist.get_world_size(groups.outer)
    """
    drafts = after(body, "return x")
    assert any("get_world_size(groups.within)" in each for each in drafts)
    assert not any("get_world_size(groups.place)" in each for each in drafts)
