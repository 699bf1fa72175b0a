"""Which known name is meant by one that is not there."""

import pytest

from graphguard.trace.source.misnamed import did_you_mean

ARGUMENTS = ("spec", "impl", "inputs", "in_relations", "shard_inputs", "out_relations", "load", "grads")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("outputs", "out_relations"),
        ("output", "out_relations"),
        ("output_relations", "out_relations"),
        ("input", "inputs"),
        ("input_relations", "in_relations"),
        ("Inputs", "inputs"),
        ("gradients", "grads"),
        ("loader", "load"),
        ("shard", "shard_inputs"),
    ],
)
def test_an_argument_that_is_begun_rightly_is_meant(name: str, meant: str) -> None:
    assert did_you_mean(name, ARGUMENTS) == f"; did you mean {meant!r}?"


def test_letters_in_another_order_are_meant_where_nothing_begins_so() -> None:
    assert did_you_mean("pt", ("tp", "dp")) == "; did you mean 'tp'?"


def test_what_is_near_nothing_is_not_guessed() -> None:
    assert did_you_mean("timeout", ARGUMENTS) == ""
