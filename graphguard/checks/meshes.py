"""Smaller meshes with the same axes, on which a counterexample is easier to follow and to run."""

from __future__ import annotations

from itertools import product
from math import prod

TRIES = 3


def smaller_meshes(mesh: dict[str, int]) -> list[dict[str, int]]:
    """Meshes of fewer ranks that have every axis at one rank, at two, or as it is, the smallest first; more than one rank in all."""
    choices = [sorted({1, min(size, 2), size}) for size in mesh.values()]
    found = [dict(zip(mesh, sizes, strict=True)) for sizes in product(*choices)]
    smaller = [each for each in found if 1 < prod(each.values()) < prod(mesh.values())]
    return sorted(smaller, key=lambda each: prod(each.values()))[:TRIES]
