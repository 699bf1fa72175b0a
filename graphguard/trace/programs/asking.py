"""What the programs of a check tell each other while they are recorded, over the process that forked them all."""

from __future__ import annotations

import pickle
from typing import Any, Protocol


class NoSpecificationError(Exception):
    """The specification failed, and its trouble says why: the ranks that wait for it have nothing to add."""


class Asked(Protocol):
    """Whom the specification tells what the ranks need to know, and ranks ask for it: the process that forked their own.

    Messages are ``{"tell": topic, "value": bytes}``, and ``{"ask": topic}`` and ``{"stand": bytes}``, which are answered by ``{"value": bytes}``.
    """

    def tell(self, message: dict[str, Any]) -> None:
        """Send one message."""
        ...

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send one message and wait for the answer."""
        ...


def answer(link: Asked, topic: str) -> Any:
    """What the specification told of a topic; None where it ended without."""
    return pickle.loads(link.ask({"ask": topic})["value"])  # noqa: S301 - from our parent, which has it from our sibling
