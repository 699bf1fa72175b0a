"""What the worker does for the children to come: its memory in large pages, a check of its own recorded; and that no child outlives its use."""

import ctypes
import mmap
import os

import pytest

from graphguard.trace.process.children import Family
from graphguard.trace.process.limits import Limits
from graphguard.trace.process.pages import LARGE, join_pages, large_ranges


@pytest.fixture
def memory():
    """Three ranges' worth of memory, and where the first whole range in it begins."""
    with mmap.mmap(-1, 3 * LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        view = (ctypes.c_char * len(memory)).from_buffer(memory)
        first = -(-ctypes.addressof(view) // LARGE) * LARGE - ctypes.addressof(view)
        yield memory, first, ctypes.addressof(view) + first
        del view


def resident(memory_of: str = "/proc/self/status") -> int:
    with open(memory_of) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:")) * 1024


def test_joined_memory_holds_what_it_held(memory):
    held, first, place = memory
    text = os.urandom(LARGE)
    held[first : first + LARGE] = text
    assert place in list(large_ranges())
    join_pages(place)
    assert held[first : first + LARGE] == text


def test_memory_that_nobody_uses_is_left_alone(memory):
    held, first, place = memory
    held[first] = 1
    before = resident()
    assert join_pages(place)
    assert resident() - before < LARGE // 2


def test_the_rehearsed_check_can_be_recorded():
    from graphguard.trace.programs.rehearsal import record_sample
    from graphguard.trace.worlds.world import warm

    warm()
    capture = record_sample()
    assert capture.troubles == ()
    assert capture.spec is not None
    assert len(capture.ranks) == 2


def test_an_answer_counts_before_its_child_has_ended_and_no_child_stays():
    family, answers = Family(), []
    child = family.start(
        lambda _: "done",
        Limits(30.0),
        on_message=lambda *_: None,
        on_output=lambda _: None,
        on_end=lambda ending: answers.append((ending.kind, ending.answer, family.at_work)),
    )
    assert family.at_work == 1
    while not answers:
        family.step()
    assert answers == [("answered", "done", 0)]
    family.stop_all()
    assert len(family) == 0
    assert len(answers) == 1
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, 0)
