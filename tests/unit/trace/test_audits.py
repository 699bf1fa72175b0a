"""Audit events are told by one hook, and a recording causes few of them."""

import collections
import pickle

import torch
from programs import record

from graphguard.trace.depends import audits
from graphguard.trace.process.children import Family
from graphguard.trace.process.limits import Limits


def in_child(run):
    """What a function returns in a process of its own: a hook stays for the rest of one's life."""
    family, answers = Family(), []
    family.start(
        lambda _: pickle.dumps(run()),
        Limits(60.0),
        on_message=lambda *_: None,
        on_output=print,
        on_end=lambda ending: answers.append(ending.answer),
        leader=True,
    )
    while not answers:
        family.step()
    family.stop_all()
    return pickle.loads(answers[0])


def test_everyone_hears_what_is_opened(tmp_path):
    def run():
        first, second = [], []
        audits.hear(("open",), lambda _, arguments: first.append(arguments[0]))
        (tmp_path / "one").write_text("")
        audits.hear(("open",), lambda _, arguments: second.append(arguments[0]))
        (tmp_path / "two").write_text("")
        return first, second

    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert in_child(run) == ([one, two], [two])


def test_everything_is_heard_until_it_is_not(tmp_path):
    class Listener:
        def __init__(self):
            self.heard = []

        def hear(self, event, arguments):
            self.heard.append((event, arguments[0]))

    def run():
        listener = Listener()
        audits.hear_everything(listener.hear)
        (tmp_path / "one").write_text("")
        compile("x", "two", "eval")
        audits.stop_hearing(listener.hear)
        (tmp_path / "three").write_text("")
        return listener.heard

    assert in_child(run) == [("open", str(tmp_path / "one")), ("compile", b"x")]


def test_a_recording_causes_few_events():
    """Every one of them costs as much as a whole frame of a stack: what is asked of operators and code objects causes none."""
    x = torch.ones(2, 2, requires_grad=True)

    def program(x):
        for _ in range(20):
            x = torch.sin(x @ x) + 1
        return x.sum()

    def run():
        record(program, [x])
        counts = collections.Counter()
        audits.hear_everything(lambda event, _: counts.update((event,)))
        nodes = len(record(program, [x]).graph.nodes)
        return nodes, counts

    nodes, counts = in_child(run)
    assert nodes >= 60
    assert counts["builtins.id"] < nodes
    assert counts["sys._getframe"] < 3 * nodes
