"""What ``graphguard torchrun`` takes: the arguments of ``torchrun``, and its own."""

from __future__ import annotations

import argparse

from graphguard.commands.formats import NAMES

#: What ``torchrun`` takes and what has no bearing on one machine: each with a value, or without one.
_WITH_VALUE = (
    "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--max-restarts", "--monitor-interval", "--start-method", "--role", "--log-dir", "-r", "--redirects",
    "-t", "--tee", "--master-addr", "--master-port", "--local-addr", "--node-rank", "--local-ranks-filter", "--logs-specs",
)  # fmt: skip
_ALONE = ("--standalone", "--no-python", "--run-path")


def add_torchrun_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes: what ``torchrun`` takes, and what it asks for."""
    parser.add_argument("--nproc-per-node", "--nproc_per_node", type=_count, required=True, metavar="N", help="ranks")
    parser.add_argument("--nnodes", default="1", metavar="1", help=argparse.SUPPRESS)
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module, as of python -m")
    parser.add_argument("--steps", type=_count, default=1, metavar="N", help="steps of the optimizers (default: 1)")
    parser.add_argument("--reference-args", metavar="ARGS", help="further arguments on one rank, as '--batch-size 8'")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="of recording (default: as configured)")
    parser.add_argument("--no-fix", action="store_true", help="look for no fixes: what is wrong is told sooner")
    parser.add_argument("--output-format", choices=NAMES, default="text")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    parser.add_argument(
        "-v", "--verbose", action="count", default=0, help="show the layout of every tensor (-vv: by formulas)"
    )
    for name in _WITH_VALUE:
        spellings = dict.fromkeys((name, name if name.count("-") < 3 else "--" + name[2:].replace("-", "_")))
        parser.add_argument(*spellings, dest="ignored", help=argparse.SUPPRESS)
    for name in _ALONE:
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("script", metavar="SCRIPT", help="a training script, as torchrun takes it")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")


def _count(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number: give 1 or more")
    return int(value)
