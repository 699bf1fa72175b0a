"""What somebody seeded is told from what the system did by the state alone; what nobody seeded is another in every process, and the same at every recording."""

import random

import numpy as np
import pytest

from graphguard.trace.depends.chance import generators, own_chance
from graphguard.trace.depends.seeds import is_seeded
from graphguard.trace.depends.unshared import Process, standing_for


def _seeded(generator):
    return is_seeded(generator, generator.getstate(), ())


@pytest.mark.parametrize("seed", [0, 5, -3, 2**200 + 17, "run", "a" * 300, 1.5, b"xx"])
@pytest.mark.parametrize("drawn", [0, 1, 700, 5000])
def test_a_seed_is_found_however_much_was_drawn_since(seed, drawn):
    generator = random.Random(seed)
    for _ in range(drawn):
        generator.random()
    assert _seeded(generator)


def test_what_the_system_seeded_has_no_seed():
    assert not _seeded(random.Random())


def test_generators_of_numpy_know_what_they_were_made_of():
    long = 0x87351080E25CB0FAD77A44A3BE03B491
    made = {
        np.random.default_rng(): False,
        np.random.default_rng(3): True,
        np.random.default_rng([1, 2]): True,
        np.random.default_rng(long): False,
    }
    for generator, seeded in made.items():
        assert is_seeded(generator.bit_generator, None, ()) is seeded
    literal = np.random.default_rng(long).bit_generator
    assert is_seeded(literal, None, ["rng = default_rng(0x8735_1080_e25c_b0fa_d77a_44a3_be03_b491)"])
    assert is_seeded(np.random.RandomState(0)._bit_generator, None, ())
    assert not is_seeded(np.random.RandomState()._bit_generator, None, ())


def _drawn_by(number, draw, found):
    process = Process(number)
    with standing_for(process), own_chance(process, found) as drawn:
        return draw(), set(drawn)


@pytest.mark.parametrize("of", ["random", "numpy"])
def test_every_process_draws_other_numbers_and_the_same_ones_again(of):
    python, numpy = random.Random(), np.random.RandomState()
    found = generators((python, numpy._bit_generator))
    mine = python.random if of == "random" else numpy.rand
    first = {number: _drawn_by(number, mine, found)[0] for number in (-1, 0, 1, 2, 3)}
    again = {number: _drawn_by(number, mine, found)[0] for number in (-1, 0, 1, 2, 3)}
    assert first == again
    assert len(set(first.values())) == 5
    # a coin shows it as well, between neighbours along each axis of a 2x2 mesh
    for one, other in [(0, 1), (0, 2), (1, 3), (2, 3), (-1, 0)]:
        assert (first[one] < 0.5) != (first[other] < 0.5)


def test_outside_generators_are_what_they_were():
    own = random.Random(3)
    found = generators((own,))
    before = own.getstate()
    _drawn_by(0, own.random, found)
    assert own.getstate() == before
