"""Kills, stops, hangs and floods the server's processes at random moments; every round must end with a cold run's diagnostics.

``python benchmarks/server_faults.py --rounds 200 --seed 1``; exit status 1 where a round does not.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "server"))

from lsp_editor import CHECK, MODEL, Editor, editing
from process_tree import hurt, one

FIXED = MODEL.replace("    return h\n", "    all_reduce(h)\n    return h\n")
TEXTS = {
    "broken": MODEL,
    "fixed": FIXED,
    "slow": MODEL.replace("    return h\n", "    SLOW = 1\n    return h\n"),
    "slow and fixed": FIXED.replace("    return h\n", "    SLOW = 1\n    return h\n"),
}
TROUBLES = ("HANG", "NOISE", "FLOOD", "CRASH")


def project(folder: Path) -> Path:
    """A small project of the stand-in engine."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[tool.graphguard]\n")
    (folder / "model.py").write_text(MODEL)
    (folder / "check_mlp.py").write_text(CHECK)
    return folder


def seen(editor: Editor, uri: str) -> list[tuple[str, int, bool]]:
    """What the client shows of a file."""
    return [(str(each.code), each.range.start.line, each.data["stale"]) for each in editor.diagnostics(uri)]


async def cold(folder: Path, text: str) -> list[tuple[str, int, bool]]:
    """The diagnostics of a fresh server."""
    async with editing(folder, folder / "log") as editor:
        uri = editor.open("model.py", text)
        await editor.settled()
        return seen(editor, uri)


async def round_of(editor: Editor, uri: str, chance: random.Random) -> str:
    """One round: an edit, one to three faults at random moments, a last edit; returns the name of the last text."""
    pid = editor.pid
    editor.change(uri, chance.choice([*TEXTS.values(), MODEL.replace("return h", f"return {chance.choice(TROUBLES)}")]))
    for _ in range(chance.randint(1, 3)):
        await asyncio.sleep(chance.uniform(0, 0.3))
        how = chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
        hurt(one(pid, chance.choice(["worker.py", "prover.py"])), how)
    name = chance.choice(list(TEXTS))
    editor.change(uri, TEXTS[name] + f"# {chance.random()}\n")
    return name


async def main(rounds: int, seed: int) -> int:
    """Run the rounds; returns how many ended with other diagnostics."""
    chance = random.Random(seed)
    wrong = 0
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        root = project(Path(folder) / "project")
        expected = {name: await cold(root, text) for name, text in TEXTS.items()}
        async with editing(root, Path(folder) / "log") as editor:
            uri = editor.open("model.py")
            await editor.settled()
            for number in range(rounds):
                started = time.monotonic()
                name = await round_of(editor, uri, chance)
                try:
                    await editor.until(
                        lambda name=name: seen(editor, uri) == expected[name] and not editor.status()["busy"], 30
                    )
                    await editor.settled()
                except TimeoutError:
                    wrong += 1
                    print(f"round {number}: {name}: {seen(editor, uri)} instead of {expected[name]}; {editor.status()}")
                slowest = max(slowest, time.monotonic() - started)
            restarts = {each["name"]: each["restarts"] for each in editor.status()["processes"]}
    print(f"{rounds} rounds, {wrong} wrong, slowest {slowest:.1f} s, restarts {restarts}")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit(1 if asyncio.run(main(options.rounds, options.seed)) else 0)
