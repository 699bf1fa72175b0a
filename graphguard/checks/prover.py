"""The prover: the pure-Python side of a check, as a table of methods over plain data.

The command line calls :class:`Prover` in its own process; the language server runs ``python -m graphguard.checks.prover``
and sends the same calls as framed messages.  No torch and no user code is ever imported here.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphguard.checks.explorer import picture
from graphguard.checks.places import places
from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, capture_from_json
from graphguard.ir.plain import from_plain, to_plain
from graphguard.refine.prove import Proof, prove
from graphguard.repair.candidates import candidates
from graphguard.repair.diagnosis import Diagnosis, diagnose
from graphguard.repair.frames import reader
from graphguard.trace import wire

KEPT_PROOFS = 64


@dataclass(slots=True)
class _Entry:
    capture: Capture
    proof: Proof
    diagnosis: Diagnosis | None = None


class Prover:
    """Answers the ``prover`` steps of :func:`graphguard.checks.steps.check_steps`; keeps the last proofs for follow-up questions."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._methods: dict[str, Callable[..., Any]] = {
            "prove": self.prove,
            "relations": self.relations,
            "diagnose": self.diagnose,
            "candidates": self.candidates,
            "places": self.places,
            "picture": self.picture,
            "clear": self.clear,
            "ping": lambda: "pong",
        }

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Run one method; raises ``KeyError`` for an unknown method or a proof that is no longer kept."""
        return self._methods[method](**params)

    def prove(self, capture: bytes) -> dict[str, Any]:
        """Try to prove a capture (JSON bytes): ``{"proof": key, "outcome": Outcome, "seconds"}``."""
        started = time.perf_counter()
        key = hashlib.sha256(capture).hexdigest()[:32]
        entry = self._entries.get(key)
        cached = entry is not None
        if entry is None:
            decoded = capture_from_json(capture)
            entry = self._entries[key] = _Entry(decoded, prove(decoded))
            while len(self._entries) > KEPT_PROOFS:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        seconds = time.perf_counter() - started
        return {"proof": key, "outcome": to_plain(entry.proof.outcome), "seconds": seconds, "cached": cached}

    def relations(self, proof: str) -> dict[str, str]:
        """The relation of every tensor of the specification that has one, as text."""
        return {name: str(relation) for name, relation in self._entries[proof].proof.relations().items()}

    def diagnose(
        self, proof: str, confirmation: dict[str, Any] | None, sources: dict[str, str]
    ) -> list[dict[str, Any]]:
        """The findings that explain a failed proof, given what numbers said; ``sources`` are unsaved texts by path."""
        entry = self._entries[proof]
        numbers = None if confirmation is None else from_plain(Confirmation, confirmation)
        entry.diagnosis = diagnose(entry.capture, entry.proof, numbers, reader(sources))
        return [to_plain(finding) for finding in entry.diagnosis.findings]

    def candidates(self, proof: str, finding: int, sources: dict[str, str]) -> list[dict[str, Any]]:
        """Edits that would mend a finding on the graph, best first, not yet traced: ``{"fix": Fix, "texts": {path: edited source}}``.

        ``sources`` are unsaved texts by path; other files are read from disk.
        """
        entry = self._entries[proof]
        if entry.diagnosis is None:
            return []
        found = candidates(entry.capture, entry.diagnosis, finding, reader(sources))
        return [{"fix": to_plain(candidate.fix), "texts": candidate.texts} for candidate in found]

    def places(self, proof: str) -> list[dict[str, Any]]:
        """What every tensor in the user's source is, for hover and hints."""
        entry = self._entries[proof]
        return [to_plain(place) for place in places(entry.capture, entry.proof)]

    def picture(self, proof: str) -> dict[str, Any]:
        """Both programs as boxes and edges, for the relation explorer."""
        entry = self._entries[proof]
        return dict(to_plain(picture(entry.capture, entry.proof)))

    def clear(self) -> None:
        """Forget every proof."""
        self._entries.clear()


def main() -> None:
    """Answer framed calls on standard input and output until the input ends; stray prints go to standard error."""
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    prover = Prover()
    while (message := wire.read(sys.stdin.buffer)) is not None:
        if "id" in message:
            wire.write(stream, {"id": message["id"], **_answer(prover, message)})


def _answer(prover: Prover, message: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": prover.call(message["method"], message.get("params", {}))}
    except Exception as error:  # noqa: BLE001  a defect of ours must reach the log of whoever asked, and end nothing else
        return {"error": {"code": type(error).__name__, "message": f"{error}\n{traceback.format_exc()}"}}


if __name__ == "__main__":
    main()
