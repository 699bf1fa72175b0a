"""What a child of the worker does for one request: import the user's file, find the check, record it; or run a capture on numbers."""

from __future__ import annotations

import itertools
import os
import sys
import time
import traceback
from dataclasses import replace
from types import ModuleType
from typing import Any

from graphguard.confirm.confirmation import Confirmation
from graphguard.ir import Capture, Span, Trouble, capture_from_json
from graphguard.ir.plain import to_plain
from graphguard.trace.claims.api import as_mesh
from graphguard.trace.depends.chance import are_drawn_from, generators, load_generators, watched
from graphguard.trace.depends.footprint import Footprint, Watch, text_digest
from graphguard.trace.depends.unshared import Processes, asked_while_imported, importing
from graphguard.trace.gpu.asking_files import asking_files
from graphguard.trace.process.children import Ending, Link
from graphguard.trace.process.limits import Limits
from graphguard.trace.programs.importing import (
    Found,
    Target,
    declared,
    declared_in_text,
    find,
    load,
    reference,
    with_place,
)
from graphguard.trace.programs.troubles import trouble_of
from graphguard.trace.source.assumptions import assuming
from graphguard.trace.source.errors import TracingError
from graphguard.trace.source.probes import Probes, probe
from graphguard.trace.source.sources import ProjectFiles, file_of, is_installed

# Libraries that are slow to import, start no threads, and do not ask which rank they are in.
_LIBRARIES = frozenset(
    (
        "transformers",
        "tokenizers",
        "safetensors",
        "huggingface_hub",
        "numpy",
        "einops",
        "megatron",
        "torchtitan",
        "torchtune",
        "fairscale",
    )
)


class RankDependentImportError(Exception):
    """The file asked while it was imported for what ranks do not share: every rank must import it for itself.  ``mesh`` is that of the check, where the import got to it."""

    def __init__(self, mesh: dict[str, int] | None = None) -> None:
        super().__init__()
        self.mesh = mesh


def capture_check(
    target: Target,
    name: str,
    mesh: dict[str, int] | None,
    limits: Limits,
    link: Link,
    *,
    each_rank_imports: bool = False,
    machines: int = 1,
    processes: Processes = "apart",
    ranks: int | None = None,
    probes: Probes | None = None,
) -> tuple[Capture, Footprint]:
    """Record one check; whatever is wrong with the user's code is among the capture's troubles.

    The file is imported once and the ranks are forked from there; raises ``RankDependentImportError`` where that is not the same as importing it in every
    rank, which ``each_rank_imports`` does.  ``probes`` are told what the programs hold at places of their files.
    """
    from graphguard.trace.programs.job import Job
    from graphguard.trace.programs.ranks import record

    began, used, loaded = time.monotonic(), time.process_time(), len(sys.modules)
    files = ProjectFiles(target.overlay)
    watch = Watch(files)
    fallback = reference(target, name)
    if probes is not None:
        probe(probes)
    link.tell({"progress": {"stage": "import"}})
    before = generators()
    try:
        watch.install()
        if each_rank_imports:
            found = _in_every_rank(target, files, name, mesh)
        else:
            with importing(), watched():
                found = find(target, files, name, mesh)
    except BaseException as error:
        if not each_rank_imports and (watch.rank_dependent or _needs_world(error)):
            raise RankDependentImportError from error
        trouble = trouble_of(error, f"importing {os.path.basename(target.file)}", target.root, fallback.span)
        capture = Capture(fallback, mesh or {}, (), None, (), (), (trouble,), sources=watch.found().digests())
        return capture, watch.found()
    if watch.rank_dependent and not each_rank_imports:
        raise RankDependentImportError
    # where the text does not tell of the check, no rank can import it for itself
    by_text = any(one.ref.name == name for one in declared_in_text(target))
    if not each_rank_imports and by_text and (asked_while_imported() or are_drawn_from(before)):
        raise RankDependentImportError(found.mesh)
    load_generators(files.read.values())
    imported = time.monotonic() - began
    link.tell({"imported": time.process_time() - used})
    link.tell({"loaded": preloadable(sys.modules, len(sys.modules) - loaded)})
    link.tell({"progress": {"stage": "trace"}})
    job = Job(
        found.function,
        found.mesh,
        found.check,
        target.root,
        limits,
        began,
        watch,
        machines=machines,
        learn=lambda calls: link.tell({"unseen": list(calls)}),
        meanwhile=files.meanings(),
        generators=generators(texts=files.texts),
        processes=processes,
        ranks=None if each_rank_imports else ranks,
        copies=probes is None,  # a layer that is copied is not run
        probes=probes,
        seed=text_digest(b"".join(files.read[path] for path in sorted(files.read))),
    )
    capture, footprint = record(job, show)
    capture = assuming(capture, footprint.sources)
    return replace(capture, seconds={"import": imported, **capture.seconds}), footprint


