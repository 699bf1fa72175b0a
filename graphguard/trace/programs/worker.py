"""The worker: one single-threaded process in the user's interpreter that has torch loaded and forks a child for every request.

It runs no user code itself, so that every child starts from the same clean state.  Requests arrive as frames on a private copy of
standard input, answers leave on a private copy of standard output: what children print goes to the log.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
import platform
import selectors
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from graphguard.ir import Capture, Trouble, capture_to_json
from graphguard.ir.codec import capture_summary
from graphguard.ir.fuel import hanging_after
from graphguard.ir.plain import to_plain
from graphguard.trace import OLDEST_TORCH, release
from graphguard.trace.depends.cache import load, request_key, store
from graphguard.trace.depends.footprint import Footprint
from graphguard.trace.depends.unshared import Processes
from graphguard.trace.process import wire
from graphguard.trace.process.children import Child, Ending, Family, Link
from graphguard.trace.process.limits import Limits, adopt_orphans, default_memory
from graphguard.trace.process.pages import join_pages, large_ranges
from graphguard.trace.process.parentage import die_with_starter
from graphguard.trace.programs.health import describe
from graphguard.trace.programs.importing import Target, reference
from graphguard.trace.programs.reserve import Reserve
from graphguard.trace.programs.scripts import capture_script, reference_of
from graphguard.trace.programs.session import (
    RankDependentImportError,
    capture_check,
    confirm_capture,
    failed,
    list_checks,
    not_confirmed,
    show,
)
from graphguard.trace.programs.troubles import trouble_of_ending
from graphguard.trace.scripts.script import script_of
from graphguard.trace.source.probes import Probes
from graphguard.trace.source.sources import SOURCES, ProjectFiles, count_as_own

if TYPE_CHECKING:
    from graphguard.trace.programs.spares import Spares

_CHUNK = 1 << 18
# Between a check's own limit, at which its recording is stopped with a trouble, and the end of the process around it.
_GRACE = 1.0
# The same for a script, whose programs are asked in turn where they are.
_SCRIPT_GRACE = 15.0
# How long preparing for later children may keep a request waiting.
_PREPARED_SECONDS = 0.005
DEFAULT_SECONDS = 60.0


class RequestError(Exception):
    """A request that cannot be served; ``code`` and message go to whoever sent it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Task:
    """A request for a child: what it runs, its bounds, the answer where it ends without one, and what to do where the answer is to do it ``again``, on what mesh.

    ``plain`` is what a child needs that waits for a check.
    """

    run: Callable[[Link], Any]
    limits: Limits
    on_failure: Callable[[Ending], Any]
    again: Callable[[dict[str, int] | None], Task] | None = None
    plain: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A request that needs no child."""

    answer: Any


class Worker:
    """Serves requests until its input ends."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._decoder = wire.Decoder()
        self._family = Family(selectors.DefaultSelector())
        self._family.selector.register(source, selectors.EVENT_READ, self._receive)
        self._waiting: OrderedDict[Any, Task] = OrderedDict()
        self._running: dict[Any, Child] = {}
        self._arrived: deque[dict[str, Any]] = deque()
        self._warm = False
        self._wanted: deque[str] = deque()
        self._unseen: deque[str] = deque()
        self._scattered: deque[int] = deque()
        self._wrote = False
        self._reserve = Reserve(self._family, _record)
        self._open = True
        self._direct: dict[str, Callable[[dict[str, Any]], Any]] = {
            "hello": self._hello,
            "ping": lambda _: {
                "running": len(self._running),
                "waiting": len(self._waiting),
                "spare": self._reserve.ready,
            },
            "shutdown": self._shutdown,
        }
        self._tasks: dict[str, Callable[[dict[str, Any]], Task | Done]] = {
            "capture": _capture_task,
            "list": _list_task,
            "confirm": _confirm_task,
            "doctor": _doctor_task,
        }

    def serve(self) -> None:
        """Answer requests until the input ends, then end every child."""
        while self._open:
            # Whatever has arrived already is looked at before the seconds that loading torch takes.
            prepares = not len(self._family) and bool(self._wanted or self._unseen or self._wrote or self._scattered)
            quiet = None if len(self._family) else self._reserve.patience()
            self._family.step(quiet if self._warm and not prepares and not self._arrived else 0.0)
            if self._arrived:
                self._handle(self._arrived.popleft())
            elif not self._warm:
                self._warm_up()
            elif prepares:
                self._prepare()
            elif not len(self._family):
                self._reserve.tend()
            self._start_waiting()
        self._family.stop_all()

    def _receive(self) -> None:
        data = os.read(self._source, _CHUNK)
        if not data:
            self._open = False
        self._arrived.extend(self._decoder.feed(data))

    def _handle(self, message: dict[str, Any]) -> None:
        request, method, params = message.get("id"), str(message.get("method")), message.get("params") or {}
        if method == "cancel":
            self._cancel(params.get("id"))
            return
        direct, task = self._direct.get(method), self._tasks.get(method)
        try:
            if direct is not None:
                self._send({"id": request, "result": direct(params)})
            elif task is not None:
                self._begin(request, task(params))
            else:
                self._fail(request, "unknown-method", f"the worker has no method {method!r}")
        except RequestError as error:
            self._fail(request, error.code, str(error))
        except (KeyError, TypeError, ValueError) as error:
            self._fail(request, "invalid-params", f"{method}: {error!r}")

    def _begin(self, request: Any, task: Task | Done) -> None:
        if isinstance(task, Done):
            self._send({"id": request, "result": task.answer})
        else:
            self._waiting[request] = task
        self._reserve.put_off()

    def _send(self, message: dict[str, Any]) -> None:
        data = memoryview(wire.encode(message))
        while data:
            data = data[os.write(self._sink, data) :]

    def _fail(self, request: Any, code: str, message: str) -> None:
        self._send({"id": request, "error": {"code": code, "message": message}})

    def _hello(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "python": platform.python_version(),
            "executable": sys.executable,
            "torch": installed_version("torch"),
            "graphguard": installed_version("graphguard"),
        }

    def _shutdown(self, _: dict[str, Any]) -> None:
        self._open = False

    def _cancel(self, request: Any) -> None:
        if self._waiting.pop(request, None) is not None:
            self._fail(request, "cancelled", "the request was cancelled")
        elif request in self._running:
            self._family.stop(self._running[request], "cancelled")

    def _warm_up(self) -> None:
        self._warm = self._wrote = True
        if _has_torch():
            from graphguard.trace.programs.rehearsal import rehearse
            from graphguard.trace.worlds.world import warm

            warm()
            rehearse()

    def _prepare(self) -> None:
        """One step of what makes later children quicker, and of which none may take long: requests may arrive."""
        until = time.monotonic() + _PREPARED_SECONDS
        if self._wanted:
            self._preload(self._wanted.popleft())
        elif self._unseen:
            self._rehearse_calls(until)
        elif self._wrote:
            self._wrote = False
            self._scattered = deque(large_ranges())
        while self._scattered and time.monotonic() < until:
            if not join_pages(self._scattered.popleft()):
                self._scattered.clear()

    def _rehearse_calls(self, until: float) -> None:
        from graphguard.trace.programs import rehearsal
        from graphguard.trace.record import operators

        while self._unseen and time.monotonic() < until:
            operators.rehearse_call(self._unseen.popleft())
        if not self._unseen:
            rehearsal.settle()

    def _preload(self, name: str) -> None:
        """Import a library that a check imported: the next one then starts with it loaded."""
        if name in sys.modules:
            return
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - the check that imports it says what is wrong
            sys.stderr.write(f"graphguard: {name} was not loaded in advance: {error!r}\n")

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < max(2, os.cpu_count() or 2):
            if not self._warm:
                self._warm_up()
            request, task = self._waiting.popitem(last=False)
            self._start(request, task)

    def _start(self, request: Any, task: Task) -> None:
        spare = None if task.plain is None else self._reserve.take(task.plain["target"][0])

        def ended(ending: Ending) -> None:
            del self._running[request]
            if ending.kind == "cancelled":
                self._fail(request, "cancelled", "the request was cancelled")
            elif spare is not None and task.plain is not None and _is_unlike(ending):
                self._reserve.refuse(task.plain["target"][0])
                self._waiting[request] = replace(task, plain=None)
            elif ending.kind == "answered" and task.again is not None and "again" in ending.answer:
                self._waiting[request] = task.again(ending.answer["again"])
            else:
                answer = ending.answer if ending.kind == "answered" else task.on_failure(ending)
                self._send({"id": request, "result": answer})
                if task.plain is not None:
                    summary = answer["summary"]
                    self._reserve.note(task.plain["target"][0], task.plain["name"], summary["mesh"], summary["sources"])

        def heard(_: Child, message: dict[str, Any]) -> None:
            if "loaded" in message:
                self._wanted.extend(name for name in message["loaded"] if name not in sys.modules)
                return
            if "imported" in message:
                if task.plain is not None:
                    self._reserve.note_import(task.plain["target"][0], message["imported"])
                return
            if "unseen" in message:
                self._unseen.extend(message["unseen"])
                return
            self._send({"method": "progress", "params": {"id": request, **message["progress"]}})

        def printed(text: str) -> None:
            self._send({"method": "log", "params": {"id": request, "text": text}})

        self._wrote = True
        if spare is not None and task.plain is not None:
            self._running[request] = spare
            self._family.begin(spare, task.plain, task.limits, on_message=heard, on_output=printed, on_end=ended)
        else:
            self._running[request] = self._family.start(
                task.run, task.limits, on_message=heard, on_output=printed, on_end=ended, leader=True
            )


