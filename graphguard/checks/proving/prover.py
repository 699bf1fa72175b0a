"""The prover: the pure-Python side of a check, as a table of methods over plain data.

The command line calls :class:`Prover` in its own process; the language server runs ``python -m graphguard.checks.proving.prover``
and sends the same calls as framed messages.  No torch and no user code is ever imported here.
"""

from __future__ import annotations

import hashlib
import os
import queue
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO

from graphguard.checks.explorer.drawing import picture
from graphguard.checks.proving.claims import claimed
from graphguard.checks.proving.places import places
from graphguard.checks.proving.shelf import user_shelf
from graphguard.confirm.confirmation import Confirmation
from graphguard.diagnose.diagnosis import diagnose
from graphguard.ir import Capture, Var, capture_from_json, capture_to_json
from graphguard.ir.collection import set_aside, take_back, without_collection
from graphguard.ir.fuel import burnt
from graphguard.ir.ignored import without_ignored
from graphguard.ir.likeness import calls_between, same_question
from graphguard.ir.plain import from_plain, to_plain
from graphguard.ir.puts import Put
from graphguard.refine.proving.attempts import Effort
from graphguard.refine.proving.memo import Memo, Shelf
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import all_at_once, finished, prove
from graphguard.relations.interruption import INTERRUPTION, InterruptedProofError
from graphguard.relations.layouts import layout
from graphguard.repair.drafting.candidates import Candidate, candidates
from graphguard.repair.graph.edits import Scale
from graphguard.repair.nearby.near import nearby, places_of, scene_of
from graphguard.repair.nearby.needed import expressions, told
from graphguard.repair.nearby.slices import rested_on
from graphguard.repair.nearby.values import depths, held, sites, trials
from graphguard.repair.text.frames import Read, Sources, reader
from graphguard.repair.text.same_meaning import asks_the_same
from graphguard.repair.trying.diagnosed import Diagnosis
from graphguard.repair.trying.trials import holds
from graphguard.repair.writing.applied import applied, texts_after
from graphguard.repair.writing.varied import brings_numbers, brings_size, said_by, varied
from graphguard.report.diagnostics import Fix, TextEdit
from graphguard.trace.process import wire
from graphguard.trace.process.parentage import die_with_starter

KEPT_PROOFS = 64
_UNREDUCED = ("missing-reduction", "gradient-not-reduced")
# What may be given up underway: everything else is short, or leaves something behind that is asked again.
_INTERRUPTIBLE = ("prove", "at_once", "finish", "diagnose")
_CANCELLED: dict[str, Any] = {"error": {"code": "cancelled", "message": "the request was cancelled"}}


@dataclass(slots=True)
class _Entry:
    capture: Capture
    proof: Proof
    exposed: bool = False
    diagnosis: Diagnosis | None = None
    finished: bool = False


def _key_of(capture: bytes) -> str:
    return hashlib.sha256(capture).hexdigest()[:32]