def _needs_world(error: BaseException) -> bool:
    """Whether an import failed for want of process groups or CUDA, which every rank has: it says so, or goes through a file that asked for a device."""
    if not isinstance(error, AssertionError | ImportError | RuntimeError | ValueError):
        return False
    passed = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)}
    return not passed.isdisjoint(asking_files) or any(
        word in str(error) for word in ("process group", "CUDA", "NVIDIA")
    )


def _in_every_rank(target: Target, files: ProjectFiles, name: str, mesh: dict[str, int] | None) -> Found:
    """The check as its text declares it; its function imports the file when it is called, in the rank that it is called in."""
    known = next((check for check in declared_in_text(target) if check.ref.name == name), None)
    if known is None or (mesh is None and known.meshes is None):
        raise TracingError(
            "trace-error",
            f"{os.path.basename(target.file)} asks for its rank while it is imported, so the mesh of {name!r} must be written out in gg.check",
        )
    chosen = as_mesh(mesh) if mesh is not None else (known.meshes or ())[0]

    def function(device_mesh: Any) -> Any:
        return find(target, files, name, chosen).function(device_mesh)

    return Found(function, chosen, known.ref)


def preloadable(modules: dict[str, ModuleType], count: int) -> list[str]:
    """Those of the ``count`` modules imported last that the worker itself may import, once, for all checks to come: installed ones, not the user's own copies.

    The thousands imported before the fork are not looked at: each look would copy a page of memory.
    """
    last = itertools.islice(reversed(modules), count)
    known = [name for name in last if name.partition(".")[0] in _LIBRARIES and is_installed(file_of(modules[name]))]
    return known[::-1]


def list_checks(target: Target) -> dict[str, Any]:
    """The checks of a file with their meshes, as running the file declares them."""
    files = ProjectFiles(target.overlay)
    try:
        module = load(target, files)
    except BaseException as error:  # noqa: BLE001 - whatever importing the user's file raises becomes a diagnostic
        trouble = trouble_of(error, f"importing {os.path.basename(target.file)}", target.root, Span(target.file, 1))
        return {"checks": [], "troubles": [to_plain(trouble)]}
    rows = [
        {
            "name": name,
            "span": to_plain(with_place(reference(target, name), function).span),
            "meshes": list(check.meshes),
        }
        for name, function, check in declared(module)
    ]
    return {"checks": rows, "troubles": []}


def confirm_capture(params: dict[str, Any]) -> dict[str, Any]:
    """Run a ``capture`` on numbers, for so many ``steps``: a ``Confirmation`` as plain data, with the seconds that it took, and unless it is not to be ``explained`` with an example that a person can read."""
    from graphguard.confirm.check import compare, confirm

    began = time.perf_counter()
    asked = confirm if params.get("explained", True) else compare
    found = asked(capture_from_json(params["capture"]), float(params["steps"]))
    return dict(to_plain(replace(found, seconds=time.perf_counter() - began)))


def not_confirmed(ending: Ending) -> dict[str, Any]:
    """The confirmation of a run on numbers whose process ended early."""
    how = "it took too long" if ending.kind == "timeout" else f"its process ended ({ending.kind} {ending.status})"
    return dict(to_plain(Confirmation("not-run", f"running on numbers was given up: {how}")))


def failed(target: Target, name: str, mesh: dict[str, int] | None, trouble: Trouble) -> Capture:
    """The capture of a check whose process ended early."""
    return Capture(reference(target, name), mesh or {}, (), None, (), (), (trouble,))


def show(text: str) -> None:
    """Print what a program printed."""
    print(text, end="", flush=True)  # noqa: T201 - what the ranks print joins what this process prints
