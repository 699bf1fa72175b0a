"""The real server on a toy engine: two stand-in processes and a two-step pipeline, so that tests of the server need no torch."""

from __future__ import annotations

import ast
import os
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from graphguard_server.__main__ import run
from graphguard_server.processes.engine import Engine, ProjectConfiguration
from graphguard_server.processes.processes import Launch, Limits

from graphguard.checks.judging.requests import CheckRequest, Step, Steps
from graphguard.ir.capture import CheckRef
from graphguard.ir.plain import from_plain
from graphguard.ir.spans import Span
from graphguard.report.diagnostics import Diagnostic, Fix, Report, TextEdit, Verdict

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Found:
    ref: CheckRef
    meshes: tuple[dict[str, int], ...] | None


def discover(path: str, text: str, root: str) -> list[Found]:
    found = []
    for node in ast.parse(text).body:
        decorators = [each for each in getattr(node, "decorator_list", []) if isinstance(each, ast.Call)]
        for call in decorators:
            if ast.unparse(call.func) == "gg.check":
                line = text.split("\n")[node.lineno - 1]
                column = line.index(node.name) + 1
                place = Span(path, node.lineno, column, node.lineno, column + len(node.name))
                try:
                    meshes = ast.literal_eval(call.keywords[0].value)
                    meshes = tuple(meshes) if isinstance(meshes, list) else (meshes,)
                except ValueError:
                    meshes = None
                found.append(Found(CheckRef(f"{os.path.relpath(path, root)}::{node.name}", node.name, place), meshes))
    return found


def configure(folder: str) -> ProjectConfiguration:
    for parent in (Path(folder), *Path(folder).parents):
        file = parent / "pyproject.toml"
        if file.is_file():
            try:
                table = tomllib.loads(file.read_text()).get("tool", {}).get("graphguard", {})
            except tomllib.TOMLDecodeError as error:
                return ProjectConfiguration(str(parent), trouble=f"{file}:1: {error}", place=Span(str(file), 1))
            return ProjectConfiguration(str(parent), timeout=float(table.get("timeout", 60)))
    return ProjectConfiguration("")


def check_files(configuration: ProjectConfiguration) -> list[str]:
    return [str(path) for path in sorted(Path(configuration.root).glob("check_*.py"))]


def steps(request: CheckRequest) -> Steps:
    params = {
        "file": request.file,
        "name": request.name,
        "mesh": request.mesh,
        "root": request.root,
        "overlay": dict(request.overlay),
    }
    captured = yield Step("worker", "capture", params)
    proved = yield Step("prover", "prove", {"texts": captured["texts"]})
    span = Span(request.file, 1, 1, 1, 2)
    report = Report(
        CheckRef(f"{os.path.relpath(request.file, request.root)}::{request.name}", request.name, span),
        request.mesh or {},
        Verdict.BROKEN if proved["findings"] else Verdict.REFINES,
        seconds={"trace": 0.25},
        sources=dict.fromkeys(captured["texts"], ""),
        proof=proved["proof"],
    )
    diagnostics = []
    for finding in proved["findings"]:
        variable = finding["variable"]
        edit = TextEdit(from_plain(Span, finding["edit"]["span"]), finding["edit"]["text"])
        fix = Fix(f"insert all_reduce({variable})", (edit,), proved=True)
        message = f"'{variable}' is a partial sum over axis 'tp'\nfound: sum({variable}@0, {variable}@1)"
        diagnostics.append(
            Diagnostic(
                "missing-reduction",
                "missing-reduction",
                message,
                "error",
                from_plain(Span, finding["span"]),
                (),
                (fix,),
            )
        )
    if "LATE" in "".join(captured["texts"].values()):  # the fixes take as long as another capture
        yield replace(report, diagnostics=tuple(replace(each, fixes=()) for each in diagnostics))
        yield Step("worker", "capture", params)
    return replace(report, diagnostics=tuple(diagnostics))


def start(script: str) -> Launch:
    python = os.environ.get("STAND_IN_WORKER", sys.executable) if script == "worker.py" else sys.executable
    return Launch([python, str(HERE / script)], {})


run(
    Engine(
        steps,
        discover,
        configure,
        check_files,
        lambda report, _texts, _levels: report,
        lambda _reports, _path, _text, _levels: [],
        lambda _python, _root, _sources: start("worker.py"),
        lambda: start("prover.py"),
        lambda: 0,
        Limits(heartbeat=0.3, silence=1.5, cancelled=2.0, first_delay=0.05, longest_delay=1.0),
    )
)