def _is_unlike(ending: Ending) -> bool:
    """Whether a check that spare processes were to record must be recorded without them."""
    if ending.kind == "answered":
        return ending.answer is not None and "unlike" in ending.answer
    return ending.kind in ("exited", "killed", "failed")


def installed_version(package: str) -> str | None:
    """The version of an installed distribution, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _has_torch() -> bool:
    return "torch" in sys.modules or installed_version("torch") is not None


def _target(params: dict[str, Any]) -> Target:
    if not _has_torch():
        raise RequestError(
            "no-torch",
            f"torch is not installed for {sys.executable}\n"
            "fix: install it there, or set python in [tool.graphguard] to the interpreter of the project's environment",
        )
    found = installed_version("torch")
    if found is not None and release(found) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise RequestError(
            "old-torch", f"torch {found} is installed for {sys.executable}; GraphGuard needs {oldest} or newer"
        )
    file, root = os.path.abspath(params["file"]), os.path.abspath(params["root"])
    return Target(file, root, params.get("overlay") or {})


def _limits(params: dict[str, Any]) -> Limits:
    return Limits(float(params.get("timeout") or DEFAULT_SECONDS), params.get("memory") or default_memory())


def _capture_task(params: dict[str, Any]) -> Task | Done:
    if params.get("script"):
        return _script_task(params)
    target, name, mesh, limits = _target(params), params["name"], params.get("mesh"), _limits(params)
    probes = params.get("probes")
    cached = bool(params.get("cache", True)) and probes is None
    machines = int(params.get("machines", 1))
    ranks = params.get("ranks")
    key = request_key(target.file, name, mesh, target.root, machines, ranks) if cached else ""
    if cached and (known := load(key, ProjectFiles(target.overlay))) is not None:
        capture, depends = known
        return Done(_captured(replace(capture, check=reference(target, name)), cached=True, depends=depends))
    processes = params.get("processes", "apart")
    return _recording(
        target, name, mesh, limits, key, processes=processes, machines=machines, ranks=ranks, probes=probes
    )


def _script_task(params: dict[str, Any]) -> Task:
    target, limits = _target(params), _limits(params)
    script = script_of(params["script"])
    mesh: dict[str, int] = params["mesh"]
    processes: Processes = params.get("processes", "apart")

    def run(link: Link) -> Any:
        capture, _ = capture_script(script, mesh, target.root, target.overlay, limits, link, processes=processes)
        return _captured(capture, cached=False)

    def on_failure(ending: Ending) -> Any:
        where = reference_of(script)
        trouble = trouble_of_ending(ending, f"running {script.name}", target.root, where.span, limits)
        return _captured(Capture(where, mesh, (), None, (), (), (trouble,)), cached=False)

    return Task(run, _outer(limits, _SCRIPT_GRACE), on_failure)


def _recording(
    target: Target,
    name: str,
    mesh: dict[str, int] | None,
    limits: Limits,
    key: str,
    *,
    each_rank_imports: bool = False,
    processes: Processes = "apart",
    machines: int = 1,
    ranks: int | None = None,
    probes: dict[str, Any] | None = None,
) -> Task:
    plain = {
        "target": [target.file, target.root, dict(target.overlay)],
        "name": name,
        "mesh": mesh,
        "limits": asdict(limits),
        "key": key,
        "ranks": ranks,
    }

    def run(link: Link) -> Any:
        found = None if probes is None else Probes.of(probes)
        try:
            capture, footprint = capture_check(
                target,
                name,
                mesh,
                limits,
                link,
                each_rank_imports=each_rank_imports,
                processes=processes,
                machines=machines,
                ranks=ranks,
                probes=found,
            )
        except RankDependentImportError as error:
            return {"again": error.mesh or mesh}
        answer = _kept(key, capture, footprint)
        return answer if found is None else {**answer, "observed": found.observed}

    def on_failure(ending: Ending) -> Any:
        return _captured(failed(target, name, mesh, _trouble(ending, target, limits)), cached=False)

    def again(mesh: dict[str, int] | None) -> Task:
        return _recording(
            target,
            name,
            mesh,
            limits,
            key,
            each_rank_imports=True,
            processes=processes,
            machines=machines,
            ranks=ranks,
            probes=probes,
        )

    some = ranks is not None and mesh is not None and math.prod(mesh.values()) > ranks
    usual = not each_rank_imports and processes == "apart" and machines == 1 and not some and probes is None
    return Task(run, _outer(limits), on_failure, again, plain if usual else None)


def _record(plain: dict[str, Any], link: Link, spares: Spares) -> Any:
    """Record a check by spare processes, in the child that has them."""
    from graphguard.trace.programs.spares import Order, UnlikeError, capture_by_spares

    order = Order(
        Target(*plain["target"]),
        plain["name"],
        plain["mesh"],
        Limits(**plain["limits"]),
        time.monotonic(),
        ranks=plain["ranks"],
    )
    try:
        capture, footprint = capture_by_spares(order, spares, link, show)
    except UnlikeError as error:
        return {"unlike": str(error)}
    return _kept(plain["key"], capture, footprint)


def _kept(key: str, capture: Capture, footprint: Footprint) -> dict[str, Any]:
    """The answer, after it was put into the cache."""
    if key:
        store(key, capture, footprint)
    return _captured(capture, cached=False, depends=footprint.kept)


def _captured(capture: Capture, *, cached: bool, depends: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer, with what the capture depended on where that can be compared later; the capture itself says nothing of how long it took, so that the same program is the same bytes."""
    data = capture_to_json(replace(capture, seconds={}))
    return {"capture": data, "summary": capture_summary(capture), "cached": cached, "depends": depends}


def _list_task(params: dict[str, Any]) -> Task:
    target, limits = _target(params), _limits(params)
    return Task(
        lambda _: list_checks(target),
        limits,
        lambda ending: {"checks": [], "troubles": [to_plain(_trouble(ending, target, limits))]},
    )


def _confirm_task(params: dict[str, Any]) -> Task:
    limits = Limits(hanging_after(float(params["steps"])), default_memory())
    return Task(lambda _: confirm_capture(params), limits, not_confirmed)


def _doctor_task(_: dict[str, Any]) -> Task:
    return Task(lambda _: describe(), Limits(30.0), lambda ending: {"failed": ending.kind})


def _outer(limits: Limits, grace: float = _GRACE) -> Limits:
    return Limits(limits.seconds + grace, limits.memory, limits.output)


def _trouble(ending: Ending, target: Target, limits: Limits) -> Trouble:
    doing = f"importing {os.path.basename(target.file)}"
    return trouble_of_ending(ending, doing, target.root, reference(target, "").span, limits)


def main() -> None:
    """Take over standard input and output, and serve."""
    die_with_starter()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    adopt_orphans()
    count_as_own(filter(None, os.environ.get(SOURCES, "").split(",")))
    Worker(source, sink).serve()
