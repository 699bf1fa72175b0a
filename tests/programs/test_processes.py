"""`gg.verify` forks what runs programs from its caller; the processes of a job share neither hash seeds nor the state of generators that nobody seeded."""

import random

import numpy as np
import pytest
import torch.distributed as dist

import graphguard as gg
from graphguard import Verdict

NAMES = ["alpha", "beta", "gamma"]
UNSEEDED, SEEDED = np.random.default_rng(), np.random.default_rng(11)
OBJECT, FROM_TEXT = random.Random(), random.Random("run")


def three(x):
    return tuple(x * (k + 1) for k in range(3))


def exchanged(x, names):
    parts = {name: x * (k + 1) / 2 for k, name in enumerate(NAMES)}
    for name in names:
        dist.all_reduce(parts[name])
    return tuple(parts[name] for name in NAMES)


def verified(spec, impl):
    return gg.verify(spec, lambda mesh: impl, (gg.tensor(4, 6),), mesh={"tp": 2}, out_relations="replicate")


@pytest.mark.parametrize(
    ("name", "impl", "verdict"),
    [
        ("set", lambda x: exchanged(x, set(NAMES)), Verdict.BROKEN),
        ("list of a set", lambda x: exchanged(x, [name for name in frozenset(NAMES)]), Verdict.BROKEN),  # noqa: C416
        ("sorted", lambda x: exchanged(x, sorted(set(NAMES))), Verdict.REFINES),
        ("numbers", lambda x: exchanged(x, [NAMES[k] for k in {0, 1, 2}]), Verdict.REFINES),
    ],
)
def test_the_order_of_a_set(name, impl, verdict):
    report = verified(three, impl)
    assert report.verdict is verdict, name
    if verdict is Verdict.BROKEN:
        (found,) = report.diagnostics
        assert found.rule == "process-dependent"
        assert found.headline == "the order of a set of texts differs between processes"


@pytest.mark.parametrize(
    ("draw", "verdict"),
    [
        (lambda: float(np.random.rand()), Verdict.BROKEN),
        (lambda: random.uniform(1, 2), Verdict.BROKEN),
        (lambda: float(UNSEEDED.random()), Verdict.BROKEN),
        (OBJECT.random, Verdict.BROKEN),
        (lambda: float(SEEDED.random()), Verdict.REFINES),
        (FROM_TEXT.random, Verdict.REFINES),
    ],
    ids=["numpy", "random", "made before", "object made before", "seeded", "seeded object"],
)
def test_draws(draw, verdict):
    if verdict is Verdict.BROKEN:  # whatever ran before may have seeded them
        np.random.set_bit_generator(np.random.MT19937())
        random.seed()

    def program(x):
        return x * draw()

    report = verified(program, program)
    assert report.verdict is verdict
    if verdict is Verdict.BROKEN:
        assert report.diagnostics[0].rule == "process-dependent"


def test_a_caller_that_has_seeded_means_it():
    random.seed(5)
    np.random.seed(5)
    random.random()

    def program(x):
        return x * random.random() + x * np.random.rand()

    assert verified(program, program).verdict is Verdict.REFINES


def test_functions_that_are_there_take_numbers_that_are_read():
    def program(x):
        return x / max(float(x.abs().sum()), 1.0)

    assert verified(program, program).verdict is Verdict.REFINES
