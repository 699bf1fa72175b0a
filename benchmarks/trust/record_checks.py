"""Record every check of files on each of its meshes: ``python -m benchmarks.trust.record_checks FOLDER FILE ...``; one JSON file each."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from graphguard.ir import CheckRef, Span
from graphguard.ir.codec import capture_to_json
from graphguard.trace.claims.api import MARK
from graphguard.trace.process.limits import Limits, default_memory
from graphguard.trace.programs import ranks
from graphguard.trace.programs.rehearsal import rehearse
from graphguard.trace.source.sources import ProjectFiles, import_file


def main() -> None:
    """The command."""
    folder, *files = sys.argv[1:]
    rehearse()
    ranks.settle()
    for file in map(Path, files):
        module = import_file(str(file), str(file.parent), ProjectFiles({}))
        for name, function in list(vars(module).items()):
            check = getattr(function, MARK, None)
            for mesh in check.meshes if check is not None else ():
                ref = CheckRef(f"{file.name}::{name}", name, Span(str(file), 1))
                limits = Limits(120.0, default_memory())
                job = ranks.Job(function, dict(mesh), ref, str(file.parent), limits, time.monotonic())
                capture, _ = ranks.record(job, print)
                label = "-".join(f"{axis}{size}" for axis, size in mesh.items())
                Path(folder, f"{file.stem}.{name}.{label}.json").write_bytes(capture_to_json(capture))


if __name__ == "__main__":
    main()
