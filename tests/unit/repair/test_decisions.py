"""Decisions of Python taken the other way: which statements, branches and numbers are tried, and in which order."""

import textwrap

from graphguard.ir import Span
from graphguard.refine.finding import Finding
from graphguard.repair.nearby.near import DECISIONS, near
from graphguard.repair.nearby.scene import Mistake
from graphguard.repair.writing.applied import edited
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


def test_a_branch_is_turned() -> None:
    text, found = decisions(RESET, "self.total = x")
    texts = [edited(text, list(each.edits)) for each in found]
    assert text.replace("x.dim() == 0", "x.dim() != 0") in texts


def test_steps_are_counted_from_zero_or_from_one() -> None:
    body = """
        def step(x, index, many):
            if index % many != 0:
                return x
            if (index + 1) % many == 0:
                return x.sum()
            if "%d" % index == "1":
                return x
            return 2 * x
    """
    text, found = decisions(body, "return 2 * x")
    texts = [edited(text, list(each.edits)) for each in found]
    assert text.replace("index % many != 0", "(index + 1) % many != 0") in texts
    assert text.replace("index % many != 0", "(index - 1) % many != 0") in texts
    assert text.replace("(index + 1) % many == 0", "index % many == 0") in texts
    assert not any('("%d" + 1)' in each for each in texts)


def test_one_more_is_not_counted() -> None:
    body = """
        def first(rank, length):
            if not length:
                return 0
            return rank * length + 1
    """
    text, found = decisions(body, "return rank")
    texts = [edited(text, list(each.edits)) for each in found]
    assert text.replace("rank * length + 1", "rank * length") in texts
    assert text.replace("not length", "length") in texts


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


def test_a_bound_counts_in_what_a_branch_asks() -> None:
    body = """
        def last(step, steps):
            if step > steps:
                return 0
            return step >= steps
    """
    text, found = decisions(body, "return 0")
    texts = [edited(text, list(each.edits)) for each in found]
    assert text.replace("step > steps", "step >= steps") in texts
    assert text.replace("return step >= steps", "return step > steps") not in texts


def test_one_of_several_conditions_does_not_decide() -> None:
    body = """
        def after(self, x):
            if self.reshards and not self.is_root:
                self.reshard()
            return x
    """
    text, found = decisions(body, "return x")
    texts = [edited(text, list(each.edits)) for each in found]
    assert text.replace("self.reshards and not self.is_root", "self.reshards") in texts
    assert text.replace("self.reshards and not self.is_root", "not self.is_root") in texts


def test_a_branch_is_taken_on_one_rank_alone_unless_it_asks_which() -> None:
    body = """
        def scaled(x, steps, rank):
            if steps > 1:
                x = x / steps
            if rank == 0:
                x = x + 1
            return x
    """
    text, found = decisions(body, "return x")
    texts = [edited(text, list(each.edits)) for each in found]
    assert text.replace("if steps > 1", "if (steps > 1) and dist.get_rank() == 0") in texts
    assert text.replace("if steps > 1", "if (steps > 1) and dist.get_rank() == dist.get_world_size() - 1") in texts
    assert text.replace("if rank == 0", "if (rank == 0) and dist.get_rank() == 0") not in texts
