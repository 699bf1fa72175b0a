"""Meshes as they are written on the command line."""

from __future__ import annotations


class MeshError(ValueError):
    """The text is not a mesh; the message is for the user."""


def parse_mesh(text: str) -> dict[str, int]:
    """The mesh of ``tp=4,dp=2``: axes in order, each with its size; raises :class:`MeshError`."""
    mesh: dict[str, int] = {}
    for part in text.split(","):
        axis, equals, size = (piece.strip() for piece in part.partition("="))
        if not equals or not axis.isidentifier() or not size.isdecimal() or int(size) < 1:
            raise MeshError(f"{part.strip()!r} is not an axis with its size: write, for example, tp=4,dp=2")
        if axis in mesh:
            raise MeshError(f"the axis {axis!r} is there twice")
        mesh[axis] = int(size)
    return mesh
