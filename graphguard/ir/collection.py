"""Python's garbage collector, out of the way where much is made and nothing is thrown away."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_MANY: Final = 200_000  # objects; fewer are looked through in a tenth of a second


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage collection inside: to look through millions of live objects costs more than to make them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def set_aside() -> None:
    """Have the collector never look through what there is, where much was made since it last did: the next request would wait for that.

    For processes of our own, which keep what they made until it is asked for no more.  Proofs and findings are no cycles, so they go when nobody holds them all the same;
    :func:`take_back` is for when most should have gone.
    """
    if gc.get_count()[0] > _MANY:
        gc.freeze()


def take_back() -> None:
    """Have the collector look through everything again."""
    gc.unfreeze()
