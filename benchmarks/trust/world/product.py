"""Programs through the product, as ``gg.verify`` takes them."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import graphguard as gg
from benchmarks.trust.programs import ROOT
from benchmarks.trust.world.program import loaded
from graphguard.report.diagnostics import Report, Verdict


@dataclass(frozen=True, slots=True)
class Said:
    """What the product said: ``refines``, ``broken``, ``unknown``, ``not run`` or ``crash``; by which rule, in which words, where."""

    verdict: str
    rule: str = ""
    text: str = ""
    line: str = ""
    seconds: float = 0.0

    @property
    def headline(self) -> str:
        """Its first line."""
        return self.text.partition("\n")[0]


_NAMES = {Verdict.REFINES: "refines", Verdict.BROKEN: "broken", Verdict.UNKNOWN: "unknown", None: "not run"}


def said(path: Path) -> Said:
    """Verify the program in a file."""
    names = loaded(path)
    impl = names["impl"]
    began = time.perf_counter()
    try:
        report = gg.verify(
            names["spec"],
            lambda mesh: functools.partial(impl, mesh) if len(names["MESH"]) > 1 else impl,
            tuple(gg.tensor(*shape, dtype=names["D"]) for shape in names["SHAPES"]),
            mesh=names["MESH"],
            in_relations=tuple(relation or {} for relation in names["IN"]),
            out_relations=names["OUT"],
            grads=False,
        )
    except Exception:  # noqa: BLE001 - a defect of the product's, which is what this looks for
        return Said("crash", text=traceback.format_exc().strip().splitlines()[-1], seconds=time.perf_counter() - began)
    return _said(report, path, time.perf_counter() - began)


def _said(report: Report, path: Path, seconds: float) -> Said:
    verdict = _NAMES[report.verdict]
    if not report.diagnostics:
        return Said(verdict, seconds=seconds)
    first = report.diagnostics[0]
    own = first.span is not None and Path(first.span.file) == path
    line = path.read_text().splitlines()[first.span.line - 1].strip() if own and first.span else ""
    return Said(verdict, first.rule, first.message, line, seconds)


class Product:
    """A process of its own that verifies programs: the product ends what it finds among the children of the process that calls it."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        ours, theirs = Pipe()
        command = [sys.executable, "-m", "benchmarks.trust.world.product", str(theirs.fileno())]
        self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        self._connection = ours
        theirs.close()

    def begin(self, path: Path) -> None:
        """Verify a program while the caller does something else."""
        self._connection.send(path)

    def end(self) -> Said:
        """What was said of it."""
        try:
            answer: Said = self._connection.recv()
        except EOFError:
            self._start()
            return Said("crash", text="the process that called gg.verify has ended")
        return answer

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.wait()


def main() -> None:
    """Serve until the other side is gone."""
    from benchmarks.trust.world.product import said as verified  # what is pickled here is unpickled elsewhere

    connection = Connection(int(sys.argv[1]))
    while True:
        try:
            path = connection.recv()
        except EOFError:
            return
        connection.send(verified(path))


if __name__ == "__main__":
    main()
