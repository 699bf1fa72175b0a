"""A script as a check: what a child of the worker does for ``graphguard torchrun``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NoReturn

from graphguard.ir import Capture, CheckRef, Span
from graphguard.trace.depends.chance import generators
from graphguard.trace.depends.footprint import Footprint, Watch
from graphguard.trace.depends.unshared import Processes
from graphguard.trace.process.children import Link
from graphguard.trace.process.limits import Limits
from graphguard.trace.scripts.script import Script
from graphguard.trace.source.assumptions import assuming
from graphguard.trace.source.sources import ProjectFiles


def reference_of(script: Script) -> CheckRef:
    """How a report names a script, and where it shows it."""
    return CheckRef(script.name, script.name, Span(script.path, 1))


def capture_script(
    script: Script,
    mesh: dict[str, int],
    root: str,
    overlay: Mapping[str, str],
    limits: Limits,
    link: Link,
    *,
    processes: Processes,
) -> tuple[Capture, Footprint]:
    """Record a script on one rank and on all; whatever is wrong with it is among the capture's troubles."""
    from graphguard.trace.programs.job import Job
    from graphguard.trace.programs.ranks import record
    from graphguard.trace.programs.session import show

    files = ProjectFiles(overlay)
    watch = Watch(files)
    link.tell({"progress": {"stage": "trace"}})
    job = Job(
        _unbuilt,
        mesh,
        reference_of(script),
        root,
        limits,
        time.monotonic(),
        watch,
        learn=lambda calls: link.tell({"unseen": list(calls)}),
        generators=generators(),
        processes=processes,
        alone=_unbuilt,
        script=script,
        files=files,
    )
    capture, footprint = record(job, show)
    return assuming(capture, footprint.sources), footprint


def _unbuilt(_: Any) -> NoReturn:
    raise AssertionError("a script is run, and not built")
