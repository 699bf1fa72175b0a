"""The command line: ``graphguard check``, ``explain``, ``reproduce``, ``torchrun``, ``doctor``, ``init``, ``mcp`` and ``lsp``."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from graphguard.checks.project.configuration import RANKS
from graphguard.commands.formats import NAMES, WHOLE
from graphguard.commands.launch_arguments import add_torchrun_arguments
from graphguard.commands.mesh import MeshError, parse_mesh

NOT_RUN = 2
INTERRUPTED = 130
NO_READER = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode must not end a run
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if options.command == "lsp":
        options.arguments = rest  # the server's own; editors add --stdio
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        code = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _leave(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader is gone: nothing more can be said
        return _leave(NO_READER)
    except OSError as error:
        sys.stderr.write(f"graphguard: {error}\n")  # a full disk, a file that cannot be written: the message names it
        return _leave(NOT_RUN)
    return code


def _run(options: argparse.Namespace) -> int:
    # a command is imported when it runs: `explain` needs no prover, and `lsp` must start quickly
    command = importlib.import_module(f"graphguard.commands.{options.command}")
    failures = importlib.import_module("graphguard.commands.failure")
    try:
        code: int = command.run(options)
    except failures.CommandError as error:
        sys.stderr.write(f"graphguard: {error}\n")
        return NOT_RUN
    return code


def _leave(code: int) -> int:
    """End without waiting for threads that still drive checks; their worker is closed by now."""
    sys.stderr.flush()
    os._exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphguard",
        description="Proves that a distributed PyTorch program refines its sequential specification.",
    )
    parser.add_argument("--version", action="version", version=f"graphguard {version('graphguard')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_check(commands)
    explain = commands.add_parser("explain", help="what a rule means; without a rule, all of them")
    explain.add_argument("rule", nargs="?", metavar="RULE")
    reproduce = commands.add_parser("reproduce", help="write a pytest that shows a counterexample on real processes")
    reproduce.add_argument("check", metavar="CHECK", help="file.py::name")
    reproduce.add_argument("--mesh", type=_mesh, metavar="tp=4,dp=2", help="the mesh, where the check declares several")
    reproduce.add_argument("--output", "-o", metavar="FILE", help="where to write (default: test_<name>_reproduced.py)")
    _add_torchrun(commands)
    commands.add_parser("doctor", help="look at this installation: Python, torch, worker, configuration")
    init = commands.add_parser("init", help="configure a project and write a first check")
    init.add_argument("folder", nargs="?", default=".", metavar="FOLDER")
    mcp = commands.add_parser("mcp", help="a server for agents (Model Context Protocol), on standard input and output")
    mcp.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="the project (default: this folder)")
    mcp.add_argument(
        "--trust", action="store_true", help="run the folder's code, and what the agent writes, to verify it"
    )
    commands.add_parser("lsp", help="the language server, on standard input and output", add_help=False)
    return parser


def _add_torchrun(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    torchrun = commands.add_parser(
        "torchrun",
        help="verify an unmodified training script: on one rank and on several",
        usage="graphguard torchrun --nproc-per-node N [options] SCRIPT ARGS",
        epilog="exit code: as of graphguard check",
        allow_abbrev=False,
    )
    add_torchrun_arguments(torchrun)


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = commands.add_parser(
        "check",
        help="verify the checks of files and folders",
        epilog="exit code: 0 all refine, 1 something is broken, 2 something could not run, 3 nothing broken but something unknown",
    )
    check.add_argument(
        "paths", nargs="*", metavar="PATH", help="file, folder or file.py::name (default: as configured)"
    )
    check.add_argument("--output-format", choices=NAMES, default="text")
    check.add_argument(
        "--output",
        type=_output,
        action="append",
        default=[],
        metavar="FORMAT=FILE",
        help="write another format to a file as well, such as sarif=graphguard.sarif; may be repeated",
    )
    check.add_argument(
        "--mesh", type=_mesh, action="append", metavar="tp=4,dp=2", help="use this mesh; may be repeated"
    )
    check.add_argument("-j", "--jobs", type=_jobs, metavar="N", help="checks at the same time (default: 1)")
    check.add_argument(
        "--executor",
        type=_executor,
        metavar="dask[:ADDRESS]",
        help="run the checks on the workers of the dask scheduler at ADDRESS, such as dask:tcp://10.0.0.5:8786; "
        "without an address on a cluster of this machine's, with N workers (default: one for every processor)",
    )
    check.add_argument("--no-fix", action="store_true", help="look for no fixes: what is wrong is told sooner")
    check.add_argument("--no-cache", action="store_true", help="trace everything anew")
    check.add_argument("--audit", action="store_true", help="read every step of each proof again")
    check.add_argument(
        "--ranks",
        choices=("auto", "all"),
        help=f"record every rank, or (auto) only those of more than {RANKS} that tell what the others run (default: as configured, else auto)",
    )
    check.add_argument("--timings", action="store_true", help="say where the time of the whole command went")
    check.add_argument("--watch", action="store_true", help="run again when a file changes")
    check.add_argument("--baseline", metavar="FILE", help="fail only for findings that FILE does not list")
    check.add_argument("--write-baseline", action="store_true", help="list the findings in the baseline file")
    check.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    check.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="show how every tensor of the specification lies on the ranks (-vv: by formulas), and what the programs of a check print while they are recorded",
    )


def _mesh(text: str) -> dict[str, int]:
    try:
        return parse_mesh(text)
    except MeshError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _output(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if name not in WHOLE or not equals or not file:
        raise argparse.ArgumentTypeError(f"{text!r} is not FORMAT=FILE with one of the formats {', '.join(WHOLE)}")
    return name, file


def _executor(text: str) -> str:
    name, colon, address = text.partition(":")
    if name != "dask" or bool(colon) != bool(address):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no executor: give dask or dask:ADDRESS, such as dask:tcp://10.0.0.5:8786"
        )
    return address


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of jobs: give 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
