"""``python -m benchmarks.trust rules | kernels | fuzz | mutate | world | classes``: the status is 1 where anything unsound was found."""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.trust.fuzz import fuzz, report
from benchmarks.trust.judge import Tally, judge
from benchmarks.trust.programs import ROOT, recorded_checks, recorded_corpus
from graphguard.ir import Capture

FOLDERS = ("examples", "benchmarks/mutants/programs", "benchmarks/trust/checks")
UNKNOWN_ALLOWED = 0.05


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trust", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("rules", help="every rule against PyTorch, over numbers and over the normal form")
    asking = commands.add_parser("kernels", help="the shapes that recordings have of operators, against FakeTensorMode")
    asking.add_argument("--most", type=int, default=25, help="samples of an operator and element type")
    fuzzing = commands.add_parser("fuzz", help="what normal forms of random programs denote, against numbers")
    fuzzing.add_argument("--nodes", type=int, default=100_000)
    fuzzing.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of the first program; the next has the next, so that runs of near seeds share programs",
    )
    mutating = commands.add_parser("mutate", help="mutants of traced programs: proofs against numbers")
    mutating.add_argument("--mutants", type=int, default=2000)
    mutating.add_argument("--seed", type=int, default=0)
    worldly = commands.add_parser("world", help="random programs on real gloo processes, against their verdicts")
    worldly.add_argument("files", nargs="*", type=Path, help="programs that were kept, instead of random ones")
    worldly.add_argument("--programs", type=int, default=5000)
    worldly.add_argument("--seed", type=int, default=0, help="of the first program; the next has the next")
    worldly.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    worldly.add_argument(
        "--cache",
        action="store_true",
        help="the command line's cache instead: a second run, after an edit, and one without it",
    )
    worldly.add_argument("--save", type=Path, help="a folder for the programs that disagree, made short")
    classes = commands.add_parser(
        "classes",
        help="random programs on more ranks: foretold ranks against recorded ones, proofs of all at once against each",
    )
    classes.add_argument("--programs", type=int, default=500)
    classes.add_argument("--seed", type=int, default=0)
    classes.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.command == "classes":
        return _classes(options.programs, options.seed, options.jobs)
    if options.command == "kernels":
        from benchmarks.trust.kernels import compare  # loads PyTorch's own tests

        return min(1, compare(options.most, print))
    if options.command == "rules":
        return _rules()
    if options.command == "world":
        return _world(options)
    return _fuzz(options.nodes, options.seed) if options.command == "fuzz" else _mutate(options.mutants, options.seed)


def _rules() -> int:
    folders = ["tests/unit/rules", "tests/unit/relations"]
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *folders], cwd=ROOT, check=False).returncode


def _fuzz(nodes: int, seed: int) -> int:
    gc.set_threshold(500_000)  # a program's expressions go together: looking among them earlier is a sixth of the time
    result = fuzz(nodes, seed, tell=lambda sofar: print(report(sofar), file=sys.stderr, flush=True))
    print(report(result))
    print(*(f"{count:8}  {reason}" for reason, count in result.reasons.most_common(20)), sep="\n")
    return 1 if result.wrong else 0


def _mutate(count: int, seed: int) -> int:
    """Half of the mutants from checks that are proved, with backward passes of whole layers; half from the corpus."""
    tally = Tally()
    for recorded in (_checks, _corpus):
        programs = recorded()
        each = -(-count // (2 * len(programs)))
        for program in programs:
            judge([program], each, seed, tally)
            so_far = f"{tally.mutants} of {count}, {len(tally.wrong)} wrong, {len(tally.unknown)} unknown"
            print(f"{so_far}: {program[0]}", file=sys.stderr, flush=True)
    print("\n".join(tally.lines()))
    for title, rows in (
        ("wrong proofs", tally.wrong),
        ("unknown though equal", tally.unknown),
        ("left out, not proved themselves", tally.left_out),
    ):
        print(f"{title}: {len(rows)}", *rows[:40], sep="\n  ")
    return 1 if tally.wrong or tally.share_unknown > UNKNOWN_ALLOWED else 0


def _world(options: argparse.Namespace) -> int:
    from benchmarks.trust.world import cache
    from benchmarks.trust.world.compare import UNSOUND
    from benchmarks.trust.world.run import described, headed, judge_files, run

    if options.files:
        rows = judge_files([file.absolute() for file in options.files])
        print(*(headed(row) for row in rows), sep="\n\n")
        return 1 if any(row.outcome in UNSOUND for row in rows) else 0
    if options.cache:
        stale, changed, checks = cache.run(options.programs, options.seed, options.jobs)
        print(*stale, f"{checks} checks, {changed} changed by the edit, {len(stale)} stale", sep="\n")
        return 1 if stale else 0
    tally = run(options.programs, options.seed, options.jobs, options.save)
    print(*(described(row) for row in tally.found), sep="\n\n")
    print(*tally.lines(), sep="\n")
    return 1 if tally.unsound() else 0


def _classes(programs: int, seed: int, jobs: int) -> int:
    from benchmarks.trust.world import classes

    tally = classes.run(programs, seed, jobs)
    print(*tally.lines(), sep="\n")
    return 1 if tally.wrong else 0


def _checks() -> list[tuple[str, Capture]]:
    return list(recorded_checks([file for folder in FOLDERS for file in sorted((ROOT / folder).glob("*.py"))]))


def _corpus() -> list[tuple[str, Capture]]:
    return [(name, capture) for name, capture in recorded_corpus() if name.endswith("fixed")]


if __name__ == "__main__":
    sys.exit(main())
