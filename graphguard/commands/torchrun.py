"""``graphguard torchrun``: an unmodified training script, on one rank and on many, compared."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graphguard.checks.project.configuration import Configuration, ConfigurationError, load_configuration
from graphguard.checks.running.driver import LoadedProver, run_script
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.commands.failure import CommandError
from graphguard.commands.formats import WHOLE
from graphguard.commands.progress import Progress
from graphguard.report import text
from graphguard.report.layout import page_for
from graphguard.report.outcomes import exit_code
from graphguard.report.sources import Sources
from graphguard.report.waivers import Waivers
from graphguard.trace.scripts.script import Script
from graphguard.trace.source.sources import is_installed


def run(options: argparse.Namespace) -> int:
    """Run the command; the exit code is that of ``graphguard check``."""
    if options.nnodes not in ("1", "1:1"):
        raise CommandError("graphguard torchrun records the ranks of one node: give --nnodes 1 and --nproc-per-node N")
    if options.no_python or options.run_path:
        raise CommandError("graphguard torchrun runs Python scripts: give the script itself")
    folder = os.getcwd()
    path = _module_file(options.script, folder) if options.module else _script_file(options.script)
    installed = options.module and is_installed(path)
    try:
        configuration = _configuration(path, folder, installed)
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    if installed:  # what is run is what is checked, whoever put it there
        package = options.script.partition(".")[0]
        configuration = replace(configuration, sources=(*configuration.sources, package))
    scratch = tempfile.mkdtemp(prefix="graphguard-torchrun-")
    given = tuple(options.arguments)
    reference = (*given, *shlex.split(options.reference_args or ""))
    module = options.script if options.module else ""
    script = Script(path, folder, given, reference, module, options.steps, scratch)
    try:
        return _judge(script, options, configuration)
    finally:
        if not any(Path(scratch).rglob("*")):
            shutil.rmtree(scratch)


def _configuration(path: str, folder: str, installed: bool) -> Configuration:
    """The settings of the script's project: without ``pyproject.toml`` and ``.git``, that is the folder where the command is given, if the script lies in it."""
    found = load_configuration(Path(folder if installed else path))
    marked = any((found.root / name).exists() for name in ("pyproject.toml", ".git"))
    return found if marked or not Path(path).is_relative_to(folder) else replace(found, root=Path(folder))


def _judge(script: Script, options: argparse.Namespace, configuration: Configuration) -> int:
    page = page_for(sys.stdout, options.color)
    progress = Progress(sys.stderr, page_for(sys.stderr).width)
    progress.show(f"{script.name} on one rank and on {options.nproc_per_node}")
    sources = Sources(configuration.root)
    try:
        with WorkerClient(configuration) as worker:
            mesh = {"ranks": options.nproc_per_node}
            report = run_script(
                script,
                mesh,
                configuration,
                worker,
                LoadedProver(cache=False),
                options.timeout,
                fixes=not options.no_fix,
            )
    finally:
        progress.clear()
    report = Waivers(sources, configuration.levels).apply(report)
    if options.output_format == "text":
        sys.stdout.write(text.render([report], sources, page, verbose=options.verbose))
    else:
        sys.stdout.write(WHOLE[options.output_format]([report], sources))
    return exit_code([report])


def _script_file(script: str) -> str:
    path = Path(script)
    if path.is_dir():
        raise CommandError(f"{script} is a folder: name the script in it")
    if not path.is_file():
        near = sorted(one.name for one in path.parent.glob("*.py")) if path.parent.is_dir() else []
        there = f"; there are {', '.join(near[:6])}" if near else ""
        raise CommandError(f"{script}: there is no such script{there}")
    return str(path.absolute())


def _module_file(name: str, folder: str) -> str:
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        raise CommandError(f"-m takes the name of a module, such as package.train; found {name!r}")
    parts = name.split(".")
    for base in (folder, *map(str, _path_of_worker())):
        for place in (os.path.join(base, *parts) + ".py", os.path.join(base, *parts, "__main__.py")):
            if os.path.isfile(place):
                return place
    raise CommandError(f"-m {name}: there is no such module in {folder}, nor among the installed ones")


def _path_of_worker() -> Sequence[str]:
    return [entry for entry in sys.path if entry]