class Prover:
    """Answers the ``prover`` steps of :func:`graphguard.checks.judging.steps.check_steps`; keeps the last proofs for follow-up questions.

    With a shelf it knows what provers before it proved.
    """

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._memo = Memo(shelf)
        self._methods: dict[str, Callable[..., Any]] = {
            "prove": self.prove,
            "at_once": self.at_once,
            "finish": self.finish,
            "relations": self.relations,
            "layouts": self.layouts,
            "audit": self.audit,
            "diagnose": self.diagnose,
            "candidates": self.candidates,
            "nearby": self.nearby,
            "values": self.values,
            "needed": self.needed,
            "held": self.held,
            "same_question": self.same_question,
            "calls_between": self.calls_between,
            "uneven": self.uneven,
            "texts": self.texts,
            "places": self.places,
            "claimed": self.claimed,
            "picture": self.picture,
            "clear": self.clear,
            "ping": lambda: "pong",
        }

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Run one method; raises ``KeyError`` for an unknown method or a proof that is no longer kept."""
        return self._methods[method](**params)

    def prove(self, capture: bytes, ignored: bool = True, effort: Effort = "usual") -> dict[str, Any]:
        """Try to prove a capture (JSON bytes): ``{"proof": key, "outcome": Outcome, "seconds", "burnt", "cached", "calls", "evaluated", "exposed", "ignored"}``.

        ``burnt`` is the fuel that it took, ``calls`` are those of both programs, ``evaluated`` those that no proof before this one answered for.  ``exposed`` is the capture that the
        proof is of, where that is another one than was given: arithmetic in a narrower type than the specification's is written as such in it.  ``ignored`` says whether some targets may be
        ignored ones; without it the claim is proved for the others alone.  An ``effort`` of ``patient`` gives a proof that was hurried more time, ``hasty``
        leaves out what seldom proves more; ``finish`` makes up for it.
        """
        started, before = time.perf_counter(), burnt()
        key = _key_of(capture)
        ways = {" without ignored targets": not ignored, f" {effort}": effort != "usual"}
        key += "".join(text for text, taken in ways.items() if taken)
        entry = self._entries.get(key)
        cached = entry is not None
        if entry is None:
            decoded = capture_from_json(capture)
            decoded = decoded if ignored else without_ignored(decoded)
            proof = prove(decoded, self._memo, effort=effort)
            INTERRUPTION.check()
            entry = self._entries[key] = _Entry(proof.capture, proof, proof.capture is not decoded)
            while len(self._entries) > KEPT_PROOFS:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        seconds = time.perf_counter() - started
        return {
            "proof": key,
            "outcome": to_plain(entry.proof.outcome),
            "seconds": seconds,
            "burnt": burnt() - before,
            "cached": cached,
            "calls": entry.proof.calls,
            "evaluated": 0 if cached else entry.proof.evaluated,
            "exposed": capture_to_json(entry.capture) if entry.exposed else None,
            "ignored": any(leaf.ignored is not None for leaf in entry.capture.leaves),
        }

    def at_once(self, capture: bytes) -> dict[str, Any]:
        """Whether all ranks of a capture are proved at once: ``{"proved", "digits"}``, the axes along which they run one program.

        A proof is kept for :meth:`prove`.
        """
        decoded = capture_from_json(capture)
        proof, digits = all_at_once(decoded)
        INTERRUPTION.check()
        if proof is not None:
            self._entries[f"{_key_of(capture)} hasty"] = _Entry(decoded, proof)
        return {"proved": proof is not None, "digits": list(digits)}

    def finish(self, proof: str) -> dict[str, Any]:
        """What more time makes of a hasty proof: ``{"outcome": Outcome, "seconds", "burnt"}``."""
        started, before = time.perf_counter(), burnt()
        entry = self._entries[proof]
        if not entry.finished:
            proved = finished(entry.proof, self._memo)
            INTERRUPTION.check()
            entry.proof, entry.finished = proved, True
        seconds = time.perf_counter() - started
        return {"outcome": to_plain(entry.proof.outcome), "seconds": seconds, "burnt": burnt() - before}

    def audit(self, capture: bytes) -> dict[str, Any]:
        """What every step of a proof of a capture comes to when it is read again: an :class:`~graphguard.refine.evaluation.audits.Audited` as plain data.

        The capture is proved anew, with nothing that is remembered, patiently, and every rank for itself.
        """
        from graphguard.refine.evaluation.audits import logged, summed

        decoded = capture_from_json(capture)
        with logged() as logs:
            proof = prove(decoded, effort="patient", digits_above=len(decoded.ranks))
        INTERRUPTION.check()
        found = summed(logs, proved=proof.outcome.proved)
        INTERRUPTION.check()
        return {**asdict(found), "text": str(found)}

    def relations(self, proof: str) -> dict[str, str]:
        """The relation of every tensor of the specification that has one, as text."""
        return {name: str(relation) for name, relation in self._entries[proof].proof.relations().items()}

    def layouts(self, proof: str) -> dict[str, str]:
        """The same in DTensor's words, such as ``Shard(0) over tp``, for the tensors whose relation is one of placements."""
        known = self._entries[proof].proof.relations().items()
        return {name: layout(relation) for name, relation in known if relation.placements is not None}

    def diagnose(
        self, proof: str, confirmation: dict[str, Any] | None, sources: dict[str, str]
    ) -> list[dict[str, Any]]:
        """The findings that explain a failed proof, given what numbers said; ``sources`` are unsaved texts by path."""
        entry = self._entries[proof]
        numbers = None if confirmation is None else from_plain(Confirmation, confirmation)
        diagnosis = diagnose(entry.capture, entry.proof, numbers, reader(sources))
        if INTERRUPTION.wanted:
            del self._entries[proof]  # what it had begun to look up may be cut short as well
        INTERRUPTION.check()
        entry.diagnosis = diagnosis
        return [to_plain(finding) for finding in entry.diagnosis.findings]

    def candidates(
        self, proof: str, finding: int, sources: dict[str, str], before: Sequence[dict[str, Any]] = ()
    ) -> list[dict[str, Any]]:
        """Edits that would mend a finding on the graph, best first, not yet traced: ``{"fix": Fix, "texts": {path: edited source}, "headline": str, "varied": texts with other constants | None, "plain": the same without the edit, "brings_numbers": bool, "brings_size": bool}``.

        ``sources`` are unsaved texts by path; other files are read from disk.  ``before`` are edits that the texts have as well.
        """
        entry = self._entries[proof]
        if entry.diagnosis is None:
            return []
        edits = tuple(from_plain(TextEdit, row) for row in before)
        read = reader(sources)
        return _rows(entry.capture, candidates(entry.capture, entry.diagnosis, finding, read, edits), read)

    def nearby(
        self,
        proof: str,
        finding: int,
        sources: dict[str, str],
        before: Sequence[dict[str, Any]] = (),
        wanted: str = "texts",
    ) -> list[dict[str, Any]]:
        """Edits made of what the files have already, near a finding, best first, in the form of :meth:`candidates`; ``wanted`` as in :func:`~graphguard.repair.nearby.near.nearby`.

        No decisions of a layout or a factor that one edit of the graphs puts right: that is where it goes wrong.  One decision may explain what several edits mend.
        """
        entry = self._entries[proof]
        if entry.diagnosis is None:
            return []
        explained = entry.diagnosis.repairs[finding] is not None
        told = entry.diagnosis.findings
        if explained and wanted == "decisions" and len(told) == 1 and told[0].rule != "wrong-relation":
            return []
        edits = tuple(from_plain(TextEdit, row) for row in before)
        read = reader(sources)
        found = nearby(entry.diagnosis.findings[finding], Sources.of(entry.capture, read), edits, wanted)
        return [{**row, "explained": explained} for row in _rows(entry.capture, found, read)]

    def values(
        self,
        proof: str,
        finding: int,
        sources: dict[str, str],
        observed: list[list[Any]] | None = None,
        behind: int | None = None,
    ) -> list[Any]:
        """Places near a finding whose values a recording may be asked for; of what was ``observed`` there, other values, best first: ``{"put", "told", "title", "place"}``.

        Where an edit of the graphs says what is wrong, at the places alone that it rests on, unless it is a reduction, which a branch may leave out, or memory that is written through another name; with ``behind``, at those that the value of one comes from, the farthest first.
        """
        entry = self._entries[proof]
        if entry.diagnosis is None:
            return []
        told = entry.diagnosis.findings[finding]
        texts = Sources.of(entry.capture, reader(sources))
        scene = scene_of(told, texts)
        known = sites(scene)
        if observed is None:
            return [site.place for site in known]
        repair = entry.diagnosis.repairs[finding]
        edit = None if repair is None else repair.hypothesis.edit
        factor = edit.factor if isinstance(edit, Scale) else None
        rested = rested_on(scene, places_of(told, texts))
        found = trials(known, held(observed), scene.sizes, factor, told.rule, rested)
        if repair is not None and told.rule not in _UNREDUCED:
            found = [one for one in found if known[one.site].node in rested or one.put["make"] == "copy"]
        if behind is not None:
            away = depths(scene, known, behind)
            found = [replace(one, cost=-away[one.site]) for one in found if one.site in away]
            found = sorted(found, key=lambda one: one.cost)
        return [
            {
                "site": one.site,
                "put": dict(one.put),
                "told": one.told,
                "title": one.title,
                "place": to_plain(known[one.site].span),
                "explained": repair is not None,
                "cost": one.cost,
            }
            for one in found
        ]

    def needed(
        self, proof: str, finding: int, sources: dict[str, str], observed: list[list[Any]], put: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Edits that write at a place, with what is in sight there, the values that were ``put`` there and mended, in the form of :meth:`candidates`."""
        entry = self._entries[proof]
        if entry.diagnosis is None:
            return []
        read = reader(sources)
        texts = Sources.of(entry.capture, read)
        site = sites(scene_of(entry.diagnosis.findings[finding], texts))[put["place"]]
        found, meant = [], Put.of(put)
        for text in expressions(site, held(observed)[put["place"]], meant):
            edits = (TextEdit(site.span, text),)
            after = applied(edits, texts)
            if after is not None:
                fix = Fix(f"write {text}", edits, proved=False, place=site.span)
                found.append(Candidate(fix, after, told(site, meant, text)))
        return [
            {**row, "explained": entry.diagnosis.repairs[finding] is not None}
            for row in _rows(entry.capture, found, read)
        ]

    def texts(self, edits: list[dict[str, Any]], sources: dict[str, str]) -> dict[str, str] | None:
        """The texts of the files after edits, by path; None where they would not parse."""
        return texts_after(tuple(from_plain(TextEdit, row) for row in edits), reader(sources))

    def held(self, proof: str, variables: list[int]) -> bool:
        """Whether the ranks hold each of these tensors of the specification, by its number."""
        entry = self._entries[proof]
        return all(holds(entry.proof, Var(number)) for number in variables)

    def same_question(self, proof: str, other: str, by_meaning: bool = False) -> bool:
        """Whether two proofs are of specifications that compute the same, and of promises that agree: an edit that gives the specification another meaning mends nothing.

        They are compared ``by_meaning``, by proof, or word by word.
        """
        first, second = self._entries[proof].capture, self._entries[other].capture
        return asks_the_same(first, second) if by_meaning else same_question(first, second)

    def calls_between(self, proof: str, other: str) -> int:
        """How many calls of the ranks only one of two proofs has: how much a change of the program changed."""
        return calls_between(self._entries[proof].capture, self._entries[other].capture)

    def uneven(self, proof: str) -> bool:
        """Whether some ranks are given a part of another shape than others of the same input or parameter."""
        shapes: dict[str, set[object]] = {}
        for graph in self._entries[proof].capture.ranks:
            given = dict(graph.inputs)
            for node in graph.nodes:
                if node.phase == "prelude":  # where parts are cut
                    for var in node.outs:
                        given[var] = next((given.pop(read) for read in node.reads if read in given), "")
            for var, name in given.items():
                shapes.setdefault(name, set()).add(graph.types[var].shape)
        return any(len(found) > 1 for name, found in shapes.items() if name)

    def places(self, proof: str) -> list[dict[str, Any]]:
        """What every tensor in the user's source is, for hover and hints."""
        entry = self._entries[proof]
        return [to_plain(place) for place in places(entry.capture, entry.proof)]

    def claimed(self, proof: str) -> list[str]:
        """What the check claims, line by line, for hover."""
        return list(claimed(self._entries[proof].capture))

    def picture(self, proof: str) -> dict[str, Any]:
        """Both programs side by side, row by row, for the relation explorer."""
        entry = self._entries[proof]
        return dict(to_plain(picture(entry.capture, entry.proof)))

    def clear(self) -> None:
        """Forget every proof."""
        self._entries.clear()
        self._memo.clear()


def _rows(capture: Capture, found: Sequence[Candidate], read: Read) -> list[dict[str, Any]]:
    """Candidates as plain data, with the texts in which other constants stand."""
    known = "" if capture.spec is None else said_by(capture.spec, read)
    return [
        {
            "fix": to_plain(each.fix),
            "texts": each.texts,
            "headline": each.headline,
            "varied": varied(each.fix.edits, each.texts, read, known),
            "plain": varied(each.fix.edits, {file: read(file) or "" for file in each.texts}, read, known),
            "brings_numbers": brings_numbers(each.fix.edits, read, known),
            "brings_size": brings_size(each.fix.edits, read, known, capture.mesh.values()),
        }
        for each in found
    ]


class Service:
    """Answers framed calls one after the other; a thread reads ahead, so that a proof nobody waits for any more ends at once."""

    def __init__(self, prover: Prover, source: BinaryIO, sink: BinaryIO) -> None:
        self._prover = prover
        self._source = source
        self._sink = sink
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._cancelled: set[Any] = set()
        self._running: dict[str, Any] = {}
        self._parent = os.getppid()

    def serve(self) -> None:
        """Answer until the input ends."""
        threading.Thread(target=self._read, daemon=True).start()
        while (message := self._waiting.get()) is not None:
            with self._lock:
                self._running, INTERRUPTION.wanted = message, False
                dropped = message["id"] in self._cancelled
                self._cancelled.discard(message["id"])
            with without_collection():  # until the answer is out
                answer = _CANCELLED if dropped else _answer(self._prover, message)
                with self._lock:
                    self._running, INTERRUPTION.wanted = {}, False
                self._write({"id": message["id"], **answer})
                if message.get("method") == "clear":
                    take_back()
                else:
                    set_aside()

    def _read(self) -> None:
        """Hear until the input ends, or until the answer to a ping finds nobody; then the process ends as well."""
        try:
            self._hear()
        finally:
            if os.getppid() != self._parent:
                os._exit(1)  # nobody is left to answer to, however busy this process is
            self._waiting.put(None)

    def _hear(self) -> None:
        while (message := wire.read(self._source)) is not None:
            if message.get("method") == "cancel":
                self._cancel(message["params"]["id"])
            elif message.get("method") == "ping":
                self._write({"id": message["id"], "result": "pong"})
            elif "id" in message:
                self._waiting.put(message)

    def _cancel(self, number: Any) -> None:
        with self._lock:
            if self._running.get("id") != number:
                self._cancelled.add(number)
            elif self._running.get("method") in _INTERRUPTIBLE:
                INTERRUPTION.wanted = True

    def _write(self, message: dict[str, Any]) -> None:
        with self._lock:
            wire.write(self._sink, message)


def main() -> None:
    """Answer framed calls on standard input and output until the input ends; stray prints go to standard error.

    With ``--no-cache`` nothing is known of what was proved before, and nothing is kept.
    """
    die_with_starter()
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    shelf = None if "--no-cache" in sys.argv else user_shelf()
    Service(Prover(shelf), sys.stdin.buffer, stream).serve()


def _answer(prover: Prover, message: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": prover.call(message["method"], message.get("params", {}))}
    except InterruptedProofError:
        return _CANCELLED
    except Exception as error:  # noqa: BLE001  a defect of ours must reach the log of whoever asked, and end nothing else
        return {"error": {"code": type(error).__name__, "message": f"{error}\n{traceback.format_exc()}"}}


if __name__ == "__main__":
    main()
