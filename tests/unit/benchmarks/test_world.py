"""The machine of ``benchmarks.trust world``: that it finds out what really happens, and judges and shortens by that."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.trust.programs import ROOT
from benchmarks.trust.world.cache import HEADER, Folders, project
from benchmarks.trust.world.compare import AGREE, FALSE_BROKEN, NOT_RUN, WRONG_REFINES, Judged, judged, settled
from benchmarks.trust.world.generate import program
from benchmarks.trust.world.product import Said
from benchmarks.trust.world.program import Program
from benchmarks.trust.world.questions import Question, question
from benchmarks.trust.world.real import Care, Ranks, Truth
from benchmarks.trust.world.run import described, judge_files, judge_slice
from benchmarks.trust.world.shrink import shrunk

CUT = (("x", (4, 6), '{"tp": Shard(1)}'), ("w", (6, 4), '{"tp": Shard(0)}'))
BASE = Program("base", (("tp", 2),), CUT, ("return x @ w",), ("y = x @ w", "return y"), '"replicate"')
SUM = "dist.all_reduce(y)"


def of(*lines: str, spec: str = "x @ w", promised: str = '"replicate"') -> Program:
    return replace(BASE, spec=(f"return {spec}",), impl=("y = x @ w", *lines), promised=promised)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    ranks = Ranks(4)
    ranks.start()
    yield ranks
    ranks.close()


TRUTHS = {
    "right": (of(SUM, "return y"), "equal"),
    "a partial sum, as promised": (of("return y", promised='{"tp": Partial()}'), "equal"),
    "a partial sum": (of("return y"), "differs"),
    "rows": (of(SUM, "return y.chunk(2)[dist.get_rank()]", promised='{"tp": Shard(0)}'), "equal"),
    "rows in the wrong order": (
        of(SUM, "return y.chunk(2)[1 - dist.get_rank()]", promised='{"tp": Shard(0)}'),
        "differs",
    ),
    "on one rank": (of("if dist.get_rank() == 1: dist.all_reduce(y)", SUM, "return y"), "hangs"),
    "a group that one rank makes": (
        of("if dist.get_rank() == 0: dist.new_group([0])", "g = dist.new_group([0, 1])", SUM, "return y"),
        "hangs",
    ),
    "raises": (of("assert dist.get_rank() == 0", SUM, "return y"), "raises"),
    "a specification that raises": (of(SUM, "return y", spec="x.nothing"), "no specification"),
    "other memory on a rank": (of("if dist.get_rank() == 1: y = y.t().contiguous().t()", SUM, "return y"), "differs"),
    "a text of the process": (of(SUM, "return y, str(hash('a'))", spec="x @ w, str(hash('a'))"), "differs"),
    "a number of the process, from rank 0": (
        of(
            SUM,
            "z = y * float(hash('alpha') % 997)",
            "dist.broadcast(z, 0)",
            "return z",
            spec="(x @ w) * float(hash('alpha') % 997)",
        ),
        "differs",
    ),
    "nothing on a rank": (of(SUM, "return y if dist.get_rank() == 0 else None"), "differs"),
    "a number": (of(SUM, "return y, y.sum().item()", spec="x @ w, (x @ w).sum().item()"), "equal"),
    "a number that is another": (of(SUM, "return y, y.sum().item()", spec="x @ w, (x @ w).mean().item()"), "differs"),
}


@pytest.mark.slow  # real processes
@pytest.mark.parametrize("name", TRUTHS)
def test_what_really_happens(ranks: Ranks, tmp_path: Path, name: str) -> None:
    one, kind = TRUTHS[name]
    assert truth(ranks, tmp_path, one).kind == kind


LATE = {
    "waited for": (of("h = dist.all_reduce(y, async_op=True)", "h.wait()", "return y"), "equal"),
    "waited for by a later one of its group": (
        of("dist.all_reduce(y, async_op=True)", "dist.barrier()", SUM, "return y / 2"),
        "equal",
    ),
    "never waited for": (of("z = y + 0", "dist.all_reduce(z, async_op=True)", "return z"), "differs"),
    "waited for after it was read": (
        of("h = dist.all_reduce(y, async_op=True)", "z = y * 1", "h.wait()", "return z"),
        "differs",
    ),
    "waited for after it was written": (
        of(
            "parts = [torch.empty_like(y), torch.empty_like(y)]",
            "h = dist.all_gather(parts, y, async_op=True)",
            "y.mul_(2)",
            "h.wait()",
            "return sum(parts)",
        ),
        "differs",
    ),
    "in another order on another group": (
        of(
            "z = y * 2",
            "calls = [(y, None), (z, dist.new_group([0, 1]))][:: 1 - 2 * dist.get_rank()]",
            "works = [dist.all_reduce(t, group=g, async_op=True) for t, g in calls]",
            "for work in works: work.wait()",
            "return z - y",
        ),
        "equal",
    ),
}


@pytest.mark.slow  # real processes
@pytest.mark.parametrize("name", LATE)
def test_what_is_asynchronous_may_be_late(ranks: Ranks, tmp_path: Path, name: str) -> None:
    one, kind = LATE[name]
    assert truth(ranks, tmp_path, one).kind == kind


@pytest.mark.slow  # real processes
def test_memory_with_gaps_is_noted(ranks: Ranks, tmp_path: Path) -> None:
    gaps = of("z = torch.cat([y, y], 1)[:, :4]", "dist.all_reduce(z)", SUM, "return y")
    assert truth(ranks, tmp_path, gaps).not_dense
    assert not truth(ranks, tmp_path, of("z = y.t()", "dist.all_reduce(z)", "return y")).not_dense


def truth(ranks: Ranks, folder: Path, one: Program) -> Truth:
    path = folder / f"{abs(hash(one.text))}.py"
    path.write_text(one.text)
    return ranks.truth(path, Care())


@pytest.mark.parametrize(
    ("said", "truth", "outcome"),
    [
        ("refines", Truth("equal"), AGREE),
        ("refines", Truth("differs"), WRONG_REFINES),
        ("refines", Truth("hangs"), WRONG_REFINES),
        ("refines", Truth("equal", not_dense=True), AGREE),
        ("broken", Truth("equal"), FALSE_BROKEN),
        ("broken", Truth("equal", not_dense=True), AGREE),
        ("broken", Truth("hangs"), AGREE),
        ("not run", Truth("raises"), AGREE),
        ("not run", Truth("equal"), NOT_RUN),
    ],
)
def test_verdict_against_truth(said: str, truth: Truth, outcome: str) -> None:
    assert judged(BASE, Said(said), truth).outcome == outcome


def test_a_race_without_consequences() -> None:
    said = Said("broken", "missing-wait")
    assert judged(BASE, said, Truth("equal")).outcome == FALSE_BROKEN
    for kind in ("late wait", "line rank"):
        assert judged(replace(BASE, kinds=(kind,)), said, Truth("equal")).outcome == AGREE
    assert (
        judged(replace(BASE, kinds=("late wait",)), Said("broken", "wrong-relation"), Truth("equal")).outcome
        == FALSE_BROKEN
    )


def test_a_group_that_some_make_and_nobody_uses() -> None:
    said = Said("broken", "collective-mismatch", "rank 0 calls new_group for rank 0 and rank 1 does not")
    assert judged(BASE, said, Truth("equal")).outcome == AGREE
    other = Said("broken", "collective-mismatch", "rank 0 calls all_reduce and rank 1 does not")
    assert judged(BASE, other, Truth("equal")).outcome == FALSE_BROKEN


def test_what_seems_to_hang_is_looked_at_again() -> None:
    slow, fast = (judged(BASE, Said("refines"), Truth(kind)) for kind in ("hangs", "equal"))
    wrong, lucky = (judged(BASE, Said("refines"), Truth(kind)) for kind in ("differs", "equal"))
    assert settled(slow, fast).outcome == AGREE
    assert settled(wrong, lucky).outcome == WRONG_REFINES


def test_a_disagreement_is_made_short() -> None:
    def judge(one: Program) -> Judged:
        wrong = any("all_reduce" in line for line in one.impl)
        return judged(one, Said("refines"), Truth("differs" if wrong else "equal"))

    long = of("r = dist.get_rank()", "z = y * 2", SUM, "v = z + y", "return v", spec="2 * (x @ w)")
    first, _ = shrunk(judge(long), judge).program.impl
    assert first.startswith("dist.all_reduce(")


@pytest.mark.slow
def test_a_sample_of_programs() -> None:
    """``make trust`` runs thousands; what disagrees is shown here with both results."""
    tally = judge_slice(range(100))
    assert not tally.unsound(), "\n\n".join(described(row) for row in tally.found)
    assert tally.counts["refines", "equal", AGREE] > 25
    assert tally.counts["broken", "differs", AGREE] > 10


@pytest.mark.slow  # real processes
def test_what_was_found() -> None:
    """Programs on which verdict and truth once disagreed, made short."""
    files = sorted((Path(__file__).parent / "found").glob("*.py"))
    rows = judge_files(files)
    assert {row.outcome for row in rows} == {AGREE}, "\n\n".join(described(row) for row in rows if row.outcome != AGREE)
    refining = {file.stem for file, row in zip(files, rows, strict=True) if row.said.verdict == "refines"}
    assert refining == {"overtaken", "put_off"}


def test_a_program_is_its_number() -> None:
    assert program(7) == program(7)
    assert len({program(number).text for number in range(300)}) > 280
    assert {program(number).world_size for number in range(60)} == {2, 3, 4}


def test_an_edit_changes_what_is_asked() -> None:
    """Else the cache could not be told from a run without it."""
    rng = random.Random(0)
    with Folders() as folders:
        questions = [question(rng, f"asked{place}", folders.places) for place in range(200)]
        folders.arrange(*(each.before for each in questions))
        before = answers(questions, 0, folders)
        folders.arrange(*(each.after for each in questions), edited=True)
        after = answers(questions, 1, folders)
    same = [each.expression for each, one, other in zip(questions, before, after, strict=True) if one == other]
    assert not same


def answers(questions: list[Question], side: int, folders: Folders) -> list[int]:
    """What checks would make of them."""
    program = "\n".join((HEADER, *(f"{each.prelude}\nprint(int({each.expression}))" for each in questions)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for each in questions:
        environment |= each.variables[side]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folders.places["project"],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.slow
def test_the_command_lines_cache() -> None:
    """``make trust`` asks hundreds."""
    stale, changed = project(0)
    assert not stale
    assert changed > 4
