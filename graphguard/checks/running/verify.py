"""``gg.verify``: a check as a call, from any process.

What runs user code is forked from the caller, so closures and functions that live in no file can be checked, and nothing that they do (process
groups, caches, default dtype, random state, printing) is left behind.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any, TypeAlias

from graphguard.checks.judging.requests import CheckRequest
from graphguard.checks.judging.steps import check_steps
from graphguard.checks.project.configuration import Configuration, ConfigurationError, load_configuration
from graphguard.checks.proving.prover import Prover
from graphguard.checks.running.driver import drive
from graphguard.ir import Capture, CheckRef, Span, capture_from_json, capture_to_json
from graphguard.ir.codec import capture_summary
from graphguard.ir.fuel import hanging_after
from graphguard.report.diagnostics import Report, Verdict
from graphguard.report.notebook import ShownReport, sources_of
from graphguard.report.text import render
from graphguard.trace.claims.api import Refinement, Same, as_mesh
from graphguard.trace.claims.declared import identifier
from graphguard.trace.process.children import Ending, Family, Link
from graphguard.trace.process.limits import Limits, default_memory
from graphguard.trace.programs.troubles import trouble_of_ending

# What every child would load for itself: importing it leaves torch as it is.
_LOADED_ONCE = (
    "graphguard.confirm.check",
    "graphguard.trace.programs.ranks",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.debug",
    "torch.distributed.tensor.parallel",
    "torch.fx.experimental.validator",
)
# Of what nothing is called.
_PLAIN = (str, bytes, int, float, tuple, list, dict, set, type(None))
Build: TypeAlias = Callable[[Any], Refinement | Same]
_LOG = logging.getLogger("graphguard")


def verify(
    spec: Any,
    impl: Callable[[Any], Any],
    inputs: Any = None,
    *,
    mesh: Mapping[str, int],
    in_relations: Any = None,
    shard_inputs: Callable[[Any, Any], Any] | None = None,
    out_relations: Any = "infer",
    load: Callable[[Any, Any, Any], Any] | None = None,
    grads: bool = True,
) -> Report:
    """Prove that ``impl``, run by every rank of ``mesh``, refines ``spec``, or find out why it does not.

    ``impl(device_mesh)`` gives the module or function of the rank it is called in; the rest is as for :class:`Refinement`.  With :class:`Same` itself as ``spec`` the specification is what
    ``impl`` gives for the mesh of one rank.  What is wrong with the programs is in the report, whose ``verdict`` is None where they could not be run; raises ``ValueError`` for a mesh that is
    none, and ``TypeError`` for a :class:`Same` that was made already.
    """
    keywords = {
        "in_relations": in_relations,
        "shard_inputs": shard_inputs,
        "out_relations": out_relations,
        "load": load,
        "grads": grads,
    }
    caller = sys._getframe(1)  # noqa: SLF001 - the report's place is the call
    return _verify(_claim(spec, impl, inputs, keywords), as_mesh(mesh), caller)


def assert_refines(spec: Any, impl: Callable[[Any], Any], inputs: Any = None, **keywords: Any) -> Report:
    """As :func:`verify`; raises ``AssertionError`` with the rendered report unless the implementation refines the specification."""
    mesh = as_mesh(keywords.pop("mesh", None))
    caller = sys._getframe(1)  # noqa: SLF001 - the report's place is the call
    report = _verify(_claim(spec, impl, inputs, keywords), mesh, caller)
    if report.verdict is not Verdict.REFINES:
        raise AssertionError("\n" + render([report], sources_of([report])))
    return report


def _claim(spec: Any, impl: Callable[[Any], Any], inputs: Any, keywords: dict[str, Any]) -> Build:
    """What is claimed in the world whose mesh it is given."""
    if isinstance(spec, Same):
        raise TypeError(
            "a program that was built already belongs to this process: give gg.Same itself and a function of the mesh,"
            " as in gg.verify(gg.Same, lambda mesh: build(mesh), inputs=..., mesh={'tp': 2})"
        )
    if spec is Same:
        return lambda device_mesh: Same(impl(device_mesh), inputs, **keywords)
    return lambda device_mesh: Refinement(spec, impl(device_mesh), inputs, **keywords)


def _verify(build: Build, mesh: dict[str, int], caller: FrameType) -> Report:
    file = caller.f_code.co_filename
    configuration = _configuration(file)
    check = _reference(caller, str(configuration.root))
    request = CheckRequest(
        file,
        check.name,
        mesh,
        str(configuration.root),
        levels=configuration.levels,
        fixes=False,
        cache=False,
        ranks=configuration.ranks,
    )
    places = [caller.f_globals, *_namespaces(build)]
    return ShownReport.of(drive(check_steps(request), _Forks(build, mesh, check, configuration, places), Prover()))


def _namespaces(build: Build) -> Iterator[dict[str, Any]]:
    """The namespaces in which the functions and classes are defined that a check is built from, those of no module (``exec``) among them."""
    waiting: list[Any] = [build]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, FunctionType):
            yield one.__globals__
            waiting += [cell.cell_contents for cell in one.__closure__ or () if _is_filled(cell)]
        elif isinstance(one, functools.partial):
            waiting += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, MethodType):
            waiting += [one.__func__, one.__self__]
        elif isinstance(one, type):
            waiting += [each for each in vars(one).values() if isinstance(each, FunctionType)]
        elif not isinstance(one, _PLAIN):
            waiting.append(type(one))


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a name that is not bound yet
        return False


def _configuration(file: str) -> Configuration:
    try:
        return load_configuration(Path(file) if Path(file).is_file() else Path.cwd())
    except ConfigurationError:  # `graphguard check` is the place that reports a broken pyproject.toml
        return Configuration(Path.cwd())


def _reference(caller: FrameType, root: str) -> CheckRef:
    code = caller.f_code
    line, end_line, column, end_column = list(code.co_positions())[caller.f_lasti // 2]
    name = "verify" if code.co_name == "<module>" else code.co_name
    span = Span(code.co_filename, line or caller.f_lineno)
    if end_line is not None and column is not None and end_column is not None:
        span = Span(code.co_filename, span.line, column + 1, end_line, end_column + 1)
    return CheckRef(identifier(code.co_filename, name, root), name, span)


class _Forks:
    """Answers the worker's part of the steps of a check by forking the calling process."""

    def __init__(
        self,
        build: Build,
        mesh: dict[str, int],
        check: CheckRef,
        configuration: Configuration,
        places: list[dict[str, Any]],
    ) -> None:
        self._places = places
        self._build = build
        self._mesh = mesh
        self._check = check
        self._root = str(configuration.root)
        self._sources = configuration.sources
        self._limits = Limits(configuration.timeout, configuration.memory or default_memory())

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """The answer to one step."""
        return {"capture": self._capture, "confirm": self._confirm}[method](params)

    def _capture(self, params: dict[str, Any]) -> dict[str, Any]:
        for module in _LOADED_ONCE:
            importlib.import_module(module)
        from graphguard.trace.depends.chance import generators
        from graphguard.trace.depends.footprint import with_sources_of_frames
        from graphguard.trace.programs import ranks
        from graphguard.trace.programs.job import Job
        from graphguard.trace.source.recompiled import new_code, objects_of_user
        from graphguard.trace.source.sources import count_as_own
        from graphguard.trace.worlds import patches

        objects = objects_of_user()
        code = new_code(objects.functions, self._places, self._root)
        found = generators(objects.generators, objects.texts)  # whose states do not outlive a fork

        def run(_: Link) -> bytes:
            count_as_own(self._sources)
            ranks.settle()
            patches.install()
            code.put()
            job = Job(
                self._build,
                params["mesh"],
                self._check,
                self._root,
                self._limits,
                time.monotonic(),
                machines=int(params.get("machines", 1)),
                generators=found,
                processes=params.get("processes", "apart"),
                ranks=params.get("ranks"),
                seed=self._check.id,
            )
            return capture_to_json(with_sources_of_frames(ranks.record(job, _log)[0]))

        data = _in_child(run, self._limits, self._failed)
        return {"capture": data, "summary": capture_summary(capture_from_json(data)), "cached": False}

    def _failed(self, ending: Ending) -> bytes:
        trouble = trouble_of_ending(ending, "recording the check", self._root, self._check.span, self._limits)
        return capture_to_json(Capture(self._check, self._mesh, (), None, (), (), (trouble,)))

    def _confirm(self, params: dict[str, Any]) -> Any:
        from graphguard.trace.programs import ranks
        from graphguard.trace.programs.session import confirm_capture, not_confirmed

        steps = float(params["steps"])

        def run(_: Link) -> Any:
            ranks.settle()
            return confirm_capture(params)

        return _in_child(run, Limits(hanging_after(steps), self._limits.memory), not_confirmed)


def _log(text: str) -> None:
    _LOG.debug("%s", text)


def _in_child(run: Callable[[Link], Any], limits: Limits, on_failure: Callable[[Ending], Any]) -> Any:
    """What ``run`` returns in a forked child of this process."""
    answers: list[Any] = []

    def ended(ending: Ending) -> None:
        answers.append(ending.answer if ending.kind == "answered" else on_failure(ending))

    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else the child has a copy of what waits there
    family = Family()
    family.start(run, limits, on_message=lambda *_: None, on_output=_log, on_end=ended, leader=True)
    try:
        while not answers:
            family.step()
    finally:
        family.stop_all()
        family.selector.close()
    return answers[0]
