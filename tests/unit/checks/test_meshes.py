"""Meshes on which a counterexample is tried before the one that was asked for."""

import pytest

from graphguard.checks.judging.meshes import all_meshes, meshes_to_try, smaller_meshes


@pytest.mark.parametrize(
    ("mesh", "smaller"),
    [
        ({"tp": 2}, []),
        ({"tp": 4}, [{"tp": 2}]),
        ({"tp": 3}, [{"tp": 2}]),
        ({"dp": 2, "tp": 2}, [{"dp": 1, "tp": 2}, {"dp": 2, "tp": 1}]),
        ({"dp": 2, "tp": 4}, [{"dp": 1, "tp": 2}, {"dp": 2, "tp": 1}, {"dp": 1, "tp": 4}]),
        ({}, []),
    ],
)
def test_smaller_meshes_keep_every_axis_and_come_smallest_first(mesh, smaller):
    assert smaller_meshes(mesh) == smaller


@pytest.mark.parametrize(
    ("mesh", "others"),
    [
        ({"tp": 4}, [{"tp": 1}]),
        ({"tp": 1}, []),
        ({"dp": 2, "tp": 3, "pp": 1}, [{"dp": 1, "tp": 3, "pp": 1}, {"dp": 2, "tp": 1, "pp": 1}]),
        ({}, []),
    ],
)
def test_on_each_of_the_other_meshes_one_axis_has_one_rank(mesh, others):
    assert meshes_to_try(mesh) == others


@pytest.mark.parametrize(
    ("mesh", "others"),
    [
        ({"tp": 2}, [{"tp": 1}, {"tp": 3}, {"tp": 4}]),
        ({"tp": 4}, [{"tp": 1}, {"tp": 2}, {"tp": 5}, {"tp": 8}]),
        ({"dp": 2, "tp": 3}, [{"dp": 1, "tp": 3}, {"dp": 2, "tp": 1}, {"dp": 1, "tp": 2}, {"dp": 2, "tp": 4}]),
    ],
)
def test_all_meshes_have_larger_ones_too_and_each_once(mesh, others):
    assert all_meshes(mesh) == others
