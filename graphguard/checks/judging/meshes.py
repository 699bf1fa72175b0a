"""Smaller meshes with the same axes: a counterexample is easier to follow there, and a fix that only fits the sizes of one mesh is found out."""

from __future__ import annotations

from itertools import product
from math import prod

TRIES = 3
_MANY = 8  # ranks of a mesh that is tried although it is larger than the one that was asked for


def smaller_meshes(mesh: dict[str, int]) -> list[dict[str, int]]:
    """Meshes of fewer ranks that have every axis at one rank, at two, or as it is, the smallest first; more than one rank in all."""
    choices = [sorted({1, min(size, 2), size}) for size in mesh.values()]
    found = [dict(zip(mesh, sizes, strict=True)) for sizes in product(*choices)]
    smaller = [each for each in found if 1 < prod(each.values()) < prod(mesh.values())]
    return sorted(smaller, key=lambda each: prod(each.values()))[:TRIES]


def meshes_to_try(mesh: dict[str, int]) -> list[dict[str, int]]:
    """Meshes on which what is right is right as well, and a factor that happens to be the size of an axis is another: one axis at a time has one rank."""
    if len(mesh) == 1:
        return [dict.fromkeys(mesh, 1)] if prod(mesh.values()) > 1 else []
    return [{**mesh, axis: 1} for axis, size in mesh.items() if size > 1][:TRIES]


def all_meshes(mesh: dict[str, int]) -> list[dict[str, int]]:
    """The meshes to try, the smaller ones, and those of which one axis has more ranks: what is right by chance where each has a neighbour alone is found out there."""
    longer = [{**mesh, axis: other} for axis, size in mesh.items() for other in (size + 1, 2 * size)]
    found = (*meshes_to_try(mesh), *smaller_meshes(mesh), *(each for each in longer if prod(each.values()) <= _MANY))
    return [each for place, each in enumerate(found) if each not in found[:place]]
